"""Jobs as clients see them: enqueued, listed and cancelled.

The states are queued -> running -> done | failed | cancelled. A queued job is cancelled at once,
a running one is asked to stop. How runners claim and keep jobs is in `queue`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from sqlalchemy import Row, Text, case, cast, func, select, update
from sqlalchemy.orm import Session

from tuner.base.units import plural
from tuner.db.db_errors import ConflictError, QueueFullError, not_found
from tuner.db.models import JobLogRow, JobRow
from tuner.db.pagination import PAGE_SIZE, Page, equals_if_given, fetch_page
from tuner.db.transactions import advisory_lock, database_now

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
STATES: tuple[JobState, ...] = get_args(JobState)
QUEUED, RUNNING, DONE, FAILED, CANCELLED = STATES


@dataclass(frozen=True)
class JobSummary:
    """The state of a job.

    progress    fraction done, 0 to 1
    text        what is happening
    attempts    how often it was started
    """

    id: int
    kind: str
    state: JobState
    progress: float
    text: str
    attempts: int
    error: str | None
    cancel_requested: bool
    by: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True)
class Job(JobSummary):
    """A job with its parameters, but without its result; both may be large."""

    spec: Mapping[str, Any]


_SUMMARY = (
    JobRow.id,
    JobRow.kind,
    JobRow.state,
    JobRow.progress,
    JobRow.text,
    JobRow.attempt,
    JobRow.error,
    JobRow.cancel_requested,
    JobRow.asked_by,
    JobRow.created_at,
    JobRow.started_at,
    JobRow.ended_at,
)
_ALL_COLUMNS = (*_SUMMARY, JobRow.spec)


def enqueue_job(
    session: Session, kind: str, spec: Mapping[str, Any], by: str = "", limit: int = 0
) -> int:
    """Add a job and return its id; runners can claim it once this transaction is committed.

    by          the client that asks for it
    limit       jobs that this client may have queued, this one included; 0 for no limit

    Raises QueueFullError.
    """
    if limit:
        _check_queue_limit(session, by, limit)
    row = JobRow(kind=kind, spec=dict(spec), asked_by=by, created_at=database_now(session))
    session.add(row)
    session.flush()
    return row.id


def describe_job(session: Session, job_id: int) -> JobSummary:
    """Return the metadata of a job; raise NotFoundError if there is none."""
    return JobSummary(*_load_columns(session, _SUMMARY, job_id))


def load_job(session: Session, job_id: int) -> Job:
    """Return a job with its parameters; raise NotFoundError if there is none."""
    return Job(*_load_columns(session, _ALL_COLUMNS, job_id))


def load_result(session: Session, job_id: int) -> Any | None:
    """Return the result of a job, or None before it is done; raise NotFoundError if no such job."""
    return _load_columns(session, (JobRow.result,), job_id)[0]


def load_job_json(session: Session, job_id: int) -> tuple[str, str]:
    """Return the parameters and the result of a job as JSON texts, `null` for no result yet.

    Both may be megabytes, and need not be parsed to be passed on. Raises NotFoundError.
    """
    spec, result = _load_columns(
        session, (cast(JobRow.spec, Text), cast(JobRow.result, Text)), job_id
    )
    return spec, result or "null"


def list_jobs(
    session: Session,
    *,
    state: str | None = None,
    kind: str | None = None,
    after: int = 0,
    limit: int = PAGE_SIZE,
) -> Page[JobSummary]:
    """Return a page of jobs in the order enqueued, optionally in one state or of one kind."""
    query = select(*_SUMMARY).where(
        *equals_if_given(JobRow.state, state), *equals_if_given(JobRow.kind, kind)
    )
    return fetch_page(session, query, JobRow.id, JobSummary, after, limit)


@dataclass(frozen=True)
class JobLogEntry:
    """Something that happened while a job ran.

    data    the same for programs: `measured`, `next` or `bound` of a probe
    """

    id: int
    attempt: int
    at: datetime
    text: str
    data: Any | None


def list_job_log(
    session: Session, job_id: int, *, after: int = 0, limit: int = PAGE_SIZE
) -> Page[JobLogEntry]:
    """Return a page of the log of a job, oldest entry first; raise NotFoundError if no such job."""
    describe_job(session, job_id)
    columns = (JobLogRow.id, JobLogRow.attempt, JobLogRow.at, JobLogRow.text, JobLogRow.data)
    query = select(*columns).where(JobLogRow.job_id == job_id)
    return fetch_page(session, query, JobLogRow.id, JobLogEntry, after, limit)


def count_jobs(session: Session) -> dict[str, int]:
    """Return the number of jobs in every state."""
    found = session.execute(select(JobRow.state, func.count()).group_by(JobRow.state))
    return dict.fromkeys(STATES, 0) | {row[0]: row[1] for row in found}


def cancel_job(session: Session, job_id: int) -> JobSummary:
    """Cancel a queued job, or ask a running one to stop; a cancelled one stays cancelled.

    Raises NotFoundError, and ConflictError for a job that is done or failed.
    """
    queued = JobRow.state == QUEUED
    session.execute(  # one statement, since the state could change between two
        update(JobRow)
        .where(JobRow.id == job_id, JobRow.state.in_((QUEUED, RUNNING)))
        .values(
            state=case((queued, CANCELLED), else_=RUNNING),
            cancel_requested=~queued,
            ended_at=case((queued, database_now(session)), else_=None),
        )
    )
    job = describe_job(session, job_id)
    if job.state in (DONE, FAILED):
        raise ConflictError(f"job {job_id} is {job.state}: there is nothing left to cancel")
    return job


def _check_queue_limit(session: Session, by: str, limit: int) -> None:
    """Raise QueueFullError where a client has reached its limit.

    Its other requests wait until the end of this transaction.
    """
    advisory_lock(session.connection(), f"queue of {by}")
    own = (JobRow.state == QUEUED, JobRow.asked_by == by)
    if (session.scalar(select(func.count()).where(*own)) or 0) >= limit:
        raise QueueFullError(
            f"{by} has {plural(limit, 'queued job')} already, which is the limit: wait until one of"
            " them has started, or cancel one"
        )


def _load_columns(session: Session, columns: Sequence[Any], job_id: int) -> Row[*tuple[Any, ...]]:
    found = session.execute(select(*columns).where(JobRow.id == job_id)).one_or_none()
    if found is None:
        raise not_found(f"job {job_id}")
    return found
