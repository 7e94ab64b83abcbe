"""Measurements, as the files that `tuner probe` writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from tuner import db
from tuner.api.bodies import request_body_docs
from tuner.api.problems import problem_responses, text_response_docs
from tuner.api.schemas import (
    API_PREFIX,
    EXAMPLE_DIGEST,
    EXAMPLE_TIMESTAMP,
    ClusterLibraryFilter,
    Name,
    Page,
    Pagination,
    PathId,
    SizeInBytes,
    example_config,
    set_example,
)
from tuner.api.service import Service, ServiceDep
from tuner.api.uploads import body_on_disk, ingest_file
from tuner.core.collective import Collective
from tuner.core.measurement import Measurement, provenance_texts
from tuner.probe.all_pairs import pair_times

router = APIRouter(
    prefix=f"{API_PREFIX}/measurements", tags=["measurements"], responses=problem_responses()
)
NDJSON_MEDIA_TYPE = "application/x-ndjson"
LINES_PER_CHUNK = 500  # lines per chunk of a response
EXAMPLE = (
    '{"kind": "probe", "version": 1, "cluster": {"name": "one", "nodes": 1, "cores": 4, "cpu": "",'
    ' "memory": 0}, "library": "openmpi 5.0.11", "provenance": {}}\n'
    '{"kind": "collective", "subject": "bcast", "nodes": 1, "ppn": 4, "p": 4, "nbytes": 1024,'
    ' "samples": [1.5e-06, 1.4e-06], "algorithm": "binomial", "params": {}, "memory": "host",'
    ' "launch": 0}\n{"kind": "end", "lines": 1}\n'
)


set_example(
    db.StoredMeasurements,
    id=1,
    digest=EXAMPLE_DIGEST,
    series=1200,
    cluster="ares",
    library="openmpi 5.0.11",
    provenance={"seed": 1},
    stored_at=EXAMPLE_TIMESTAMP,
)


set_example(
    Measurement,
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


class SeriesQuery(Pagination):
    """The series of a probe that are wanted."""

    collective: Collective | None = None
    p: Annotated[int, Field(ge=1)] | None = None
    nbytes: SizeInBytes | None = None
    algorithm: Name | None = None


@router.post(
    "",
    status_code=201,
    response_model=db.StoredMeasurements,
    responses=problem_responses(extra_responses={200: {"model": db.StoredMeasurements}}),
    openapi_extra=request_body_docs({NDJSON_MEDIA_TYPE: EXAMPLE}),
)
async def create_measurements(service: ServiceDep, request: Request, response: Response) -> Any:
    """Store a file of `tuner probe`; 200 when it was already there.

    An upload that was interrupted can simply be sent again: nothing is stored twice.
    """
    async with body_on_disk(request) as path:
        stored, described = await to_thread.run_sync(
            _ingest, service, path, limiter=service.upload_limiter
        )
    response.status_code = 201 if stored.is_new else 200
    return described


def _ingest(service: Service, path: Path) -> tuple[db.InsertResult, db.StoredMeasurements]:
    assert service.workers is not None  # None only in a worker, where this route does not run
    stored = ingest_file(service.engine, path, service.workers)
    with db.read_session(service.engine) as session:
        described = db.describe_measurements(session, stored.id)
    if stored.is_new:
        service.metrics.ingested_series.inc(described.series)
    return stored, described


@router.get("", response_model=Page[db.StoredMeasurements])
def list_measurements(service: ServiceDep, query: Annotated[ClusterLibraryFilter, Query()]) -> Any:
    """All probes, or those of one cluster or library."""
    with db.read_session(service.engine) as session:
        return db.list_measurements(session, **query.model_dump())


@router.get(
    "/{measurements_id}", response_model=db.StoredMeasurements, responses=problem_responses(404)
)
def get_measurements(service: ServiceDep, measurements_id: PathId) -> Any:
    """One probe."""
    with db.read_session(service.engine) as session:
        return db.describe_measurements(session, measurements_id)


@router.get(
    "/{measurements_id}/series", response_model=Page[Measurement], responses=problem_responses(404)
)
def list_series(
    service: ServiceDep, measurements_id: PathId, query: Annotated[SeriesQuery, Query()]
) -> Any:
    """The series of a probe that fit the query, in the order in which they were measured."""
    with db.read_session(service.engine) as session:
        return db.list_series(session, measurements_id, **query.model_dump())


class PairOfHosts(BaseModel):
    """The time of a message between two hosts.

    first, second   numbers of the hosts
    usual_seconds   median over all pairs
    is_slow         whether it is an outlier among all pairs
    """

    first: int
    second: int
    nbytes: int
    seconds: float
    usual_seconds: float
    is_slow: bool


class HostMap(BaseModel):
    """Times of messages between hosts that a probe measured in pairs."""

    model_config = example_config(
        hosts=["n1", "n2"],
        pairs=[
            {
                "first": 0,
                "second": 1,
                "nbytes": 8,
                "seconds": 2e-06,
                "usual_seconds": 1.9e-06,
                "is_slow": False,
            }
        ],
        notes=[],
    )

    hosts: list[str]
    pairs: list[PairOfHosts]
    notes: list[str] = Field(description="what the probe noticed: slow hosts, outliers, drift")


@router.get("/{measurements_id}/hosts", response_model=HostMap, responses=problem_responses(404))
def get_host_map(service: ServiceDep, measurements_id: PathId) -> Any:
    """The hosts of a probe: times between them, slow pairs, and what else was noticed."""
    with db.read_session(service.engine) as session:
        about = db.describe_measurements(session, measurements_id).provenance
        swept = db.load_pair_sweep(session, measurements_id)
    by_size: dict[int, list[Measurement]] = defaultdict(list)
    for one in swept:
        if {"first", "second"} <= one.params.keys():
            by_size[one.nbytes].append(one)
    pairs = [
        {"nbytes": nbytes, **asdict(pair)}
        for nbytes in sorted(by_size)
        for pair in pair_times(by_size[nbytes])
    ]
    hosts, notes = (provenance_texts(about, name) for name in ("hosts", "notes"))
    return {"hosts": hosts, "pairs": pairs, "notes": notes}


@router.get(
    "/{measurements_id}/file",
    response_class=Response,
    responses=problem_responses(404, extra_responses=text_response_docs(NDJSON_MEDIA_TYPE)),
)
def get_file(service: ServiceDep, measurements_id: PathId) -> StreamingResponse:
    """The file that was uploaded."""
    with db.read_session(service.engine) as session:
        db.describe_measurements(session, measurements_id)
    lines = db.measurement_lines(service.engine, measurements_id)
    return StreamingResponse(_join_lines(lines), media_type=NDJSON_MEDIA_TYPE)


def _join_lines(lines: Iterator[str]) -> Iterator[str]:
    """Yield many lines at once, as each chunk of a stream costs a change of threads."""
    while piece := "".join(islice(lines, LINES_PER_CHUNK)):
        yield piece
