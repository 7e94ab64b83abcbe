"""Clusters, to which all other resources belong."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from tuner import db
from tuner.api.problems import problem_responses
from tuner.api.schemas import (
    API_PREFIX,
    Count,
    Name,
    Page,
    Pagination,
    PathId,
    RequestBody,
    SizeInBytes,
    set_example,
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


set_example(
    db.StoredCluster, name="frontier", nodes=9408, cores=64, cpu="EPYC 7A53", memory=2**39, id=1
)


@router.post(
    "",
    status_code=201,
    responses=problem_responses(extra_responses={200: {"model": db.StoredCluster}}),
)
def create_cluster(
    service: ServiceDep, cluster: NewCluster, response: Response
) -> db.StoredCluster:
    """Make a cluster known; 200 when it already was."""
    new = cluster.model_dump()
    with db.transaction(service.engine) as session:
        stored = db.store_cluster(session, Cluster(**new))
    response.status_code = 201 if stored.is_new else 200
    return db.StoredCluster(**new, id=stored.id)


@router.get("", response_model=Page[db.StoredCluster])
def list_clusters(service: ServiceDep, paging: Annotated[Pagination, Query()]) -> Any:
    """All clusters."""
    with db.read_session(service.engine) as session:
        return db.list_clusters(session, after=paging.after, limit=paging.limit)


@router.get("/{cluster_id}", responses=problem_responses(404))
def get_cluster(service: ServiceDep, cluster_id: PathId) -> db.StoredCluster:
    """One cluster."""
    with db.read_session(service.engine) as session:
        return db.StoredCluster(**asdict(db.load_cluster(session, cluster_id)), id=cluster_id)
