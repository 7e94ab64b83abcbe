"""A model of a database: requests, acknowledgements, and a check of what is stored."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Engine, func, select, text
from sqlalchemy.orm import Session

from tests.support.ladders import table_of
from tests.support.stored import probe
from tuner import db
from tuner.core.collective import Collective
from tuner.core.measurement import Measurements
from tuner.core.table import AlgorithmChoice, TuningTable, table_record
from tuner.db.models import (
    JobRow,
    ProbeRow,
    PublicationRow,
    RuleRow,
    SeriesRow,
    TableRow,
    TokenRow,
    TopologyRow,
)

# What prunes leave of each.
KEPT_TABLES = 3
KEPT_JOBS = 3
RULES = 2  # of each table
SERIES = 60  # of each file of measurements
TABLE, PUBLICATION, TOKEN, REVOKED = "table", "publication", "token", "revoked"
MEASUREMENTS, JOB, CLAIMED, DONE = "measurements", "job", "claimed", "done"
IN_LOG = "in the log of publications"  # by version, where the publication's id is not known
Item = tuple[str, int]


def numbered_table(n: int) -> TuningTable:
    """Return a table that differs from those of other numbers."""
    rungs = [(0, AlgorithmChoice()), (1024, AlgorithmChoice("binomial"))]
    made = table_of({(Collective.BCAST, 4): rungs}, (4096,))
    return TuningTable(made.cluster, made.library, made.rules, {"n": n})


def numbered_measurements(n: int) -> Measurements:
    """Return measurements that differ from those of other numbers."""
    return replace(probe(SERIES), provenance={"n": n})


@dataclass
class Model:
    """The requests and the acknowledgements so far.

    acknowledged    the id, name or token by kind and number; of a publication the version by its id
    asked           what may be there although nobody was told so
    pruned          whether old tables and jobs may have been deleted
    seen            what was compared with its content before, and never changes
    """

    acknowledged: dict[Item, Any] = field(default_factory=dict)
    asked: set[Item] = field(default_factory=set)
    pruned: bool = False
    seen: set[Item] = field(default_factory=set)

    def acknowledge(self, kind: str, number: int, value: Any) -> None:
        """Note what was acknowledged; the same content has the same id each time."""
        known = self.acknowledged.setdefault((kind, number), value)
        assert known == value, f"{kind} {number} was acknowledged as {known} and as {value}"

    def all_of(self, kind: str) -> dict[int, Any]:
        """Return what was acknowledged of a kind, by number."""
        return {n: value for (name, n), value in self.acknowledged.items() if name == kind}

    def asked_of(self, kind: str) -> set[int]:
        """Return the numbers of a kind that were asked for."""
        return {n for name, n in self.asked if name == kind}

    def snapshot(self) -> Model:
        """Return what a backup that begins now must have."""
        return copy.deepcopy(self)

    def restored(self, backup: Model) -> Model:
        """Return what a database must have that was restored from a backup.

        What was acknowledged later may be in it, as long as the backup was being made.
        """
        return Model(dict(backup.acknowledged), set(self.asked), self.pruned)


def check(engine: Engine, model: Model) -> None:
    """Raise AssertionError where something acknowledged is missing or anything is half there."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            assert connection.execute(text("pragma integrity_check")).scalar() == "ok"
            assert not connection.execute(text("pragma foreign_key_check")).all()
    with db.read_session(engine) as session:
        _check_tables(session, model)
        _check_tokens(session, model)
        _check_jobs(session, model)
        stored = _check_measurements(session, model)
    for number, n in stored.items():
        lines = "".join(db.measurement_lines(engine, number))
        assert lines.count("\n") == SERIES + 2, f"measurements {number} are cut off"
        model.seen.add((MEASUREMENTS, n))
    for name, token in model.all_of(TOKEN).items():
        if (TOKEN, name) not in model.seen and (REVOKED, name) not in model.asked:
            assert db.check_token(engine, token) is not None, f"token {name} is refused"
            model.seen.add((TOKEN, name))


def _check_tables(session: Session, model: Model) -> None:
    rules = _counts(session, select(RuleRow.version, func.count()).group_by(RuleRow.version))
    stored = _counts(session, select(TableRow.version, TableRow.provenance))
    assert set(rules) == set(stored), "there are tables without rules, or rules without tables"
    assert set(rules.values()) <= {RULES}, f"tables are cut off: {rules}"
    numbers = {version: provenance["n"] for version, provenance in stored.items()}
    assert len(set(numbers.values())) == len(numbers), "a table was stored twice"
    _require_asked(TABLE, numbers.values(), model)
    published = _counts(session, select(PublicationRow.id, PublicationRow.version))
    assert set(published.values()) <= set(stored), "a table is published that does not exist"
    for number, version in model.all_of(PUBLICATION).items():
        assert published.get(number) == version, f"publication {number} is missing"
    for version in model.all_of(IN_LOG):
        assert version in published.values(), f"no publication of version {version} is left"
    for n, version in model.all_of(TABLE).items():
        gone = version not in published.values() and _may_be_pruned(
            version, stored, KEPT_TABLES, model
        )
        assert numbers.get(version, n if gone else None) == n, f"table {n}, {version} is missing"
    for version, n in numbers.items():
        if (TABLE, n) not in model.seen:
            loaded = table_record(db.load_table(session, version))
            assert loaded == table_record(numbered_table(n)), f"table {version} is another one"
            model.seen.add((TABLE, n))


def _may_be_pruned(number: int, stored: Collection[int], kept: int, model: Model) -> bool:
    return model.pruned and sum(other > number for other in stored) >= kept


def _check_tokens(session: Session, model: Model) -> None:
    revoked = _counts(session, select(TokenRow.name, TokenRow.revoked_at))
    _require_asked(TOKEN, map(int, revoked), model)
    for n in model.all_of(TOKEN):
        assert str(n) in revoked, f"token {n} is missing"
    for n in model.all_of(REVOKED):
        assert revoked[str(n)] is not None, f"token {n} is no longer revoked"
    _require_asked(REVOKED, (int(n) for n, at in revoked.items() if at is not None), model)


def _check_jobs(session: Session, model: Model) -> None:
    """Every job that is done has the topology that it stored in the same transaction."""
    rows = session.execute(select(JobRow.id, JobRow.state, JobRow.attempt, JobRow.spec)).all()
    jobs = {row.id: row for row in rows}
    ended = [row.id for row in rows if row.state in ("done", "failed", "cancelled")]
    _require_asked(JOB, (int(row.spec["name"]) for row in rows), model)
    for n, number in model.all_of(JOB).items():
        gone = _may_be_pruned(number, ended, KEPT_JOBS, model)
        found = int(jobs[number].spec["name"]) if number in jobs else None
        assert found == n or (found is None and gone), f"job {number} is missing"
    for number in model.all_of(DONE):
        assert number not in jobs or jobs[number].state == "done", f"job {number} is not done"
    results = {
        int(name.split()[0]): int(name.split()[1])
        for name in session.scalars(select(TopologyRow.name))
    }
    for row in rows:
        expected = row.attempt if row.state == "done" else None
        assert results.get(row.id) == expected, f"job {row.id} is {row.state} without its result"


def _check_measurements(session: Session, model: Model) -> dict[int, int]:
    """Return the numbers of those that are visible and were not compared before, by id."""
    lengths = _counts(
        session, select(SeriesRow.probe_id, func.count()).group_by(SeriesRow.probe_id)
    )
    visible = {}
    for row in session.execute(
        select(ProbeRow.id, ProbeRow.provenance, ProbeRow.series_count, ProbeRow.author)
    ):
        assert lengths.get(row.id, 0) == row.series_count, f"measurements {row.id}"
        if row.author is None:
            assert row.series_count == SERIES, f"measurements {row.id} are visible in part"
            visible[row.id] = row.provenance["n"]
    assert len(set(visible.values())) == len(visible), "measurements were stored twice"
    _require_asked(MEASUREMENTS, visible.values(), model)
    for n, number in model.all_of(MEASUREMENTS).items():
        assert visible.get(number) == n, f"measurements {number} are missing"
    return {i: n for i, n in visible.items() if (MEASUREMENTS, n) not in model.seen}


def _require_asked(kind: str, numbers: Any, model: Model) -> None:
    unknown = set(numbers) - model.asked_of(kind)
    assert not unknown, f"nobody asked for {kind} {unknown}"


def _counts(session: Session, query: Any) -> Mapping[Any, Any]:
    return {row[0]: row[1] for row in session.execute(query)}
