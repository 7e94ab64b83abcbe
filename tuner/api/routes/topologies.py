"""Topologies: uploaded in any format that can be read, and kept as uploaded."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from tuner import db
from tuner.api.bodies import Raw, accepts, text_of
from tuner.api.large_requests import LargeBodyRoute
from tuner.api.problems import Problem, documented, text
from tuner.api.resolve import topology_named
from tuner.api.schemas import (
    DIGEST,
    MOMENT,
    PREFIX,
    IdInPath,
    Page,
    Paging,
    Parameters,
    Word,
    example,
)
from tuner.api.service import Serving
from tuner.machines.topology_files import FORMATS, parse_topology
from tuner.topology.readers import topology_record

router = APIRouter(
    prefix=f"{PREFIX}/topologies",
    tags=["topologies"],
    responses=documented(),
    route_class=LargeBodyRoute,
)
EXAMPLE = "name: flat64\nnodes: 64\nlatency: 2us\nbandwidth: 12.5GB/s\n"


class Known(Parameters):
    """What is known about an uploaded file."""

    format: Word | None = Field(None, examples=["yaml"], description="left out: its content tells")


class TopologySummary(BaseModel):
    """What a list says about a topology."""

    model_config = example(id=1, name="flat64", format="yaml", digest=DIGEST, stored_at=MOMENT)

    id: int
    name: str
    format: str
    digest: str
    stored_at: datetime


class Topology(TopologySummary):
    """A topology in the one form that every format becomes."""

    model_config = example(
        id=1,
        name="flat64",
        format="yaml",
        digest=DIGEST,
        stored_at=MOMENT,
        record={"kind": "topology", "version": 2, "name": "flat64", "nodes": [], "links": []},
    )

    record: dict[str, Any]


@router.post(
    "",
    status_code=201,
    response_model=TopologySummary,
    responses=documented(also={200: {"model": TopologySummary}}),
    openapi_extra=accepts(
        {"application/yaml": EXAMPLE, "application/xml": None, "text/plain": None}
    ),
)
def store(service: Serving, body: Raw, response: Response, known: Annotated[Known, Query()]) -> Any:
    """Store a topology file; 200 when it was already there.

    A YAML text with `combine` names topologies that are stored here by their ids.
    """
    if known.format is not None and known.format not in FORMATS:
        raise Problem(422, f"format must be one of {', '.join(FORMATS)}")
    source = text_of(body)
    found, topology = parse_topology(source, known.format, partial(topology_named, service.engine))
    with db.transaction(service.engine) as session:
        stored = db.store_topology(session, topology.name, found, source, topology_record(topology))
        response.status_code = 201 if stored.new else 200
        return db.load_topology(session, stored.id)


@router.get("", response_model=Page[TopologySummary])
def listing(service: Serving, paging: Annotated[Paging, Query()]) -> Any:
    """All topologies."""
    with db.reading(service.engine) as session:
        return db.list_topologies(session, after=paging.after, limit=paging.limit)


@router.get("/{topology_id}", response_model=Topology, responses=documented(404))
def one(service: Serving, topology_id: IdInPath) -> Any:
    """One topology."""
    with db.reading(service.engine) as session:
        return db.load_topology(session, topology_id)


@router.get(
    "/{topology_id}/source",
    response_class=Response,
    responses=documented(404, also=text("text/plain")),
)
def source(service: Serving, topology_id: IdInPath) -> Response:
    """The file as it was uploaded."""
    with db.reading(service.engine) as session:
        stored = db.load_topology(session, topology_id)
    return Response(stored.source, media_type="text/plain")
