"""Selection of an algorithm for a call from the published table."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tuner.api.large_requests import LargeBodyRoute
from tuner.api.problems import problem_responses
from tuner.api.published_tables import TableVersion
from tuner.api.schemas import API_PREFIX, CallQuery, Name, RequestBody, example_config
from tuner.api.service import Service, ServiceDep
from tuner.core.table import RuleKey

router = APIRouter(
    prefix=f"{API_PREFIX}/select",
    tags=["select"],
    responses=problem_responses(404, 409),
    route_class=LargeBodyRoute,
)
MAX_CALLS = 10_000
JSON_MEDIA_TYPE = "application/json"
EXAMPLE = {
    "version": 1,
    "algorithm": "linear",
    "params": {},
    "runner": "library",
    "start_bytes": 7962,
    "stop_bytes": 65536,
    "evidence": {
        "basis": "measured",
        "nbytes": [16384],
        "default_s": [5.1e-05],
        "chosen_s": [2.6e-05],
        "gain": 1.96,
        "gain_ci95": [1.9, 2.03],
    },
}


class SelectQuery(CallQuery):
    """One call, and whose table to ask."""

    cluster: Name | None = Field(None, description="may be left out where one has such a table")
    library: Name = Field(description="may lack its version", examples=["openmpi 5.0.11"])


class CallBody(CallQuery):
    """One call in a body."""

    model_config = ConfigDict(extra="forbid", strict=True)


class BatchQuery(RequestBody):
    """Many calls for one table."""

    cluster: Name | None = Field(None, examples=["one"])
    library: Name = Field(examples=["openmpi 5.0.11"])
    calls: list[CallBody] = Field(min_length=1, max_length=MAX_CALLS)


class SelectedAlgorithm(BaseModel):
    """The rule for the sizes [start_bytes, stop_bytes) and its evidence.

    `default` leaves the call to the library.
    """

    model_config = example_config(**EXAMPLE)

    version: int
    algorithm: str
    params: dict[str, int]
    runner: Literal["library", "schedule", "nccl"]
    start_bytes: int
    stop_bytes: int | Literal["inf"]
    evidence: dict[str, Any]


class SelectedAlgorithms(BaseModel):
    """One decision per call, in their order."""

    model_config = example_config(version=1, items=[EXAMPLE])

    version: int
    items: list[SelectedAlgorithm]


_QUERY = TypeAdapter(SelectQuery)


@router.get(
    "",
    response_class=Response,
    responses=problem_responses(extra_responses={200: {"model": SelectedAlgorithm}}),
)
def select_algorithm(service: ServiceDep, query: Annotated[SelectQuery, Query()]) -> Response:
    """The decision for one call."""
    entry = service.published_tables.find(query.cluster, query.library)
    return Response(_selected_json(entry, query), media_type=JSON_MEDIA_TYPE)


def answer_from_cache(service: Service, request: Request) -> Response | None:
    """Answer `select_algorithm` without the framework; return None for an invalid query."""
    try:
        query = _QUERY.validate_strings(dict(request.query_params))
    except ValidationError:
        return None
    return select_algorithm(service, query)


@router.post(
    "",
    response_class=Response,
    responses=problem_responses(extra_responses={200: {"model": SelectedAlgorithms}}),
)
def select_algorithms(service: ServiceDep, wanted: BatchQuery) -> Response:
    """The decisions for many calls, all by the same version."""
    entry = service.published_tables.find(wanted.cluster, wanted.library)
    items = b", ".join(_selected_json(entry, call) for call in wanted.calls)
    return Response(
        b'{"version": %d, "items": [%s]}' % (entry.version, items), media_type=JSON_MEDIA_TYPE
    )


def _selected_json(entry: TableVersion, call: CallQuery) -> bytes:
    key = RuleKey(
        call.collective, call.nodes, call.ppn, call.memory, call.operators, call.placement
    )
    return entry.answer_call(key, call.nbytes)
