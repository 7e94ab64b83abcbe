"""Jobs run once at a time, survive their runners, and end once."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy import Engine, delete, event, func, select, text, update

from tests.support.children import Child, run_jobs
from tests.support.waiting import until
from tuner import db
from tuner.db import Claim, ConflictError, LostLeaseError, NotFoundError
from tuner.db.models import JobLogRow, JobRow, utc_now

RUNNERS = 4
JOBS = 24
BLOCKED = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    " and datname = current_database()"
)


def enqueue(engine: Engine, kind: str = "tune") -> int:
    with db.transaction(engine) as session:
        return db.enqueue_job(session, kind, {"measurements": 1}, "ada")


def claim(engine: Engine, kinds: tuple[str, ...] = ("tune",)) -> Claim:
    claimed = db.claim_job(engine, "here", kinds)
    assert claimed is not None
    return claimed


def runner_dies(engine: Engine, job: int) -> None:
    """As much time passes as a lease lasts."""
    with db.transaction(engine) as session:
        past = utc_now() - timedelta(seconds=1)
        session.execute(update(JobRow).where(JobRow.id == job).values(leased_to=past))


def is_any_blocked(engine: Engine) -> bool:
    """Return whether a statement waits for a transaction; SQLite does not tell."""
    if engine.dialect.name == "sqlite":
        return True
    with engine.connect() as connection:
        return bool(connection.scalar(text(BLOCKED)))


def job(engine: Engine, number: int) -> db.Job:
    with db.read_session(engine) as session:
        return db.load_job(session, number)


def test_the_life_of_a_job(engine: Engine) -> None:
    number = enqueue(engine)
    queued = job(engine, number)
    assert (queued.state, queued.attempts, queued.by) == ("queued", 0, "ada")
    assert queued.spec == {"measurements": 1}
    claimed = claim(engine)
    assert (claimed.id, claimed.attempt, claimed.kind) == (number, 1, "tune")
    with db.transaction(engine) as session:
        assert not db.heartbeat(session, claimed, 0.5, "half of it")
    running = job(engine, number)
    assert (running.state, running.progress, running.text) == ("running", 0.5, "half of it")
    assert running.started_at is not None
    assert running.ended_at is None
    with db.transaction(engine) as session:
        assert db.load_result(session, number) is None
        db.finish_job(session, claimed, {"version": 3})
    done = job(engine, number)
    assert (done.state, done.progress, done.attempts) == ("done", 1.0, 1)
    assert done.ended_at is not None
    with db.read_session(engine) as session:
        assert db.load_result(session, number) == {"version": 3}
        assert db.count_jobs(session)["done"] == 1


def test_the_oldest_of_the_right_kind_goes_first(engine: Engine) -> None:
    study, first, second = enqueue(engine, "study"), enqueue(engine), enqueue(engine)
    assert db.claim_job(engine, "here", ["calibrate"]) is None
    assert [claim(engine).id, claim(engine).id] == [first, second]
    assert db.claim_job(engine, "here", ["tune"]) is None
    with db.read_session(engine) as session:
        assert [entry.id for entry in db.list_jobs(session, state="queued").items] == [study]
        assert [entry.id for entry in db.list_jobs(session, kind="tune").items] == [first, second]
        with pytest.raises(NotFoundError, match="no job 99"):
            db.load_job(session, 99)


def test_lists_of_jobs_leave_out_what_may_be_large(engine: Engine) -> None:
    number = enqueue(engine)
    asked: list[str] = []

    def listen(_c: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    event.listen(engine, "before_cursor_execute", listen)
    with db.read_session(engine) as session:
        assert [entry.id for entry in db.list_jobs(session).items] == [number]
    (statement,) = (each for each in asked if "FROM jobs" in each)
    assert "spec" not in statement
    assert "result" not in statement


def test_a_job_is_given_out_once_more_and_the_first_runner_cannot_write(engine: Engine) -> None:
    number = enqueue(engine)
    first = claim(engine)
    runner_dies(engine, number)
    second = claim(engine)
    assert (second.id, second.attempt) == (number, 2)
    for write in (
        lambda session: db.heartbeat(session, first, 0.9),
        lambda session: db.finish_job(session, first, {"by": "first"}),
        lambda session: db.fail_job(session, first, "first"),
        lambda session: db.mark_job_cancelled(session, first),
        lambda session: db.requeue_job(session, first),
    ):
        with pytest.raises(LostLeaseError, match="attempt 1"), db.transaction(engine) as session:
            write(session)
    with db.transaction(engine) as session:
        db.finish_job(session, second, {"by": "second"})
    with pytest.raises(LostLeaseError), db.transaction(engine) as session:
        db.finish_job(session, second, {"by": "second, again"})
    with db.read_session(engine) as session:
        assert db.load_result(session, number) == {"by": "second"}


def test_what_a_runner_stores_after_it_lost_its_job_is_not_there(engine: Engine) -> None:
    number = enqueue(engine)
    first = claim(engine)
    runner_dies(engine, number)
    claim(engine)

    def end() -> None:
        with db.transaction(engine) as session:
            db.store_topology(session, "result", "yaml", "", {})
            db.finish_job(session, first, {})

    with pytest.raises(LostLeaseError):
        end()
    with db.read_session(engine) as session:
        assert db.list_topologies(session).items == []


def test_a_job_that_kills_its_runners_fails(engine: Engine) -> None:
    number = enqueue(engine)
    for _ in range(2):
        claim(engine)
        runner_dies(engine, number)
    assert db.claim_job(engine, "here", ["tune"]) is None
    failed = job(engine, number)
    assert (failed.state, failed.attempts) == ("failed", 2)
    assert failed.error is not None
    assert "2 runners died" in failed.error


def test_given_back_it_is_not_counted_as_lost(engine: Engine) -> None:
    number = enqueue(engine)
    for attempt in (1, 2, 3):
        claimed = claim(engine)
        assert claimed.attempt == attempt
        with db.transaction(engine) as session:
            db.requeue_job(session, claimed)
        assert job(engine, number).state == "queued"
    claim(engine)
    runner_dies(engine, number)
    assert claim(engine).attempt == 5


def test_a_runner_that_was_only_slow_keeps_its_job(engine: Engine) -> None:
    number = enqueue(engine)
    claimed = claim(engine)
    runner_dies(engine, number)
    with db.transaction(engine) as session:
        db.heartbeat(session, claimed)
    assert db.claim_job(engine, "here", ["tune"]) is None


def test_cancelling(engine: Engine) -> None:
    def cancel(number: int) -> db.JobSummary:
        with db.transaction(engine) as session:
            return db.cancel_job(session, number)

    queued = enqueue(engine)
    assert cancel(queued).state == "cancelled"
    assert cancel(queued).state == "cancelled"
    assert db.claim_job(engine, "here", ["tune"]) is None
    running = enqueue(engine)
    claimed = claim(engine)
    assert cancel(running).cancel_requested
    with db.transaction(engine) as session:
        assert db.heartbeat(session, claimed)
        db.mark_job_cancelled(session, claimed)
    assert job(engine, running).state == "cancelled"
    dying = enqueue(engine)
    claim(engine)
    cancel(dying)
    runner_dies(engine, dying)
    assert db.claim_job(engine, "here", ["tune"]) is None
    assert (job(engine, dying).state, job(engine, dying).error) == ("cancelled", None)
    broken = enqueue(engine)
    with db.transaction(engine) as session:
        db.fail_job(session, claim(engine), "no such measurements")
    assert job(engine, broken).error == "no such measurements"
    with pytest.raises(ConflictError, match="is failed"):
        cancel(broken)


@pytest.mark.extended
def test_runners_that_hammer_one_database_run_every_job_once(
    engine: Engine, database_url: str
) -> None:
    for _ in range(JOBS):
        enqueue(engine)
    runners = [Child(run_jobs, database_url, str(number)) for number in range(RUNNERS)]
    finished = Counter(number for runner in runners for number in runner.everything())
    assert [runner.end() for runner in runners] == [0] * RUNNERS
    with db.read_session(engine) as session:
        states = {entry.id: entry.state for entry in db.list_jobs(session).items}
        done = {number for number, state in states.items() if state == "done"}
        assert finished == Counter(done)
        assert set(states.values()) <= {"done", "failed"}
        results = [entry.name for entry in db.list_topologies(session).items]
    assert sorted(int(name.split()[0]) for name in results) == sorted(done)


def test_jobs_that_are_being_claimed_do_not_make_others_wait(engine: Engine) -> None:
    first, second = enqueue(engine), enqueue(engine)
    if engine.dialect.name == "sqlite":
        assert [claim(engine).id, claim(engine).id] == [first, second]
        return
    with db.transaction(engine) as session:
        session.execute(text("select id from jobs where id = :id for update"), {"id": first})
        assert claim(engine).id == second


def test_a_job_that_is_given_back_while_it_is_cancelled_is_cancelled(engine: Engine) -> None:
    number = enqueue(engine)
    claimed = claim(engine)
    with db.transaction(engine) as session:
        db.cancel_job(session, number)
        db.requeue_job(session, claimed)
    given = job(engine, number)
    assert given.state == "cancelled"
    assert given.ended_at is not None


def test_a_cancellation_finds_the_job_in_whatever_state_it_comes_into(engine: Engine) -> None:
    number = enqueue(engine)
    claimed = claim(engine)
    asked = threading.Event()

    def cancel() -> None:
        event.listen(engine, "before_cursor_execute", lambda *_: asked.set())
        with db.transaction(engine) as session:
            db.cancel_job(session, number)

    canceller = threading.Thread(target=cancel)
    with db.transaction(engine) as session:
        db.requeue_job(session, claimed)
        canceller.start()
        until(lambda: asked.is_set() and is_any_blocked(engine))  # by this transaction
    canceller.join()
    assert job(engine, number).state == "cancelled"


def test_a_job_keeps_a_log(engine: Engine) -> None:
    number = enqueue(engine)
    claimed = claim(engine)
    for step in range(3):
        with db.transaction(engine) as session:
            db.append_job_log(session, claimed, f"step {step}", {"step": step} if step else None)
    with db.read_session(engine) as session:
        first = db.list_job_log(session, number, limit=2)
        rest = db.list_job_log(session, number, after=first.next or 0)
    assert [entry.text for entry in (*first.items, *rest.items)] == ["step 0", "step 1", "step 2"]
    assert [entry.data for entry in first.items] == [None, {"step": 1}]
    assert {entry.attempt for entry in first.items} == {1}
    with pytest.raises(NotFoundError), db.read_session(engine) as session:
        db.list_job_log(session, number + 1)


def test_who_lost_a_job_cannot_write_its_log(engine: Engine) -> None:
    number = enqueue(engine)
    before = claim(engine)
    runner_dies(engine, number)
    claim(engine)
    with pytest.raises(LostLeaseError), db.transaction(engine) as session:
        db.append_job_log(session, before, "late")
    with db.read_session(engine) as session:
        assert db.list_job_log(session, number).items == []


def test_the_log_goes_with_its_job(engine: Engine) -> None:
    enqueue(engine)
    claimed = claim(engine)
    enqueue(engine)  # the newest is kept
    with db.transaction(engine) as session:
        db.append_job_log(session, claimed, "said")
        db.finish_job(session, claimed, {})
    with db.transaction(engine) as session:
        session.execute(delete(JobRow).where(JobRow.id == claimed.id))
        assert session.scalar(select(func.count()).select_from(JobLogRow)) == 0
