"""Publications: which version of a table is in force, and which versions were before."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from tuner import db
from tuner.api.problems import problem_responses
from tuner.api.schemas import (
    API_PREFIX,
    EXAMPLE_TIMESTAMP,
    ClusterLibraryFilter,
    Id,
    Name,
    Page,
    RequestBody,
    set_example,
)
from tuner.api.service import ClientDep, ServiceDep

router = APIRouter(
    prefix=f"{API_PREFIX}/publications", tags=["publications"], responses=problem_responses()
)


class PublishRequest(RequestBody):
    """The version to publish."""

    version: Id = Field(examples=[3])


class RollbackRequest(RequestBody):
    """Whose publication to take back."""

    cluster: Name = Field(examples=["one"])
    library: Name = Field(examples=["openmpi 5.0.11"])


set_example(
    db.Publication,
    id=2,
    version=3,
    cluster="ares",
    library="openmpi 5.0.11",
    published_at=EXAMPLE_TIMESTAMP,
    by="operator",
    restores=None,
)


@router.post("", status_code=201, response_model=db.Publication, responses=problem_responses(404))
def create_publication(service: ServiceDep, wanted: PublishRequest, client: ClientDep) -> Any:
    """Publish a version for the cluster and the library that it is for."""
    with db.transaction(service.engine) as session:
        done = db.publish(session, wanted.version, by=client.name)
    service.refresh_published()
    return done


@router.post(
    "/rollback",
    status_code=201,
    response_model=db.Publication,
    responses=problem_responses(404, 409),
)
def roll_back(service: ServiceDep, wanted: RollbackRequest, client: ClientDep) -> Any:
    """Publish again what was published before the present version; 409 when nothing was."""
    with db.transaction(service.engine) as session:
        done = db.roll_back(session, wanted.cluster, wanted.library, by=client.name)
    service.refresh_published()
    return done


@router.get("", response_model=Page[db.Publication])
def list_publications(service: ServiceDep, query: Annotated[ClusterLibraryFilter, Query()]) -> Any:
    """The history, oldest first."""
    with db.read_session(service.engine) as session:
        return db.list_publications(session, **query.model_dump())
