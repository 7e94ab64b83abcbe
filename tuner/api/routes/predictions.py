"""Predictions: simulated times of one collective, answered at once and remembered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from tuner import __version__, algorithms, db
from tuner.api.problems import Problem, documented
from tuner.api.resolve import written
from tuner.api.schemas import (
    MOMENT,
    PREFIX,
    AnyCollective,
    Body,
    Count,
    Id,
    IdInPath,
    Page,
    Paging,
    Params,
    Size,
    Word,
)
from tuner.api.service import Serving
from tuner.base.errors import UnpricedError
from tuner.core.calibration import Calibration
from tuner.core.schedule import Schedule
from tuner.core.table import Choice
from tuner.machines.loader import machine_of
from tuner.mpi_libraries.schedules import cuts, schedule_of
from tuner.sim import simulate
from tuner.topology import CUDA, Placement
from tuner.whatif.study_candidates import Candidate, pieces, transfers

router = APIRouter(prefix=f"{PREFIX}/predictions", tags=["predictions"], responses=documented())
MOST_RANKS = 512
MOST_TRANSFERS = 200_000  # of all schedules of one request: a second or two


class Question(Body):
    """A collective on a topology; costs from the calibration, else from the topology or preset."""

    topology: Id = Field(examples=[1])
    calibration: Id | None = Field(None, examples=[None])
    collective: AnyCollective
    algorithms: list[Word] | None = Field(None, min_length=1, max_length=50, examples=[["ring"]])
    params: Params = Field({}, examples=[{}])
    via: Literal["library", "schedule"] = Field(
        "library",
        description="as the library of the calibration runs what it has, or as tuner does",
    )
    sizes: list[Size] = Field(min_length=1, max_length=50, examples=[[1024, 1048576]])
    memory: Literal["host", "cuda"] = Field("host", description="where the buffers lie")
    ppn: Count = Field(1, examples=[1])
    p: Count | None = Field(None, description="all ranks that fit, if left out", examples=[8])
    root: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    itemsize: Annotated[int, Field(ge=1, le=1024)] = 1


class Predicted(BaseModel):
    """One simulated time."""

    algorithm: str = Field(examples=["ring"])
    params: dict[str, int] = Field(examples=[{}])
    nbytes: int = Field(examples=[1048576])
    seconds: float = Field(examples=[0.000573])


class PredictionSummary(BaseModel):
    """What was asked, and of which version of tuner."""

    id: int = Field(examples=[1])
    question: dict[str, Any] = Field(
        examples=[{"topology": 1, "collective": "allreduce", "sizes": [1048576], "tuner": "0.1.0"}]
    )
    stored_at: datetime = Field(examples=[MOMENT])


class Prediction(PredictionSummary):
    """What was asked, and the answer."""

    items: list[Predicted]


@router.post(
    "",
    status_code=201,
    response_model=Prediction,
    responses=documented(404, also={200: {"model": Prediction}}),
)
def predict(service: Serving, wanted: Question, response: Response) -> Any:
    """Simulate; the same question again is answered with 200 and the same id.

    Another version of tuner may simulate otherwise: it answers anew.
    """
    question = wanted.model_dump(mode="json") | {"tuner": __version__}
    with db.reading(service.engine) as session:
        known = db.find_prediction(session, question)
        if known is not None:
            response.status_code = 200
            return known
        machine = machine_of(written(db.load_topology(session, wanted.topology)))
        if wanted.calibration:
            own = db.load_calibration(session, wanted.calibration)
            machine = replace(machine, calibration=own)
    placement = Placement.consecutive(machine.topology, wanted.ppn, wanted.p)
    items = list(_simulated(wanted, placement, machine.calibration))
    with db.transaction(service.engine) as session:
        stored = db.store_prediction(session, question, items)
        return db.load_prediction(session, stored.id)


def _simulated(
    wanted: Question, placement: Placement, calibration: Calibration
) -> Iterator[dict[str, Any]]:
    topology = placement.topology
    here = algorithms.offered(topology.offers, wanted.memory == CUDA, *placement.shape)
    names = wanted.algorithms or algorithms.names(wanted.collective, here)
    for name in names:
        algorithms.require_offered(wanted.collective, name, here, topology.name)
    _require_little(wanted, placement, calibration.library, names)
    for name in names:
        for nbytes in wanted.sizes:
            made = _schedule(wanted, name, nbytes, placement.p, calibration.library)
            if made is None:
                continue
            seconds = _seconds(wanted, made, nbytes, placement, calibration)
            if seconds is not None:
                yield {
                    "algorithm": name,
                    "params": dict(made.params),
                    "nbytes": nbytes,
                    "seconds": seconds,
                }


def _schedule(wanted: Question, name: str, nbytes: int, p: int, library: str) -> Schedule | None:
    """What is simulated; None for an algorithm that nobody named and the library alone knows."""
    choice = Choice(name, wanted.params, wanted.via)
    made = schedule_of(library, wanted.collective, choice, p, nbytes, wanted.root)
    if made is None and wanted.algorithms:
        raise Problem(
            422,
            f"{name} of {library} follows other choices of that library, and no schedule says"
            " which: ask for it via schedule",
        )
    return made


def _seconds(
    wanted: Question, made: Schedule, nbytes: int, placement: Placement, calibration: Calibration
) -> float | None:
    """None for an algorithm that nobody named and that goes through hosts whose messages have no
    price.
    """
    try:
        return simulate(made, placement, calibration, nbytes, wanted.itemsize, memory=wanted.memory)
    except UnpricedError:
        if wanted.algorithms or not made.staged:
            raise
        return None


def _require_little(
    wanted: Question, placement: Placement, library: str, names: Sequence[str]
) -> None:
    """Raises Problem 422 for what takes longer than a request should."""
    work = 0.0
    for name in names if placement.p <= MOST_RANKS else ():
        known = algorithms.describe(wanted.collective, name).params
        candidate = Candidate(name, {**known, **wanted.params})
        choice = Choice(name, candidate.params, wanted.via)
        for nbytes in wanted.sizes:
            number = pieces(name, candidate.params, placement.p, nbytes)
            parts = cuts(library, wanted.collective, choice, nbytes, number)
            work += parts * transfers(wanted.collective, candidate, placement.p, nbytes)
    if placement.p > MOST_RANKS or work > MOST_TRANSFERS:
        raise Problem(
            422,
            f"this is too much to simulate while you wait (at most {MOST_RANKS} ranks and"
            f" {MOST_TRANSFERS} transfers): make it a study",
        )


@router.get("", response_model=Page[PredictionSummary])
def listing(service: Serving, paging: Annotated[Paging, Query()]) -> Any:
    """All questions that were asked."""
    with db.reading(service.engine) as session:
        return db.list_predictions(session, after=paging.after, limit=paging.limit)


@router.get("/{prediction_id}", response_model=Prediction, responses=documented(404))
def one(service: Serving, prediction_id: IdInPath) -> Any:
    """One question with its answer."""
    with db.reading(service.engine) as session:
        return db.load_prediction(session, prediction_id)
