"""Stored topologies: the uploaded text and the record that was read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.db.db_errors import not_found
from tuner.db.deduplication import InsertResult, content_digest, insert_if_absent
from tuner.db.models import TopologyRow
from tuner.db.pagination import PAGE_SIZE, Page, fetch_page


@dataclass(frozen=True)
class TopologySummary:
    """The metadata of a stored topology."""

    id: int
    name: str
    format: str
    digest: str
    stored_at: datetime


@dataclass(frozen=True)
class StoredTopology(TopologySummary):
    """A topology with its record, the one form that every format becomes."""

    record: Mapping[str, Any]


@dataclass(frozen=True)
class TopologyFile(StoredTopology):
    """A topology with the uploaded text."""

    source: str


_SUMMARY = (
    TopologyRow.id,
    TopologyRow.name,
    TopologyRow.format,
    TopologyRow.digest,
    TopologyRow.stored_at,
)


def store_topology(
    session: Session, name: str, format_name: str, source: str, record: Mapping[str, Any]
) -> InsertResult:
    """Store a topology, once per name, format and text."""
    values = {
        "name": name,
        "format": format_name,
        "source": source,
        "record": dict(record),
        "digest": content_digest([name, format_name, source]),
    }
    return insert_if_absent(session, TopologyRow.id, values, "digest")


def load_topology(session: Session, topology_id: int) -> TopologyFile:
    """Return a topology by its id; raise NotFoundError if there is none."""
    query = select(*_SUMMARY, TopologyRow.record, TopologyRow.source)
    found = session.execute(query.where(TopologyRow.id == topology_id)).one_or_none()
    if found is None:
        raise not_found(f"topology {topology_id}")
    return TopologyFile(*found)


def list_topologies(
    session: Session, *, after: int = 0, limit: int = PAGE_SIZE
) -> Page[TopologySummary]:
    """Return a page of topologies in the order stored."""
    return fetch_page(session, select(*_SUMMARY), TopologyRow.id, TopologySummary, after, limit)
