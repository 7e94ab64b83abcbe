"""Deletion of expired jobs and versions of tables.

The following are never deleted: versions that were ever published, since the log of publications
names them and a rollback may return to them; versions that programs have reported on recently;
and the newest version of each cluster and library and the newest job, because SQLite would reuse
their ids, which caches and clients would take for the old ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Engine, delete, exists, false, func, or_, select
from sqlalchemy.orm import Session

from tuner.db.jobs import CANCELLED, DONE, FAILED
from tuner.db.models import (
    ClusterRow,
    FeedbackRow,
    HeldoutRow,
    JobRow,
    PublicationRow,
    RuleRow,
    TableRow,
    ValidationRow,
)
from tuner.db.transactions import advisory_lock, database_now, read_session, transaction

JOBS_PER_TRANSACTION = 50  # jobs deleted per transaction; each may have megabytes of results
IN_USE_PERIOD = timedelta(days=30)  # how long a version is kept after a report


@dataclass(frozen=True)
class Retention:
    """Limits on how many ended jobs and versions are kept, and for how long; None means no limit.

    max_jobs        newest ended jobs that are kept, of all kinds together
    max_job_age     time since a job ended
    max_tables      newest versions that are kept for each cluster and library
    max_table_age   time since a version was stored
    """

    max_jobs: int | None = None
    max_job_age: timedelta | None = None
    max_tables: int | None = None
    max_table_age: timedelta | None = None

    @property
    def keeps_all(self) -> bool:
        return self == KEEP_ALL


KEEP_ALL = Retention()


@dataclass(frozen=True)
class Prunable:
    """The ids of jobs and versions of tables that are to be deleted, or were."""

    jobs: tuple[int, ...] = ()
    tables: tuple[int, ...] = ()


def find_prunable(session: Session, retention: Retention) -> Prunable:
    """Return everything that these limits delete."""
    jobs = session.scalars(_prunable_jobs(session, retention)).all()
    return Prunable(tuple(jobs), tuple(session.scalars(_prunable_versions(session, retention))))


def prune(engine: Engine, retention: Retention) -> Iterator[Prunable]:
    """Delete what exceeds the limits; yield what each of many short transactions has deleted."""
    while jobs := _prune_jobs(engine, retention):
        yield Prunable(jobs=jobs)
    with read_session(engine) as session:
        versions = session.scalars(_prunable_versions(session, retention)).all()
    for version in versions:
        if _prune_version(engine, retention, version):
            yield Prunable(tables=(version,))


def _prune_jobs(engine: Engine, retention: Retention) -> tuple[int, ...]:
    with transaction(engine) as session:
        jobs = session.scalars(_prunable_jobs(session, retention).limit(JOBS_PER_TRANSACTION)).all()
        session.execute(delete(JobRow).where(JobRow.id.in_(jobs)))
    return tuple(jobs)


def _prune_version(engine: Engine, retention: Retention, version: int) -> bool:
    """Delete a version with all its records and return True, unless it must be kept by now."""
    with transaction(engine) as session:
        advisory_lock(session.connection(), "publications")
        session.get(TableRow, version, with_for_update=True)  # nobody can add records about it
        still = _prunable_versions(session, retention).where(TableRow.version == version)
        if session.scalar(still) is None:
            return False
        for row in (RuleRow, ValidationRow, HeldoutRow, FeedbackRow, TableRow):
            session.execute(
                delete(row).where(row.version == version),
                execution_options={"synchronize_session": False},
            )
    return True


def _prunable_jobs(session: Session, retention: Retention) -> Any:
    """Return the query for ids of jobs, oldest first."""
    ended = JobRow.state.in_((DONE, FAILED, CANCELLED))
    excess: list[ColumnElement[bool]] = [false()]
    if retention.max_jobs is not None:
        newest = select(JobRow.id).where(ended).order_by(JobRow.id.desc())
        excess.append(JobRow.id <= newest.offset(retention.max_jobs).limit(1).scalar_subquery())
    if retention.max_job_age is not None:
        excess.append(JobRow.ended_at < database_now(session) - retention.max_job_age)
    last = select(func.max(JobRow.id)).scalar_subquery()
    return select(JobRow.id).where(ended, or_(*excess), JobRow.id < last).order_by(JobRow.id)


def _prunable_versions(session: Session, retention: Retention) -> Any:
    """Return the query for versions, oldest first."""
    now = database_now(session)
    newer = (
        func.row_number()
        .over(partition_by=(ClusterRow.name, TableRow.library), order_by=TableRow.version.desc())
        .label("number")
    )
    ranked = select(TableRow.version, newer).join(ClusterRow).subquery()
    excess: list[ColumnElement[bool]] = [false()]
    if retention.max_tables is not None:
        excess.append(ranked.c.number > retention.max_tables)
    if retention.max_table_age is not None:
        excess.append(TableRow.stored_at < now - retention.max_table_age)
    published = exists().where(PublicationRow.version == TableRow.version)
    in_use = exists().where(
        FeedbackRow.version == TableRow.version, FeedbackRow.stored_at > now - IN_USE_PERIOD
    )
    return (
        select(TableRow.version)
        .join(ranked, ranked.c.version == TableRow.version)
        .where(or_(*excess), ranked.c.number > 1, ~published, ~in_use)
        .order_by(TableRow.version)
    )
