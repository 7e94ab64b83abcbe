"""Tokens open what they may and cannot be read back; feedback tells when a table has aged."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Engine, event, text, update

from tests.support.stored import CLUSTER, LIBRARY, report, table
from tuner import db
from tuner.base.errors import InputError
from tuner.core.table import TuningTable
from tuner.db import ConflictError, NotFoundError
from tuner.db.deduplication import content_digest
from tuner.db.models import TokenRow, utc_now


def test_tokens(engine: Engine) -> None:
    with db.transaction(engine) as session:
        assert not db.has_tokens(session)
        token = db.create_token(session, "ci", ["submit", "read"])
        other = db.create_token(session, "admin", db.SCOPES)
        assert db.has_tokens(session)
    assert token != other
    known = db.check_token(engine, token)
    assert known is not None
    assert (known.name, sorted(known.scopes)) == ("ci", ["read", "submit"])
    assert known.last_used_at is None
    again = db.check_token(engine, token)
    assert again is not None
    assert again.last_used_at is not None
    for wrong in ("", token + "x", token[:-1], "ci", "\udc80"):
        assert db.check_token(engine, wrong) is None
    with db.transaction(engine) as session:
        db.revoke_token(session, "ci")
    assert db.check_token(engine, token) is None
    assert db.check_token(engine, other) is not None
    with db.transaction(engine) as session:
        assert [entry.revoked_at is None for entry in db.list_tokens(session)] == [False, True]
        db.revoke_token(session, "admin")
        assert not db.has_tokens(session)


def test_the_database_does_not_hold_the_token(engine: Engine) -> None:
    with db.transaction(engine) as session:
        token = db.create_token(session, "ci", ["read"])
        row = session.execute(text("select * from tokens")).one()
    assert len(token) > 43
    assert not any(token in str(value) for value in row)


def test_a_token_opens_while_others_keep_the_database_from_writing(engine: Engine) -> None:
    with db.transaction(engine) as session:
        token = db.create_token(session, "ci", ["read"])

    def busy(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE"):
            raise db.UnavailableError("busy")

    event.listen(engine, "before_cursor_execute", busy)
    known = db.check_token(engine, token)
    assert known is not None
    assert known.name == "ci"


def test_tokens_that_cannot_be(engine: Engine) -> None:
    with db.transaction(engine) as session:
        db.create_token(session, "ci", ["read"])
    for name, scopes, error, words in (
        ("ci", ["read"], ConflictError, "choose another name"),
        ("x", ["write"], InputError, "read, submit, publish, not write"),
        ("x", [], InputError, "not none"),
    ):
        with pytest.raises(error, match=words), db.transaction(engine) as session:
            db.create_token(session, name, scopes)
    with pytest.raises(NotFoundError, match="no token x"), db.transaction(engine) as session:
        db.revoke_token(session, "x")


def test_a_token_expires(engine: Engine) -> None:
    soon = utc_now() + timedelta(days=1)
    with db.transaction(engine) as session:
        brief = db.create_token(session, "brief", ["read"], soon)
        lasting = db.create_token(session, "lasting", ["read"], soon + timedelta(days=90))
    for token, name in ((brief, "brief"), (lasting, "lasting")):
        known = db.check_token(engine, token)
        assert known is not None
        assert (known.name, known.expired) == (name, False)
    passed = soon - timedelta(days=2)
    with db.transaction(engine) as session:
        session.execute(update(TokenRow).where(TokenRow.name == "brief").values(expires_at=passed))
    known = db.check_token(engine, brief)
    assert known is not None
    assert (known.expired, known.expires_at) == (True, passed)
    with db.transaction(engine) as session:
        assert [token.expired for token in db.list_tokens(session)] == [True, False]
        assert db.has_tokens(session)
        db.revoke_token(session, "lasting")
        assert not db.has_tokens(session)


def test_an_expiry_has_any_zone_and_lies_ahead(engine: Engine) -> None:
    there = timezone(timedelta(hours=5))
    moment = (utc_now() + timedelta(hours=1)).astimezone(there)
    with db.transaction(engine) as session:
        db.create_token(session, "ci", ["read"], moment)
    with db.read_session(engine) as session:
        (token,) = db.list_tokens(session)
    assert (token.expired, token.expires_at) == (False, moment)
    past = datetime(2020, 1, 31, tzinfo=UTC)
    with (
        pytest.raises(InputError, match="in the past, at 2020-01-31T00:00:00Z"),
        db.transaction(engine) as session,
    ):
        db.create_token(session, "late", ["read"], past)


def test_all_reads_of_a_session_see_one_state(engine: Engine) -> None:
    with db.transaction(engine) as session:
        db.create_token(session, "early", ["read"])
    with db.read_session(engine) as session:
        assert [token.name for token in db.list_tokens(session)] == ["early"]
        with db.transaction(engine) as writing:
            db.create_token(writing, "late", ["read"])
        assert [token.name for token in db.list_tokens(session)] == ["early"]
    with db.read_session(engine) as session:
        assert [token.name for token in db.list_tokens(session)] == ["early", "late"]


def judged(engine: Engine, reports: list[dict[str, Any]]) -> db.Staleness:
    with db.transaction(engine) as session:
        version = db.store_table(session, table()).id
        for entry in reports:
            db.store_feedback(session, version, entry)
    with db.read_session(engine) as session:
        return db.assess_staleness(session, version)


def test_feedback_comes_back_and_is_stored_once(engine: Engine) -> None:
    with db.transaction(engine) as session:
        version = db.store_table(session, table()).id
        first = db.store_feedback(session, version, report(1.0))
        assert not db.store_feedback(session, version, report(1.0)).is_new
        with pytest.raises(NotFoundError, match="version 99"):
            db.store_feedback(session, 99, report(1.0))
    with db.read_session(engine) as session:
        (entry,) = db.list_feedback(session, version).items
        assert (entry.id, entry.library, entry.ranks) == (first.id, LIBRARY, 4)
        assert entry.items == report(1.0)["items"]


def test_a_report_is_stored_once_whether_it_names_the_usual_placement_or_not(
    engine: Engine,
) -> None:
    """Reports from before there were placements name none, and their digests stay what they were:
    who sends one again after an upgrade is not counted twice."""
    old = report(1.0)
    assert not any("placement" in item for item in old["items"])
    with db.transaction(engine) as session:
        version = db.store_table(session, table()).id
        before = content_digest([version, old])
        first = db.store_feedback(session, version, old)
        named = db.store_feedback(session, version, report(1.0, placement="consecutive"))
        assert session.scalars(text("select digest from feedback")).all() == [before]
        dealt = db.store_feedback(session, version, report(1.0, nodes=2, ppn=2, placement="cyclic"))
    assert (named.id, named.is_new, dealt.is_new) == (first.id, False, True)


def test_calls_of_cyclic_ranks_are_held_against_their_own_rules(engine: Engine) -> None:
    """Which were measured to take twice as long as those of consecutive ones."""
    usual = [replace(r, key=replace(r.key, nodes=2, ppn=2)) for r in table().rules]
    dealt = [
        replace(
            r,
            key=replace(r.key, placement="cyclic"),
            evidence=replace(
                r.evidence, chosen_s=tuple(2 * seconds for seconds in r.evidence.chosen_s)
            ),
        )
        for r in usual
    ]
    made = TuningTable(CLUSTER, LIBRARY, (*usual, *dealt))
    with db.transaction(engine) as session:
        version = db.store_table(session, made).id
        for times in (2.0, 2.02):
            told = report(times, nodes=2, ppn=2, placement="cyclic")
            db.store_feedback(session, version, told)
    with db.read_session(engine) as session:
        found = db.assess_staleness(session, version)
    assert found.ratio == pytest.approx(1.005, abs=1e-3)


def test_no_feedback_is_no_reason(engine: Engine) -> None:
    assert judged(engine, []) == db.Staleness(
        0, 0, False, "no program has reported on this version"
    )


def test_one_report_is_too_few(engine: Engine) -> None:
    once = judged(engine, [report(3.0)])
    assert (once.stale, once.reports, once.items) == (False, 1, 3)
    assert once.ratio == pytest.approx(3.0)
    assert "it takes two" in once.reason


@pytest.mark.parametrize(
    ("ratios", "stale"),
    [
        ([1.5, 1.6, 1.55], True),
        ([0.7, 0.65, 0.72], True),
        ([1.0, 1.1, 0.95], False),
        ([1.1, 1.12, 1.11], False),  # certainly slower, but not by much
        ([0.5, 4.0, 1.0], False),  # much slower on average, and anything is possible
    ],
)
def test_stale_is_much_slower_or_faster_for_certain(
    engine: Engine, ratios: list[float], stale: bool
) -> None:
    found = judged(engine, [report(ratio) for ratio in ratios])
    mean = (ratios[0] * ratios[1] * ratios[2]) ** (1 / 3)
    assert found.ratio == pytest.approx(mean)
    assert found.stale == stale
    assert ("probe again and publish" in found.reason) == stale
    assert found.low is not None
    assert found.high is not None
    assert found.low < mean < found.high


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "ring"},  # something else ran
        {"ppn": 8},  # no such rule
        {"collective": "allreduce"},
    ],
)
def test_calls_that_the_table_did_not_measure_say_nothing(
    engine: Engine, changes: dict[str, Any]
) -> None:
    found = judged(engine, [report(2.0, **changes), report(2.1, **changes)])
    assert (found.stale, found.ratio, found.reports, found.items) == (False, None, 2, 6)


def test_sizes_beyond_the_probed_ones_say_nothing(engine: Engine) -> None:
    reports = [report(ratio) for ratio in (2.0, 2.1)]
    for entry in reports:
        entry["items"] = [item | {"nbytes": 65} for item in entry["items"]]
    assert judged(engine, reports).ratio is None


def test_an_operator_without_rules_of_its_own_follows_those_for_all(engine: Engine) -> None:
    found = judged(engine, [report(r, operators="commutative") for r in (2.0, 2.1)])
    assert found.stale
