"""Publications: which version of a table is in force, and which ones were."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from tuner import db
from tuner.api.problems import documented
from tuner.api.schemas import MOMENT, PREFIX, Body, ByMachine, Id, Name, Page, example
from tuner.api.service import Asking, Serving

router = APIRouter(prefix=f"{PREFIX}/publications", tags=["publications"], responses=documented())


class Publish(Body):
    """Which version to publish."""

    version: Id = Field(examples=[3])


class RollBack(Body):
    """Whose publication to take back."""

    cluster: Name = Field(examples=["one"])
    library: Name = Field(examples=["openmpi 5.0.11"])


class Publication(BaseModel):
    """One entry of the history."""

    model_config = example(
        id=2,
        version=3,
        cluster="ares",
        library="openmpi 5.0.11",
        published_at=MOMENT,
        by="operator",
        restores=None,
    )

    id: int
    version: int
    cluster: str
    library: str
    published_at: datetime
    by: str
    restores: int | None = Field(description="the publication that a rollback went back to")


@router.post("", status_code=201, response_model=Publication, responses=documented(404))
def publish(service: Serving, wanted: Publish, client: Asking) -> Any:
    """Publish a version for the cluster and the library that it is for."""
    with db.transaction(service.engine) as session:
        done = db.publish(session, wanted.version, by=client.name)
    service.notice()
    return done


@router.post(
    "/rollback", status_code=201, response_model=Publication, responses=documented(404, 409)
)
def roll_back(service: Serving, wanted: RollBack, client: Asking) -> Any:
    """Publish again what was published before the present version; 409 when nothing was."""
    with db.transaction(service.engine) as session:
        done = db.roll_back(session, wanted.cluster, wanted.library, by=client.name)
    service.notice()
    return done


@router.get("", response_model=Page[Publication])
def listing(service: Serving, query: Annotated[ByMachine, Query()]) -> Any:
    """The history, oldest first."""
    with db.reading(service.engine) as session:
        return db.list_publications(session, **query.model_dump())
