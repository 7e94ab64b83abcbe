"""Deleting what nobody needs any more: ended jobs and versions of tables.

Always kept are versions that were ever published, since the log of publications names them and
rolling back goes through all of them; versions that programs have reported on lately; and the
newest version of each cluster and library and the newest job: SQLite would give their numbers to
others, which caches and clients would take for them.
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
    ProofRow,
    PublicationRow,
    RuleRow,
    TableRow,
)
from tuner.db.transactions import hold, present, reading, transaction

JOBS_AT_ONCE = 50  # per transaction; each may have megabytes of results
IN_USE = timedelta(days=30)  # for which a version is kept after a program has reported on it


@dataclass(frozen=True)
class Retention:
    """What is kept: of each kind the newest ones, and none that is older; None for no limit.

    jobs, jobs_for          ended jobs, counted together; the time since they ended
    tables, tables_for      versions, counted for each cluster and library; since they were stored
    """

    jobs: int | None = None
    jobs_for: timedelta | None = None
    tables: int | None = None
    tables_for: timedelta | None = None

    @property
    def keeps_all(self) -> bool:
        """Return whether nothing is ever deleted."""
        return self == KEEP_ALL


KEEP_ALL = Retention()


@dataclass(frozen=True)
class Prunable:
    """What is to be deleted, or was: ids of jobs and versions of tables."""

    jobs: tuple[int, ...] = ()
    tables: tuple[int, ...] = ()


def prunable(session: Session, retention: Retention) -> Prunable:
    """Return all that is not to be kept."""
    jobs = session.scalars(_jobs(session, retention)).all()
    return Prunable(tuple(jobs), tuple(session.scalars(_versions(session, retention))))


def prune(engine: Engine, retention: Retention) -> Iterator[Prunable]:
    """Delete what is not to be kept; yield what each of many short transactions has deleted."""
    while jobs := _prune_jobs(engine, retention):
        yield Prunable(jobs=jobs)
    with reading(engine) as session:
        versions = session.scalars(_versions(session, retention)).all()
    for version in versions:
        if _prune_version(engine, retention, version):
            yield Prunable(tables=(version,))


def _prune_jobs(engine: Engine, retention: Retention) -> tuple[int, ...]:
    with transaction(engine) as session:
        jobs = session.scalars(_jobs(session, retention).limit(JOBS_AT_ONCE)).all()
        session.execute(delete(JobRow).where(JobRow.id.in_(jobs)))
    return tuple(jobs)


def _prune_version(engine: Engine, retention: Retention, version: int) -> bool:
    """Delete a version with all that is about it, unless it is to be kept by now."""
    with transaction(engine) as session:
        hold(session.connection(), "publications")
        session.get(TableRow, version, with_for_update=True)  # nothing more is said about it
        still = _versions(session, retention).where(TableRow.version == version)
        if session.scalar(still) is None:
            return False
        for row in (RuleRow, ProofRow, HeldoutRow, FeedbackRow, TableRow):
            session.execute(
                delete(row).where(row.version == version),
                execution_options={"synchronize_session": False},
            )
    return True


def _jobs(session: Session, retention: Retention) -> Any:
    """Return the query for ids of jobs, the oldest first."""
    ended = JobRow.state.in_((DONE, FAILED, CANCELLED))
    excess: list[ColumnElement[bool]] = [false()]
    if retention.jobs is not None:
        newest = select(JobRow.id).where(ended).order_by(JobRow.id.desc())
        excess.append(JobRow.id <= newest.offset(retention.jobs).limit(1).scalar_subquery())
    if retention.jobs_for is not None:
        excess.append(JobRow.ended_at < present(session) - retention.jobs_for)
    last = select(func.max(JobRow.id)).scalar_subquery()
    return select(JobRow.id).where(ended, or_(*excess), JobRow.id < last).order_by(JobRow.id)


def _versions(session: Session, retention: Retention) -> Any:
    """Return the query for versions, the oldest first."""
    now = present(session)
    newer = (
        func.row_number()
        .over(partition_by=(ClusterRow.name, TableRow.library), order_by=TableRow.version.desc())
        .label("number")
    )
    ranked = select(TableRow.version, newer).join(ClusterRow).subquery()
    excess: list[ColumnElement[bool]] = [false()]
    if retention.tables is not None:
        excess.append(ranked.c.number > retention.tables)
    if retention.tables_for is not None:
        excess.append(TableRow.stored_at < now - retention.tables_for)
    published = exists().where(PublicationRow.version == TableRow.version)
    in_use = exists().where(
        FeedbackRow.version == TableRow.version, FeedbackRow.stored_at > now - IN_USE
    )
    return (
        select(TableRow.version)
        .join(ranked, ranked.c.version == TableRow.version)
        .where(or_(*excess), ranked.c.number > 1, ~published, ~in_use)
        .order_by(TableRow.version)
    )
