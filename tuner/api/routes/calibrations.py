"""Calibrations, as the records that `tuner calibrate` writes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from tuner import db
from tuner.api.bodies import RawBody, parse_json_body, request_body_docs
from tuner.api.large_requests import LargeBodyRoute
from tuner.api.problems import problem_responses
from tuner.api.schemas import (
    API_PREFIX,
    EXAMPLE_DIGEST,
    EXAMPLE_TIMESTAMP,
    ClusterLibraryFilter,
    Id,
    Page,
    PathId,
    QueryParameters,
    set_example,
)
from tuner.api.service import ServiceDep
from tuner.base.errors import InputError, shortened_repr
from tuner.core.calibration import calibration_from_record, calibration_record

router = APIRouter(
    prefix=f"{API_PREFIX}/calibrations",
    tags=["calibrations"],
    responses=problem_responses(),
    route_class=LargeBodyRoute,
)
_LINE = {"value": 1e-06, "low": 1e-06, "high": 1e-06}
EXAMPLE = {
    "version": 1,
    "cluster": "one",
    "library": "openmpi 5.0.11",
    "paths": [
        {
            "path_class": "node",
            "memory": "host",
            "eager_limit": 4096.0,
            "overhead": _LINE,
            "segments": [
                {
                    "start_bytes": 0.0,
                    "stop_bytes": "inf",
                    "alpha": _LINE,
                    "staged": False,
                    "beta": {"value": 1e-10, "low": 1e-10, "high": 1e-10},
                    "latency_per_byte": {"value": 0.0, "low": 0.0, "high": 0.0},
                }
            ],
        }
    ],
    "reduction": {},
    "capacities": {},
    "port_sharing_threshold": "inf",
    "separate_network_port": False,
    "striping_threshold": "inf",
    "pointer_query_seconds": 0.0,
    "header_bytes": 0.0,
    "nominal": False,
    "provenance": {},
}


class CalibrationSources(QueryParameters):
    """The sources of a calibration, where the service knows them."""

    measurements: Id | None = Field(None, description="what it was made from")


set_example(
    db.StoredCalibration,
    id=1,
    measurements_id=1,
    cluster="ares",
    library="openmpi 5.0.11",
    digest=EXAMPLE_DIGEST,
    stored_at=EXAMPLE_TIMESTAMP,
)


class CreatedCalibration(BaseModel):
    """The id of a stored calibration."""

    id: int = Field(examples=[1])


@router.post(
    "",
    status_code=201,
    responses=problem_responses(404, extra_responses={200: {"model": CreatedCalibration}}),
    openapi_extra=request_body_docs({"application/json": EXAMPLE}),
)
def create_calibration(
    service: ServiceDep,
    body: RawBody,
    response: Response,
    source: Annotated[CalibrationSources, Query()],
) -> CreatedCalibration:
    """Store the record of a calibration file; 200 when it was already there."""
    try:
        calibration = calibration_from_record(parse_json_body(body))
    except (ValueError, KeyError, TypeError) as reason:
        raise InputError(
            f"the body is not a version-1 calibration: {shortened_repr(reason)}"
        ) from None
    with db.transaction(service.engine) as session:
        stored = db.store_calibration(session, calibration, source.measurements)
    response.status_code = 201 if stored.is_new else 200
    return CreatedCalibration(id=stored.id)


@router.get("", response_model=Page[db.StoredCalibration])
def list_calibrations(service: ServiceDep, query: Annotated[ClusterLibraryFilter, Query()]) -> Any:
    """All calibrations, or those of one cluster or library."""
    with db.read_session(service.engine) as session:
        return db.list_calibrations(session, **query.model_dump())


@router.get(
    "/{calibration_id}",
    responses=problem_responses(
        404, extra_responses={200: {"content": {"application/json": {"example": EXAMPLE}}}}
    ),
)
def get_calibration(service: ServiceDep, calibration_id: PathId) -> dict[str, Any]:
    """The record of a calibration file."""
    with db.read_session(service.engine) as session:
        return calibration_record(db.load_calibration(session, calibration_id))
