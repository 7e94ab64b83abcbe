"""Calibrations: the records that `tuner calibrate` writes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from tuner import db
from tuner.api.bodies import Raw, accepts, record_of
from tuner.api.large_requests import LargeBodyRoute
from tuner.api.problems import documented
from tuner.api.schemas import (
    DIGEST,
    MOMENT,
    PREFIX,
    ByMachine,
    Id,
    IdInPath,
    Page,
    Parameters,
    example,
)
from tuner.api.service import Serving
from tuner.base.errors import InputError, quoted
from tuner.core.calibration import calibration_from_record, calibration_record

router = APIRouter(
    prefix=f"{PREFIX}/calibrations",
    tags=["calibrations"],
    responses=documented(),
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
                    "lo": 0.0,
                    "hi": "inf",
                    "alpha": _LINE,
                    "staged": False,
                    "beta": {"value": 1e-10, "low": 1e-10, "high": 1e-10},
                    "lag": {"value": 0.0, "low": 0.0, "high": 0.0},
                }
            ],
        }
    ],
    "reduction": {},
    "capacities": {},
    "shared_from": "inf",
    "network_port": False,
    "stripe_from": "inf",
    "pointer_query": 0.0,
    "envelope": 0.0,
    "given": False,
    "provenance": {},
}


class MadeFrom(Parameters):
    """What a calibration comes from, where the service knows it."""

    measurements: Id | None = Field(None, description="what it was made from")


class CalibrationSummary(BaseModel):
    """What a list says about a calibration."""

    model_config = example(
        id=1,
        measurements_id=1,
        cluster="ares",
        library="openmpi 5.0.11",
        digest=DIGEST,
        stored_at=MOMENT,
    )

    id: int
    measurements_id: int | None
    cluster: str
    library: str
    digest: str
    stored_at: datetime


class StoredCalibration(BaseModel):
    """Where a calibration is kept."""

    id: int = Field(examples=[1])


@router.post(
    "",
    status_code=201,
    responses=documented(404, also={200: {"model": StoredCalibration}}),
    openapi_extra=accepts({"application/json": EXAMPLE}),
)
def store(
    service: Serving, body: Raw, response: Response, source: Annotated[MadeFrom, Query()]
) -> StoredCalibration:
    """Store the record of a calibration file; 200 when it was already there."""
    try:
        calibration = calibration_from_record(record_of(body))
    except (ValueError, KeyError, TypeError) as reason:
        raise InputError(f"the body is no version-1 calibration: {quoted(reason)}") from None
    with db.transaction(service.engine) as session:
        stored = db.store_calibration(session, calibration, source.measurements)
    response.status_code = 201 if stored.new else 200
    return StoredCalibration(id=stored.id)


@router.get("", response_model=Page[CalibrationSummary])
def listing(service: Serving, query: Annotated[ByMachine, Query()]) -> Any:
    """All calibrations, or those of one cluster or library."""
    with db.reading(service.engine) as session:
        return db.list_calibrations(session, **query.model_dump())


@router.get(
    "/{calibration_id}",
    responses=documented(404, also={200: {"content": {"application/json": {"example": EXAMPLE}}}}),
)
def one(service: Serving, calibration_id: IdInPath) -> dict[str, Any]:
    """The record of a calibration file."""
    with db.reading(service.engine) as session:
        return calibration_record(db.load_calibration(session, calibration_id))
