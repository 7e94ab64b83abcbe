"""Clusters: the machines that everything else belongs to."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from tuner import db
from tuner.api.problems import documented
from tuner.api.schemas import MOST, PREFIX, Body, Count, IdInPath, Name, Page, Paging, Size
from tuner.api.service import Serving
from tuner.core.measurement import Cluster

router = APIRouter(prefix=f"{PREFIX}/clusters", tags=["clusters"], responses=documented())


class NewCluster(Body):
    """A machine; two are the same if all of this is."""

    name: Name = Field(examples=["frontier"])
    nodes: Count = Field(examples=[9408])
    cores: Count = Field(description="per node", examples=[64])
    cpu: str = Field("", max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$", examples=["EPYC 7A53"])
    memory: Size = Field(0, description="bytes per node", examples=[549755813888])


class StoredCluster(NewCluster):
    """A machine that is known."""

    id: int = Field(ge=1, le=MOST, examples=[1])


def _shown(number: int, cluster: Cluster) -> StoredCluster:
    return StoredCluster.model_construct(id=number, **asdict(cluster))


@router.post("", status_code=201, responses=documented(also={200: {"model": StoredCluster}}))
def store(service: Serving, cluster: NewCluster, response: Response) -> StoredCluster:
    """Make a cluster known; 200 when it already was."""
    new = Cluster(**cluster.model_dump())
    with db.transaction(service.engine) as session:
        stored = db.store_cluster(session, new)
    response.status_code = 201 if stored.new else 200
    return _shown(stored.id, new)


@router.get("")
def listing(service: Serving, paging: Annotated[Paging, Query()]) -> Page[StoredCluster]:
    """All clusters."""
    with db.reading(service.engine) as session:
        page = db.list_clusters(session, after=paging.after, limit=paging.limit)
    items = [_shown(item.id, item.cluster) for item in page.items]
    return Page[StoredCluster](items=items, next=page.next)


@router.get("/{cluster_id}", responses=documented(404))
def one(service: Serving, cluster_id: IdInPath) -> StoredCluster:
    """One cluster."""
    with db.reading(service.engine) as session:
        return _shown(cluster_id, db.load_cluster(session, cluster_id))
