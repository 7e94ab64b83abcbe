"""Topologies, which are uploaded in any supported format and stored as uploaded."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from tuner import db
from tuner.api.bodies import RawBody, decode_body, request_body_docs
from tuner.api.large_requests import LargeBodyRoute
from tuner.api.problems import Problem, problem_responses, text_response_docs
from tuner.api.resolve import resolve_topology
from tuner.api.schemas import (
    API_PREFIX,
    EXAMPLE_DIGEST,
    EXAMPLE_TIMESTAMP,
    Identifier,
    Page,
    Pagination,
    PathId,
    QueryParameters,
    set_example,
)
from tuner.api.service import ServiceDep
from tuner.machines.topology_files import TOPOLOGY_FORMATS, detect_topology_format, parse_topology
from tuner.topology.readers import topology_to_record
from tuner.topology.readers.safe_yaml import MAX_BYTES, require_yaml_length


class TopologyRoute(LargeBodyRoute):
    """A route that refuses YAML by its length before a worker starts and parses it."""

    def refuse_body(self, request: Request, path: Path) -> None:
        """Raise InputError for YAML that is too long."""
        nbytes = path.stat().st_size
        if nbytes <= MAX_BYTES:
            return
        named = request.query_params.get("format")
        if (named or detect_topology_format(path.read_text("utf-8", "replace"))) == "yaml":
            require_yaml_length(nbytes)


router = APIRouter(
    prefix=f"{API_PREFIX}/topologies",
    tags=["topologies"],
    responses=problem_responses(),
    route_class=TopologyRoute,
)
EXAMPLE = "name: flat64\nnodes: 64\nlatency: 2us\nbandwidth: 12.5GB/s\n"


class TopologyQuery(QueryParameters):
    """Metadata of an uploaded file."""

    format: Identifier | None = Field(
        None, examples=["yaml"], description="left out: its content tells"
    )


EXAMPLE_SUMMARY = {
    "id": 1,
    "name": "flat64",
    "format": "yaml",
    "digest": EXAMPLE_DIGEST,
    "stored_at": EXAMPLE_TIMESTAMP,
}
set_example(db.TopologySummary, **EXAMPLE_SUMMARY)
set_example(
    db.StoredTopology,
    **EXAMPLE_SUMMARY,
    record={"kind": "topology", "version": 2, "name": "flat64", "nodes": [], "links": []},
)


@router.post(
    "",
    status_code=201,
    response_model=db.TopologySummary,
    responses=problem_responses(extra_responses={200: {"model": db.TopologySummary}}),
    openapi_extra=request_body_docs(
        {"application/yaml": EXAMPLE, "application/xml": None, "text/plain": None}
    ),
)
def create_topology(
    service: ServiceDep, body: RawBody, response: Response, known: Annotated[TopologyQuery, Query()]
) -> Any:
    """Store a topology file; 200 when it was already there.

    A YAML text with `combine` names topologies that are stored here by their ids.
    """
    if known.format is not None and known.format not in TOPOLOGY_FORMATS:
        raise Problem(422, f"format must be one of {', '.join(TOPOLOGY_FORMATS)}")
    source = decode_body(body)
    found, topology = parse_topology(
        source, known.format, partial(resolve_topology, service.engine)
    )
    with db.transaction(service.engine) as session:
        stored = db.store_topology(
            session, topology.name, found, source, topology_to_record(topology)
        )
        response.status_code = 201 if stored.is_new else 200
        return db.load_topology(session, stored.id)


@router.get("", response_model=Page[db.TopologySummary])
def list_topologies(service: ServiceDep, paging: Annotated[Pagination, Query()]) -> Any:
    """All topologies."""
    with db.read_session(service.engine) as session:
        return db.list_topologies(session, after=paging.after, limit=paging.limit)


@router.get("/{topology_id}", response_model=db.StoredTopology, responses=problem_responses(404))
def get_topology(service: ServiceDep, topology_id: PathId) -> Any:
    """One topology."""
    with db.read_session(service.engine) as session:
        return db.load_topology(session, topology_id)


@router.get(
    "/{topology_id}/source",
    response_class=Response,
    responses=problem_responses(404, extra_responses=text_response_docs("text/plain")),
)
def get_source(service: ServiceDep, topology_id: PathId) -> Response:
    """The file as it was uploaded."""
    with db.read_session(service.engine) as session:
        stored = db.load_topology(session, topology_id)
    return Response(stored.source, media_type="text/plain")
