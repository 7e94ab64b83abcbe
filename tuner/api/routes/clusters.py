"""Clusters, to which all other resources belong."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from tuner import db
from tuner.api.problems import problem_responses
from tuner.api.schemas import (
    API_PREFIX,
    MAX_INT32,
    Count,
    Name,
    Page,
    Pagination,
    PathId,
    RequestBody,
    SizeInBytes,
)
from tuner.api.service import ServiceDep
from tuner.core.measurement import Cluster

router = APIRouter(
    prefix=f"{API_PREFIX}/clusters", tags=["clusters"], responses=problem_responses()
)


class NewCluster(RequestBody):
    """A machine; two are the same if all of this is."""

    name: Name = Field(examples=["frontier"])
    nodes: Count = Field(examples=[9408])
    cores: Count = Field(description="per node", examples=[64])
    cpu: str = Field("", max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$", examples=["EPYC 7A53"])
    memory: SizeInBytes = Field(0, description="bytes per node", examples=[549755813888])


class StoredCluster(NewCluster):
    """A machine that is known."""

    id: int = Field(ge=1, le=MAX_INT32, examples=[1])


def _stored_cluster(number: int, cluster: Cluster) -> StoredCluster:
    return StoredCluster.model_construct(id=number, **asdict(cluster))


@router.post(
    "",
    status_code=201,
    responses=problem_responses(extra_responses={200: {"model": StoredCluster}}),
)
def create_cluster(service: ServiceDep, cluster: NewCluster, response: Response) -> StoredCluster:
    """Make a cluster known; 200 when it already was."""
    new = Cluster(**cluster.model_dump())
    with db.transaction(service.engine) as session:
        stored = db.store_cluster(session, new)
    response.status_code = 201 if stored.is_new else 200
    return _stored_cluster(stored.id, new)


@router.get("")
def list_clusters(
    service: ServiceDep, paging: Annotated[Pagination, Query()]
) -> Page[StoredCluster]:
    """All clusters."""
    with db.read_session(service.engine) as session:
        page = db.list_clusters(session, after=paging.after, limit=paging.limit)
    items = [_stored_cluster(item.id, item.cluster) for item in page.items]
    return Page[StoredCluster](items=items, next=page.next)


@router.get("/{cluster_id}", responses=problem_responses(404))
def get_cluster(service: ServiceDep, cluster_id: PathId) -> StoredCluster:
    """One cluster."""
    with db.read_session(service.engine) as session:
        return _stored_cluster(cluster_id, db.load_cluster(session, cluster_id))
