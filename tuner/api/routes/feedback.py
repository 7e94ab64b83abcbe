"""Feedback of programs that used a table, and whether the table is stale."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from tuner import db
from tuner.api.large_requests import LargeBodyRoute
from tuner.api.problems import problem_responses
from tuner.api.schemas import (
    API_PREFIX,
    CallQuery,
    Count,
    Id,
    Identifier,
    Name,
    PathId,
    RequestBody,
    set_example,
)
from tuner.api.service import ServiceDep

router = APIRouter(
    prefix=API_PREFIX,
    tags=["feedback"],
    responses=problem_responses(404),
    route_class=LargeBodyRoute,
)
MAX_ITEMS = 10_000
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class FeedbackItem(CallQuery):
    """One rank's measurements of one kind of call."""

    algorithm: Identifier = Field(examples=["binomial"])
    calls: Count = Field(examples=[1000])
    median_s: Seconds = Field(examples=[1.2e-05])
    max_s: Seconds = Field(examples=[4.1e-05])


class Feedback(RequestBody):
    """The summary of one run of a program."""

    version: Id = Field(description="of the table that the program used", examples=[3])
    cluster: Name = Field(examples=["one"])
    library: Name = Field(examples=["openmpi 5.0.11"])
    ranks: Count = Field(examples=[8])
    items: list[FeedbackItem] = Field(max_length=MAX_ITEMS)


class CreatedFeedback(BaseModel):
    """The id of a stored report."""

    id: int = Field(examples=[1])


set_example(
    db.Staleness,
    reports=12,
    items=340,
    stale=False,
    ratio=1.03,
    low=0.98,
    high=1.09,
    reason="calls take 1.03 times as long as when the table was measured (95 % interval 0.98"
    " to 1.09, 12 reports): no reason to probe again",
)


@router.post("/feedback", status_code=201, responses={200: {"model": CreatedFeedback}})
def create_feedback(service: ServiceDep, report: Feedback, response: Response) -> CreatedFeedback:
    """Store what a program saw; 200 when the same report was there already."""
    record = report.model_dump(mode="json")
    with db.transaction(service.engine) as session:
        stored = db.store_feedback(session, record.pop("version"), record)
    response.status_code = 201 if stored.is_new else 200
    return CreatedFeedback(id=stored.id)


@router.get("/tables/{version}/feedback", response_model=db.Staleness)
def get_staleness(service: ServiceDep, version: PathId) -> Any:
    """A summary of all reports about a version."""
    with db.read_session(service.engine) as session:
        return db.assess_staleness(session, version)
