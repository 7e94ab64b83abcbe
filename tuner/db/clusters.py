"""Stored clusters."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.core.measurement import Cluster
from tuner.db.db_errors import not_found
from tuner.db.deduplication import InsertResult, insert_if_absent
from tuner.db.models import ClusterRow
from tuner.db.pagination import PAGE_SIZE, Page, fetch_page


@dataclass(frozen=True)
class StoredCluster(Cluster):
    """A cluster and its id."""

    id: int


def store_cluster(session: Session, cluster: Cluster) -> InsertResult:
    """Store a cluster; equal clusters share one id."""
    values = asdict(cluster)
    return insert_if_absent(session, ClusterRow.id, values, *values)


def load_cluster(session: Session, cluster_id: int) -> Cluster:
    """Return a cluster by its id; raise NotFoundError if there is none."""
    row = session.get(ClusterRow, cluster_id)
    if row is None:
        raise not_found(f"cluster {cluster_id}")
    return cluster_from_row(row)


def list_clusters(
    session: Session, *, after: int = 0, limit: int = PAGE_SIZE
) -> Page[StoredCluster]:
    """Return a page of clusters in the order stored."""
    query = select(ClusterRow.id, ClusterRow)
    return fetch_page(session, query, ClusterRow.id, _stored_cluster, after, limit)


def cluster_from_row(row: ClusterRow) -> Cluster:
    """Return the cluster of a row."""
    return Cluster(row.name, row.nodes, row.cores, row.cpu, row.memory)


def _stored_cluster(number: int, row: ClusterRow) -> StoredCluster:
    return StoredCluster(**asdict(cluster_from_row(row)), id=number)
