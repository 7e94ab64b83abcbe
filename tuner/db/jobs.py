"""Jobs as those see them who ask for them: put in, looked at, cancelled.

queued -> running -> done | failed | cancelled; a queued one can be cancelled at once, a running one
is asked to stop. How runners get and keep them is in `queue`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import case, func, select, update
from sqlalchemy.orm import Session

from tuner.db.mapping import JobRow
from tuner.db.pages import PAGE, Page, only, page_of
from tuner.db.refusals import ConflictError, NotFoundError
from tuner.db.transactions import present

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
STATES = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)


@dataclass(frozen=True)
class JobSummary:
    """What a list says of a job; `attempts` counts how often it was begun."""

    id: int
    kind: str
    state: str
    progress: float  # 0 to 1
    text: str
    attempts: int
    error: str | None
    cancel_requested: bool
    by: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def ended(self) -> bool:
        """Nothing will change any more."""
        return self.state in (DONE, FAILED, CANCELLED)


@dataclass(frozen=True)
class Job(JobSummary):
    """With what was asked for, but without its result: both may be large."""

    spec: Mapping[str, Any]


_SUMMARY = (
    JobRow.id, JobRow.kind, JobRow.state, JobRow.progress, JobRow.text,
    JobRow.attempt, JobRow.error, JobRow.cancel_requested, JobRow.asked_by, JobRow.created_at,
    JobRow.started_at, JobRow.ended_at,
)  # fmt: skip
_WHOLE = (*_SUMMARY, JobRow.spec)


def enqueue(session: Session, kind: str, spec: Mapping[str, Any], by: str = "") -> int:
    """The id of a new job, which a runner gets once this transaction is committed."""
    row = JobRow(kind=kind, spec=dict(spec), asked_by=by, created_at=present(session))
    session.add(row)
    session.flush()
    return row.id


def load_job(session: Session, job_id: int) -> Job:
    """Raises NotFoundError."""
    found = session.execute(select(*_WHOLE).where(JobRow.id == job_id)).one_or_none()
    if found is None:
        raise NotFoundError(f"the database has no job {job_id}")
    return Job(*found)


def load_result(session: Session, job_id: int) -> Any | None:
    """What a job that is done produced; None before that. Raises NotFoundError."""
    found = session.execute(select(JobRow.result).where(JobRow.id == job_id)).one_or_none()
    if found is None:
        raise NotFoundError(f"the database has no job {job_id}")
    return found[0]


def list_jobs(
    session: Session,
    *,
    state: str | None = None,
    kind: str | None = None,
    after: int = 0,
    limit: int = PAGE,
) -> Page[JobSummary]:
    """In the order in which they were asked for; in one state or of one kind, if asked for."""
    query = select(*_SUMMARY).where(*only(JobRow.state, state), *only(JobRow.kind, kind))
    return page_of(session, query, JobRow.id, JobSummary, after, limit)


def count_jobs(session: Session) -> dict[str, int]:
    """How many there are in every state."""
    found = session.execute(select(JobRow.state, func.count()).group_by(JobRow.state))
    return dict.fromkeys(STATES, 0) | {row[0]: row[1] for row in found}


def cancel_job(session: Session, job_id: int) -> Job:
    """A queued job is cancelled, a running one is asked to stop, a cancelled one stays so.

    Raises NotFoundError, and ConflictError for a job that is done or failed.
    """
    queued = JobRow.state == QUEUED
    session.execute(  # one statement: between two the job could pass from one state to the other
        update(JobRow)
        .where(JobRow.id == job_id, JobRow.state.in_((QUEUED, RUNNING)))
        .values(
            state=case((queued, CANCELLED), else_=RUNNING), cancel_requested=~queued,
            ended_at=case((queued, present(session)), else_=None),
        )
    )  # fmt: skip
    job = load_job(session, job_id)
    if job.state in (DONE, FAILED):
        raise ConflictError(f"job {job_id} is {job.state}: there is nothing left to cancel")
    return job
