"""Measurements: probes as `tuner probe` writes them, in bulk and only once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from tuner import db
from tuner.api.bodies import accepts
from tuner.api.problems import documented, text
from tuner.api.schemas import (
    DIGEST,
    MOMENT,
    PREFIX,
    ByMachine,
    IdInPath,
    Name,
    Page,
    Paging,
    Size,
    example,
)
from tuner.api.service import Service, Serving
from tuner.api.uploads import body_on_disk, ingest_file
from tuner.core.collective import Collective

router = APIRouter(prefix=f"{PREFIX}/measurements", tags=["measurements"], responses=documented())
NDJSON = "application/x-ndjson"
PIECE = 500  # lines that are sent together
EXAMPLE = (
    '{"kind": "probe", "version": 1, "cluster": {"name": "one", "nodes": 1, "cores": 4, "cpu": "",'
    ' "memory": 0}, "library": "openmpi 5.0.11", "provenance": {}}\n'
    '{"kind": "collective", "subject": "bcast", "nodes": 1, "ppn": 4, "p": 4, "nbytes": 1024,'
    ' "samples": [1.5e-06, 1.4e-06], "algorithm": "binomial", "params": {}, "memory": "host",'
    ' "launch": 0}\n{"kind": "end", "lines": 1}\n'
)


class Measurements(BaseModel):
    """What is known about a probe; its series are a resource of their own."""

    model_config = example(
        id=1,
        digest=DIGEST,
        series=1200,
        cluster="ares",
        library="openmpi 5.0.11",
        provenance={"seed": 1},
        stored_at=MOMENT,
    )

    id: int
    digest: str
    series: int = Field(description="how many")
    cluster: str
    library: str
    provenance: dict[str, Any]
    stored_at: datetime


class Series(BaseModel):
    """Timings of one thing; samples in seconds, in the order taken."""

    model_config = example(
        kind="collective",
        subject="bcast",
        nodes=1,
        ppn=4,
        p=4,
        nbytes=1024,
        samples=[1.5e-06, 1.4e-06],
        algorithm="binomial",
        params={},
        memory="host",
        launch=0,
        placement="consecutive",
    )

    kind: str
    subject: str
    nodes: int
    ppn: int
    p: int
    nbytes: int
    samples: list[float]
    algorithm: str
    params: dict[str, int]
    memory: str
    launch: int
    placement: str


class SeriesQuery(Paging):
    """Which series of a probe."""

    collective: Collective | None = None
    p: Annotated[int, Field(ge=1)] | None = None
    nbytes: Size | None = None
    algorithm: Name | None = None


@router.post(
    "",
    status_code=201,
    response_model=Measurements,
    responses=documented(also={200: {"model": Measurements}}),
    openapi_extra=accepts({NDJSON: EXAMPLE}),
)
async def ingest(service: Serving, request: Request, response: Response) -> Any:
    """Store a file of `tuner probe`; 200 when it was already there.

    An upload that was interrupted can simply be sent again: nothing is stored twice.
    """
    async with body_on_disk(request) as path:
        stored, described = await to_thread.run_sync(
            _ingest, service, path, limiter=service.uploads
        )
    response.status_code = 201 if stored.new else 200
    return described


def _ingest(service: Service, path: Path) -> tuple[db.Stored, db.StoredMeasurements]:
    assert service.workers is not None  # this route passes nothing on to workers itself
    stored = ingest_file(service.engine, path, service.workers)
    with db.reading(service.engine) as session:
        described = db.describe_measurements(session, stored.id)
    if stored.new:
        service.metrics.series.inc(described.series)
    return stored, described


@router.get("", response_model=Page[Measurements])
def listing(service: Serving, query: Annotated[ByMachine, Query()]) -> Any:
    """All probes, or those of one cluster or library."""
    with db.reading(service.engine) as session:
        return db.list_measurements(session, **query.model_dump())


@router.get("/{measurements_id}", response_model=Measurements, responses=documented(404))
def one(service: Serving, measurements_id: IdInPath) -> Any:
    """One probe."""
    with db.reading(service.engine) as session:
        return db.describe_measurements(session, measurements_id)


@router.get("/{measurements_id}/series", responses=documented(404))
def series(
    service: Serving, measurements_id: IdInPath, query: Annotated[SeriesQuery, Query()]
) -> Page[Series]:
    """The series of a probe that fit the query, in the order in which they were measured."""
    with db.reading(service.engine) as session:
        page = db.list_series(session, measurements_id, **query.model_dump())
    items = [Series.model_construct(**_listed(asdict(item))) for item in page.items]
    return Page[Series].model_construct(items=items, next=page.next)


def _listed(record: Mapping[str, Any]) -> dict[str, Any]:
    return {**record, "samples": list(record["samples"])}


@router.get(
    "/{measurements_id}/file", response_class=Response, responses=documented(404, also=text(NDJSON))
)
def file(service: Serving, measurements_id: IdInPath) -> StreamingResponse:
    """The file that was uploaded."""
    with db.reading(service.engine) as session:
        db.describe_measurements(session, measurements_id)
    lines = db.measurement_lines(service.engine, measurements_id)
    return StreamingResponse(_joined(lines), media_type=NDJSON)


def _joined(lines: Iterator[str]) -> Iterator[str]:
    """Many lines at once: each piece of a stream costs a change of threads."""
    while piece := "".join(islice(lines, PIECE)):
        yield piece
