"""What the published table decides for a call."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tuner.api.large_requests import LargeBodyRoute
from tuner.api.problems import documented
from tuner.api.published_tables import Entry
from tuner.api.schemas import PREFIX, Body, Call, Name, example
from tuner.api.service import Service, Serving
from tuner.core.table import Key

router = APIRouter(
    prefix=f"{PREFIX}/select",
    tags=["select"],
    responses=documented(404, 409),
    route_class=LargeBodyRoute,
)
MOST_CALLS = 10_000
JSON = "application/json"
DECISION = {
    "version": 1,
    "algorithm": "linear",
    "params": {},
    "via": "library",
    "lo": 7962,
    "hi": 65536,
    "evidence": {
        "basis": "measured",
        "nbytes": [16384],
        "default_s": [5.1e-05],
        "chosen_s": [2.6e-05],
        "gain": 1.96,
        "gain_ci95": [1.9, 2.03],
    },
}


class SelectQuery(Call):
    """One call, and whose table to ask."""

    cluster: Name | None = Field(None, description="may be left out where one has such a table")
    library: Name = Field(description="may lack its version", examples=["openmpi 5.0.11"])


class StrictCall(Call):
    """One call in a body."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Batch(Body):
    """Many calls for one table."""

    cluster: Name | None = Field(None, examples=["one"])
    library: Name = Field(examples=["openmpi 5.0.11"])
    calls: list[StrictCall] = Field(min_length=1, max_length=MOST_CALLS)


class Decision(BaseModel):
    """What the rule for [lo, hi) bytes says, and why; `default` leaves it to the library."""

    model_config = example(**DECISION)

    version: int
    algorithm: str
    params: dict[str, int]
    via: Literal["library", "schedule", "nccl"]
    lo: int
    hi: int | Literal["inf"]
    evidence: dict[str, Any]


class Decisions(BaseModel):
    """One decision per call, in their order."""

    model_config = example(version=1, items=[DECISION])

    version: int
    items: list[Decision]


_QUERY = TypeAdapter(SelectQuery)


@router.get("", response_class=Response, responses=documented(also={200: {"model": Decision}}))
def one(service: Serving, query: Annotated[SelectQuery, Query()]) -> Response:
    """The decision for one call."""
    entry = service.published.find(query.cluster, query.library)
    return Response(_decided(entry, query), media_type=JSON)


def from_memory(service: Service, request: Request) -> Response | None:
    """`one` without the way through the framework; None where the query is not sound."""
    try:
        query = _QUERY.validate_strings(dict(request.query_params))
    except ValidationError:
        return None
    return one(service, query)


@router.post("", response_class=Response, responses=documented(also={200: {"model": Decisions}}))
def batch(service: Serving, wanted: Batch) -> Response:
    """The decisions for many calls, all by the same version."""
    entry = service.published.find(wanted.cluster, wanted.library)
    items = b", ".join(_decided(entry, call) for call in wanted.calls)
    return Response(b'{"version": %d, "items": [%s]}' % (entry.version, items), media_type=JSON)


def _decided(entry: Entry, call: Call) -> bytes:
    key = Key(call.collective, call.nodes, call.ppn, call.memory, call.operators, call.placement)
    return entry.answer(key, call.nbytes)
