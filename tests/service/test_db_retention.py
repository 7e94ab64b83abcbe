"""What is deleted, what never is, and that nothing is left of the former."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, select, text, update

from tests.support.stored import LIBRARY, calibration, probe, report, table
from tests.support.waiting import expiring, until
from tuner import db
from tuner.db.models import Base, FeedbackRow, JobRow, TableRow, utc_now
from tuner.db.retention import IN_USE_PERIOD
from tuner.jobs.pruning import Pruner

DAY = timedelta(days=1)
ALGORITHMS = ("chain", "binomial", "binary", "pipeline", "split_binary", "knomial")


def tables(engine: Engine, number: int, library: str = LIBRARY) -> list[int]:
    """Store so many versions."""
    with db.transaction(engine) as session:
        return [
            db.store_table(session, table(algorithm, library=library)).id
            for algorithm in ALGORITHMS[:number]
        ]


def jobs(engine: Engine, *states: str) -> list[int]:
    """Store a job in each of these states."""
    made = []
    for state in states:
        with db.transaction(engine) as session:
            number = db.enqueue_job(session, "tune", {}, "ada")
            ended = None if state in ("queued", "running") else utc_now()
            values = {"state": state, "ended_at": ended, "result": {"of": number}}
            session.execute(update(JobRow).where(JobRow.id == number).values(**values))
        made.append(number)
    return made


def age(engine: Engine, row: Any, column: Any, days: float, *numbers: int) -> None:
    """Make rows older."""
    with db.transaction(engine) as session:
        key = row.version if row is TableRow else row.id
        when = utc_now() - days * DAY
        session.execute(update(row).where(key.in_(numbers)).values({column: when}))


def pruned(engine: Engine, **limits: Any) -> db.Prunable:
    """Delete what exceeds these limits; a dry run says the same beforehand."""
    retention = db.Retention(**limits)
    with db.read_session(engine) as session:
        expected = db.find_prunable(session, retention)
    steps = list(db.prune(engine, retention))
    found = db.Prunable(
        tuple(number for step in steps for number in step.jobs),
        tuple(number for step in steps for number in step.tables),
    )
    assert found == expected
    assert not list(db.prune(engine, retention))
    return found


def left(engine: Engine) -> tuple[list[int], list[int]]:
    """Ids of the jobs and versions that are there."""
    with db.read_session(engine) as session:
        kept = [job.id for job in db.list_jobs(session, limit=1000).items]
        return kept, [each.version for each in db.list_tables(session).items]


def test_without_limits_everything_stays(engine: Engine) -> None:
    made, versions = jobs(engine, "done", "failed"), tables(engine, 2)
    age(engine, JobRow, "ended_at", 10_000, *made)
    assert db.KEEP_ALL.keeps_all
    assert pruned(engine) == db.Prunable()
    assert left(engine) == (made, versions)


def test_ended_jobs_go_by_age(engine: Engine) -> None:
    old = jobs(engine, "done", "failed", "cancelled", "queued", "running")
    new = jobs(engine, "done", "queued")
    age(engine, JobRow, "ended_at", 91, *old[:3])
    age(engine, JobRow, "created_at", 91, *old)
    age(engine, JobRow, "ended_at", 89, new[0])
    assert pruned(engine, max_job_age=90 * DAY).jobs == tuple(old[:3])
    assert left(engine)[0] == [*old[3:], *new]


def test_ended_jobs_go_by_number(engine: Engine) -> None:
    made = jobs(engine, "done", "failed", "running", "cancelled", "done", "queued")
    assert pruned(engine, max_jobs=5).jobs == ()
    assert pruned(engine, max_jobs=2).jobs == tuple(made[:2])
    assert left(engine)[0] == made[2:]


def test_either_limit_is_enough(engine: Engine) -> None:
    made = jobs(engine, "done", "done", "done", "done", "queued")
    age(engine, JobRow, "ended_at", 91, made[2])
    assert pruned(engine, max_jobs=3, max_job_age=90 * DAY).jobs == (made[0], made[2])


def test_numbers_are_not_given_out_again(engine: Engine) -> None:
    """Clients that know the job, and caches that hold the table, would take one for the other."""
    made, versions = jobs(engine, "done", "done"), tables(engine, 2)
    age(engine, JobRow, "ended_at", 91, *made)
    age(engine, TableRow, "stored_at", 91, *versions)
    found = pruned(engine, max_job_age=DAY, max_table_age=DAY)
    assert found == db.Prunable((made[0],), (versions[0],))
    assert jobs(engine, "queued")[0] > made[1]
    with db.transaction(engine) as session:
        assert db.store_table(session, table("split_binary")).id > versions[1]


def test_many_jobs_go_in_short_transactions(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.db.retention.JOBS_PER_TRANSACTION", 3)
    jobs(engine, *["done"] * 8)
    steps = [len(step.jobs) for step in db.prune(engine, db.Retention(max_jobs=1))]
    assert steps == [3, 3, 1]


def test_versions_go_by_age_and_by_number_for_each_cluster_and_library(engine: Engine) -> None:
    versions, others = tables(engine, 5), tables(engine, 2, "openmpi 4.1.6")
    age(engine, TableRow, "stored_at", 400, versions[3], others[1])
    assert pruned(engine, max_tables=3).tables == tuple(versions[:2])
    assert pruned(engine, max_table_age=365 * DAY).tables == (versions[3],)
    assert left(engine)[1] == [versions[2], versions[4], *others]


def test_what_was_ever_published_stays_and_can_be_rolled_back_to(engine: Engine) -> None:
    versions = tables(engine, 6)
    with db.transaction(engine) as session:
        for version in versions[1:4]:
            db.publish(session, version)
        db.roll_back(session, "ares", LIBRARY)  # from the fourth to the third
    age(engine, TableRow, "stored_at", 400, *versions)
    assert pruned(engine, max_tables=1, max_table_age=DAY).tables == (versions[0], versions[4])
    with db.transaction(engine) as session:
        assert db.roll_back(session, "ares", LIBRARY).version == versions[1]
        entries = db.list_publications(session).items
        assert [entry.version for entry in entries] == [
            versions[number] for number in (1, 2, 3, 2, 1)
        ]
        assert all(db.load_table(session, entry.version).rules for entry in entries)


def test_a_version_that_programs_report_on_stays(engine: Engine) -> None:
    versions = tables(engine, 3)
    with db.transaction(engine) as session:
        for version in versions:
            db.store_feedback(session, version, report(1.0))
    with db.read_session(engine) as session:
        reports = session.scalars(select(FeedbackRow.id).order_by(FeedbackRow.id)).all()
    age(engine, FeedbackRow, "stored_at", IN_USE_PERIOD.days + 1, reports[0])
    assert pruned(engine, max_tables=1).tables == (versions[0],)


def test_nothing_is_left_of_a_version_and_all_of_what_it_was_made_from(engine: Engine) -> None:
    with db.transaction(engine) as session:
        source = db.store_measurements(session, probe()).id
        fitted = db.store_calibration(session, calibration(), source).id
        version = db.store_table(session, table(), source, fitted).id
        proof = {
            "collective": "bcast",
            "p": 4,
            "nbytes": 8,
            "expected": "chain",
            "executed": "chain",
            "confirmed": True,
            "reason": "",
        }
        db.store_validations(session, version, [proof])
        heldout = {
            "collective": "bcast",
            "p": 4,
            "nbytes": 8,
            "algorithm": "chain",
            "default_s": 2.0,
            "tuned_s": 1.0,
            "ratio": 2.0,
            "ci95": [1.9, 2.1],
        }
        db.store_heldout(session, version, [heldout])
        stored = db.store_feedback(session, version, report(1.0)).id
        newer = db.store_table(session, table("split_binary"), source, fitted).id
    age(engine, FeedbackRow, "stored_at", IN_USE_PERIOD.days + 1, stored)
    assert pruned(engine, max_tables=1).tables == (version,)
    with db.read_session(engine) as session:
        for name in ("rules", "proofs", "heldout", "feedback", "tuning_tables"):
            assert "version" in Base.metadata.tables[name].columns
            about = text(f"select count(*) from {name} where version = :version")
            assert session.scalar(about, {"version": version}) == 0, name
        assert db.load_measurements(session, source) == probe()
        assert db.load_calibration(session, fitted) == calibration()
        described = db.describe_table(session, newer)
        assert (described.measurements_id, described.calibration_id) == (source, fitted)
        with pytest.raises(db.NotFoundError):
            db.load_table(session, version)


def test_a_version_that_is_published_meanwhile_stays(engine: Engine) -> None:
    versions = tables(engine, 4)
    steps = db.prune(engine, db.Retention(max_tables=1))
    assert next(steps).tables == (versions[0],)
    with db.transaction(engine) as session:
        db.publish(session, versions[1])
    assert [step.tables for step in steps] == [(versions[2],)]
    assert left(engine)[1] == [versions[1], versions[3]]


def test_a_version_is_published_whole_or_gone(engine: Engine) -> None:
    """Publishing waits for who deletes the version, and finds then that it is gone."""
    versions = tables(engine, 2)
    failures: list[Exception] = []

    def publish() -> None:
        try:
            with db.transaction(engine) as session:
                db.publish(session, versions[0])
        except db.NotFoundError as reason:
            failures.append(reason)

    publisher = threading.Thread(target=publish)

    def begin(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("DELETE FROM rules"):
            publisher.start()
            publisher.join(expiring(0.3))
            assert publisher.is_alive()

    event.listen(engine, "before_cursor_execute", begin)
    assert pruned_versions(engine) == [(versions[0],)]
    publisher.join()
    assert len(failures) == 1


def pruned_versions(engine: Engine) -> list[tuple[int, ...]]:
    return [step.tables for step in db.prune(engine, db.Retention(max_tables=1))]


def test_a_service_prunes_at_once_and_again(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.jobs.pruning.INTERVAL_SECONDS", 0.05)
    pruner = Pruner(database_url, db.Retention(max_jobs=1))
    thread = threading.Thread(target=pruner.run)
    jobs(engine, "done", "done")
    thread.start()
    try:
        for _ in range(2):
            until(lambda: len(left(engine)[0]) == 1)
            jobs(engine, "done")
    finally:
        pruner.stop()
        thread.join()
