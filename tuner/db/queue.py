"""Jobs as runners see them: claimed, kept by heartbeats and ended once.

A claim holds for `JOB_LEASE_S` seconds, and every heartbeat renews it. A runner that is silent
for longer counts as dead, and its job is given to another one; when that one dies too, the job
has failed. Every write names its attempt, so a runner that was wrongly taken for dead can no
longer write, and a job never has two results.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Engine, and_, case, or_, select, update
from sqlalchemy.orm import Session, defer

from tuner.db.db_errors import LostLeaseError
from tuner.db.jobs import CANCELLED, DONE, FAILED, QUEUED, RUNNING
from tuner.db.models import JobLogRow, JobRow
from tuner.db.transactions import database_now, read_session, transaction

JOB_LEASE_S = 30.0  # seconds
MAX_LOST_RUNNERS = 2  # a job fails when this many of its runners have died


@dataclass(frozen=True)
class Claim:
    """The right to run a job; id and attempt identify the writes of its runner."""

    id: int
    attempt: int
    kind: str


def claim_job(engine: Engine, runner: str, kinds: Collection[str]) -> Claim | None:
    """Claim the oldest job of these kinds that is not running; return None if there is none.

    runner      the name of the runner, for people who look at the database
    """
    with read_session(engine) as session:
        due = _is_due(kinds, database_now(session))
        if session.scalar(select(JobRow.id).where(due).limit(1)) is None:
            return None
    with transaction(engine) as session:
        return _claim(session, runner, kinds)


def heartbeat(
    session: Session, claim: Claim, progress: float | None = None, text: str | None = None
) -> bool:
    """Renew the lease, store the progress and return whether the job is to be cancelled.

    progress    fraction done, 0 to 1
    text        what the job is doing

    Raises LostLeaseError.
    """
    said = {"progress": progress, "text": text}
    values = {name: value for name, value in said.items() if value is not None}
    return _update_claimed(session, claim, **values, leased_to=_lease_end(database_now(session)))


def append_job_log(session: Session, claim: Claim, text: str, data: Any | None = None) -> None:
    """Add an entry to the log of the job; raise LostLeaseError.

    data    what it says, for programs: anything that JSON can hold
    """
    now = database_now(session)
    _update_claimed(session, claim, leased_to=_lease_end(now))
    row = JobLogRow(job_id=claim.id, attempt=claim.attempt, at=now, text=text, data=data)
    session.add(row)


def finish_job(session: Session, claim: Claim, result: Mapping[str, Any]) -> None:
    """Mark the job done in the transaction that stores what it produced; raise LostLeaseError."""
    _end_job(session, claim, state=DONE, result=dict(result), progress=1.0)


def fail_job(session: Session, claim: Claim, error: str) -> None:
    """Mark the job failed, with the reason in one sentence; raise LostLeaseError."""
    _end_job(session, claim, state=FAILED, error=error)


def mark_job_cancelled(session: Session, claim: Claim) -> None:
    """Mark the job cancelled after it was stopped; raise LostLeaseError."""
    _end_job(session, claim, state=CANCELLED)


def requeue_job(session: Session, claim: Claim) -> None:
    """Put the job back into the queue, or cancel it if that was requested; raise LostLeaseError.

    This is for a runner that stops in an orderly way: it does not count as a failure of the job.
    """
    _update_claimed(
        session,
        claim,
        progress=0.0,
        text="",
        leased_to=None,
        runner="",
        state=case((JobRow.cancel_requested, CANCELLED), else_=QUEUED),
        ended_at=case((JobRow.cancel_requested, database_now(session)), else_=None),
    )


def retry_job(session: Session, claim: Claim, error: str) -> None:
    """Put a job that ended prematurely back into the queue.

    If this was its last permitted attempt it fails with `error`; if cancellation was requested it
    is cancelled. Raises LostLeaseError.
    """
    again = and_(~JobRow.cancel_requested, JobRow.lost + 1 < MAX_LOST_RUNNERS)
    ended = case((JobRow.cancel_requested, CANCELLED), else_=FAILED)
    _update_claimed(
        session,
        claim,
        lost=JobRow.lost + 1,
        leased_to=None,
        runner="",
        state=case((again, QUEUED), else_=ended),
        error=case((or_(again, JobRow.cancel_requested), None), else_=error),
        ended_at=case((again, None), else_=database_now(session)),
    )


def _is_due(kinds: Collection[str], now: datetime) -> ColumnElement[bool]:
    return and_(JobRow.kind.in_(kinds), or_(JobRow.state == QUEUED, _is_overdue(now)))


def _is_overdue(now: datetime) -> ColumnElement[bool]:
    return and_(JobRow.state == RUNNING, JobRow.leased_to < now)


def _claim(session: Session, runner: str, kinds: Collection[str]) -> Claim | None:
    now = database_now(session)
    _end_lost_jobs(session, kinds, now)
    oldest = (
        select(JobRow)
        .options(defer(JobRow.spec), defer(JobRow.result))  # both may be large
        .where(_is_due(kinds, now))
        .order_by(JobRow.id)
        .limit(1)
    )
    row = session.scalar(oldest.with_for_update(skip_locked=True))
    if row is None:
        return None
    row.lost += row.state == RUNNING
    row.state, row.runner, row.attempt = RUNNING, runner, row.attempt + 1
    row.progress, row.text, row.leased_to = 0.0, "", _lease_end(now)
    row.started_at = row.started_at or now
    return Claim(row.id, row.attempt, row.kind)


def _end_lost_jobs(session: Session, kinds: Collection[str], now: datetime) -> None:
    """End the jobs whose last permitted runner died or whose cancellation was requested."""
    lost_once_more = JobRow.lost + 1
    session.execute(
        update(JobRow)
        .where(
            JobRow.kind.in_(kinds),
            _is_overdue(now),
            or_(JobRow.cancel_requested, lost_once_more >= MAX_LOST_RUNNERS),
        )
        .values(
            state=case((JobRow.cancel_requested, CANCELLED), else_=FAILED),
            error=case((JobRow.cancel_requested, None), else_=_lost_message()),
            lost=lost_once_more,
            leased_to=None,
            ended_at=now,
        )
    )


def _lost_message() -> str:
    return (
        f"{MAX_LOST_RUNNERS} runners died while they ran this job, or were silent for more than"
        f" {JOB_LEASE_S:g} s; look into their logs, then ask for it again"
    )


def _lease_end(now: datetime) -> datetime:
    return now + timedelta(seconds=JOB_LEASE_S)


def _end_job(session: Session, claim: Claim, **values: Any) -> None:
    _update_claimed(session, claim, **values, leased_to=None, ended_at=database_now(session))


def _update_claimed(session: Session, claim: Claim, **values: Any) -> bool:
    """Update a claimed job and return whether it is to be cancelled.

    Raises LostLeaseError unless this attempt still runs.
    """
    asked = session.scalar(
        update(JobRow)
        .where(JobRow.id == claim.id, JobRow.attempt == claim.attempt, JobRow.state == RUNNING)
        .values(**values)
        .returning(JobRow.cancel_requested)
        .execution_options(synchronize_session=False)
    )
    if asked is None:
        raise LostLeaseError(
            f"job {claim.id}, attempt {claim.attempt}: somebody else runs it, or it has ended"
        )
    return asked
