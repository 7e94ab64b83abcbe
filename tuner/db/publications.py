"""Publications: an append-only log whose last entry for a cluster and library is in force.

A rollback appends an entry too, which records the earlier entry that it restores, so that a
second rollback goes one entry further back instead of undoing the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from tuner.db.db_errors import ConflictError
from tuner.db.models import PublicationRow
from tuner.db.pagination import PAGE_SIZE, Page, equals_if_given, fetch_page
from tuner.db.tables import describe_table
from tuner.db.transactions import advisory_lock

_COLUMNS = (
    PublicationRow.id,
    PublicationRow.version,
    PublicationRow.cluster,
    PublicationRow.library,
    PublicationRow.published_at,
    PublicationRow.published_by,
    PublicationRow.restores,
)


@dataclass(frozen=True)
class Publication:
    """An entry of the log; `restores` is the id of the entry that a rollback restored, or None."""

    id: int
    version: int
    cluster: str
    library: str
    published_at: datetime
    by: str
    restores: int | None


def publish(session: Session, version: int, by: str = "") -> Publication:
    """Put a version in force for its cluster and library; do nothing if it is already.

    Raises NotFoundError where there is no such version.
    """
    advisory_lock(session.connection(), "publications")
    table = describe_table(session, version)
    current = current_publication(session, table.cluster, table.library)
    if current is not None and current.version == version:
        return current
    return _append(session, version, table.cluster, table.library, by, None)


def roll_back(session: Session, cluster: str, library: str, by: str = "") -> Publication:
    """Put the version in force that preceded the current one.

    Raises ConflictError where there is none.
    """
    advisory_lock(session.connection(), "publications")
    current = current_publication(session, cluster, library)
    if current is None:
        raise ConflictError(f"publish a table for {cluster} and {library} first: none is published")
    first = current.id if current.restores is None else current.restores
    before = _last(session, _of(cluster, library).where(PublicationRow.id < first))
    if before is None:
        raise ConflictError(
            f"nothing was published for {cluster} and {library} before version {current.version}"
        )
    origin = before.id if before.restores is None else before.restores
    return _append(session, before.version, cluster, library, by, origin)


def current_publication(session: Session, cluster: str, library: str) -> Publication | None:
    """Return the publication in force, or None before the first one."""
    return _last(session, _of(cluster, library))


def current_publications(session: Session) -> list[Publication]:
    """Return the publications in force for every cluster and library."""
    newest = select(func.max(PublicationRow.id)).group_by(
        PublicationRow.cluster, PublicationRow.library
    )
    query = select(*_COLUMNS).where(PublicationRow.id.in_(newest)).order_by(PublicationRow.id)
    return [Publication(*row) for row in session.execute(query)]


def newest_publication_id(session: Session) -> int:
    """Return the greatest id, or 0; it changes with every publication."""
    return session.scalar(select(func.max(PublicationRow.id))) or 0


def list_publications(
    session: Session,
    *,
    cluster: str | None = None,
    library: str | None = None,
    after: int = 0,
    limit: int = PAGE_SIZE,
) -> Page[Publication]:
    """Return a page of the log, oldest entry first."""
    query = select(*_COLUMNS).where(
        *equals_if_given(PublicationRow.cluster, cluster),
        *equals_if_given(PublicationRow.library, library),
    )
    return fetch_page(session, query, PublicationRow.id, Publication, after, limit)


def _of(cluster: str, library: str) -> Select[int]:
    return select(PublicationRow.id).where(
        PublicationRow.cluster == cluster, PublicationRow.library == library
    )


def _last(session: Session, entries: Select[int]) -> Publication | None:
    newest = entries.order_by(PublicationRow.id.desc()).limit(1)
    found = session.execute(select(*_COLUMNS).where(PublicationRow.id.in_(newest))).one_or_none()
    return None if found is None else Publication(*found)


def _append(
    session: Session, version: int, cluster: str, library: str, by: str, restores: int | None
) -> Publication:
    row = PublicationRow(
        version=version, cluster=cluster, library=library, published_by=by, restores=restores
    )
    session.add(row)
    session.flush()
    return Publication(row.id, version, cluster, library, row.published_at, by, restores)
