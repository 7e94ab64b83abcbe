"""Clusters."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.core.measurement import Cluster
from tuner.db.db_errors import NotFoundError
from tuner.db.deduplication import Stored, store_once
from tuner.db.models import ClusterRow
from tuner.db.pagination import PAGE, Page, page_of


@dataclass(frozen=True)
class StoredCluster:
    """A cluster and its id."""

    id: int
    cluster: Cluster


def store_cluster(session: Session, cluster: Cluster) -> Stored:
    """Equal clusters have one id."""
    values = asdict(cluster)
    return store_once(session, ClusterRow.id, values, *values)


def load_cluster(session: Session, cluster_id: int) -> Cluster:
    """Raises NotFoundError."""
    row = session.get(ClusterRow, cluster_id)
    if row is None:
        raise NotFoundError(f"the database has no cluster {cluster_id}")
    return cluster_of(row)


def list_clusters(session: Session, *, after: int = 0, limit: int = PAGE) -> Page[StoredCluster]:
    """In the order stored."""
    query = select(ClusterRow.id, ClusterRow)
    return page_of(session, query, ClusterRow.id, _stored, after, limit)


def cluster_of(row: ClusterRow) -> Cluster:
    """What the row says."""
    return Cluster(row.name, row.nodes, row.cores, row.cpu, row.memory)


def _stored(number: int, row: ClusterRow) -> StoredCluster:
    return StoredCluster(number, cluster_of(row))
