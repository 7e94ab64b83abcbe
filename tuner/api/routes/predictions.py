"""Predictions: simulated times of a collective, which are computed at once and stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from tuner import algorithms, db
from tuner.api.problems import Problem, problem_responses
from tuner.api.resolve import complete_record
from tuner.api.schemas import (
    API_PREFIX,
    EXAMPLE_TIMESTAMP,
    AlgorithmParams,
    CollectiveName,
    Count,
    Id,
    Identifier,
    Page,
    Pagination,
    PathId,
    RequestBody,
    SizeInBytes,
)
from tuner.api.service import ServiceDep
from tuner.base.code_digest import code_version
from tuner.base.errors import LimitExceededError, MissingCostError
from tuner.core.calibration import Calibration
from tuner.core.schedule import Schedule
from tuner.core.table import LIBRARY, AlgorithmConfig
from tuner.machines.loader import machine_from_record
from tuner.machines.model_accuracy import NCCL, SIMULATION
from tuner.mpi_libraries.schedules import max_message_parts, schedule_of
from tuner.topology import CUDA, Placement
from tuner.whatif.nccl_times import NcclTimes, nccl_times
from tuner.whatif.study_candidates import Candidate, estimate_transfers, segment_count

router = APIRouter(
    prefix=f"{API_PREFIX}/predictions", tags=["predictions"], responses=problem_responses()
)
CODE_VERSION = code_version()
EXAMPLE_QUESTION = {
    "topology": 1,
    "collective": "allreduce",
    "sizes": [1048576],
    "tuner": "0.2.0+5e6a1c0b9d3f",
}
MAX_RANKS = 512
MAX_TRANSFERS = 200_000  # in all schedules of one request, which takes a second or two


class PredictionRequest(RequestBody):
    """A collective on a topology; costs from the calibration, else from the topology or preset."""

    topology: Id = Field(examples=[1])
    calibration: Id | None = Field(None, examples=[None])
    collective: CollectiveName
    algorithms: list[Identifier] | None = Field(
        None, min_length=1, max_length=50, examples=[["ring"]]
    )
    params: AlgorithmParams = Field({}, examples=[{}])
    runner: Literal["library", "schedule"] = Field(
        "library",
        description="as the library of the calibration runs what it has, or as tuner does",
    )
    sizes: list[SizeInBytes] = Field(min_length=1, max_length=50, examples=[[1024, 1048576]])
    memory: Literal["host", "cuda"] = Field("host", description="where the buffers lie")
    ppn: Count = Field(1, examples=[1])
    p: Count | None = Field(None, description="all ranks that fit, if left out", examples=[8])
    root: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    itemsize: Annotated[int, Field(ge=1, le=1024)] = 1


class PredictedTime(BaseModel):
    """One predicted time."""

    algorithm: str = Field(examples=["ring"])
    params: dict[str, int] = Field(examples=[{}])
    nbytes: int = Field(examples=[1048576])
    seconds: float = Field(examples=[0.000573])
    predicted_by: Literal["simulation", "nccl"] = Field(
        "simulation", description="nccl: predicted from NCCL's cost model"
    )


class PredictionSummary(BaseModel):
    """A request, and the version and sources of tuner that answered it."""

    id: int = Field(examples=[1])
    question: dict[str, Any] = Field(examples=[EXAMPLE_QUESTION])
    stored_at: datetime = Field(examples=[EXAMPLE_TIMESTAMP])


class Prediction(PredictionSummary):
    """A request and its answer."""

    items: list[PredictedTime]


@router.post(
    "",
    status_code=201,
    response_model=Prediction,
    responses=problem_responses(404, extra_responses={200: {"model": Prediction}}),
)
def create_prediction(service: ServiceDep, wanted: PredictionRequest, response: Response) -> Any:
    """Simulate; the same question again is answered with 200 and the same id.

    Another version of tuner, or one with other sources, may simulate otherwise: it answers anew.
    """
    question = wanted.model_dump(mode="json") | {"tuner": CODE_VERSION}
    with db.read_session(service.engine) as session:
        known = db.find_prediction(session, question)
        if known is not None:
            response.status_code = 200
            return known
        machine = machine_from_record(complete_record(db.load_topology(session, wanted.topology)))
        if wanted.calibration:
            own = db.load_calibration(session, wanted.calibration)
            machine = replace(machine, calibration=own)
    placement = Placement.block(machine.topology, wanted.ppn, wanted.p)
    items = list(_simulate_all(wanted, placement, machine.calibration))
    with db.transaction(service.engine) as session:
        stored = db.store_prediction(session, question, items)
        return db.load_prediction(session, stored.id)


def _simulate_all(
    wanted: PredictionRequest, placement: Placement, calibration: Calibration
) -> Iterator[dict[str, Any]]:
    topology = placement.topology
    here = algorithms.available_capabilities(
        topology.capabilities, wanted.memory == CUDA, *placement.shape
    )
    names = wanted.algorithms or algorithms.algorithm_names(wanted.collective, here)
    for name in names:
        algorithms.check_requirements(wanted.collective, name, here, topology.name)
    own = wanted.runner == LIBRARY and not wanted.params and not wanted.calibration
    of_nccl = nccl_times(placement, wanted.memory) if own else None
    known_to_nccl = of_nccl.algorithms(wanted.collective) if of_nccl else ()
    simulated = [name for name in names if name not in known_to_nccl]
    _check_effort(wanted, placement, calibration.library, simulated)
    for name in names:
        if of_nccl and name in known_to_nccl:
            yield from _predicted_from_nccl(wanted, of_nccl, name)
    for name in simulated:
        for nbytes in wanted.sizes:
            made = _build_schedule(wanted, name, nbytes, placement.p, calibration.library)
            if made is None:
                continue
            seconds = _simulate_one(wanted, made, nbytes, placement, calibration)
            if seconds is not None:
                yield {
                    "algorithm": name,
                    "params": dict(made.params),
                    "nbytes": nbytes,
                    "seconds": seconds,
                    "predicted_by": SIMULATION,
                }


def _predicted_from_nccl(
    wanted: PredictionRequest, of_nccl: NcclTimes, name: str
) -> Iterator[dict[str, Any]]:
    for nbytes in wanted.sizes:
        seconds = of_nccl.seconds(wanted.collective, name, nbytes)
        yield {
            "algorithm": name,
            "params": {},
            "nbytes": nbytes,
            "seconds": seconds,
            "predicted_by": NCCL,
        }


def _build_schedule(
    wanted: PredictionRequest, name: str, nbytes: int, p: int, library: str
) -> Schedule | None:
    """Return the schedule to simulate.

    Returns None where only the library can run the algorithm and the request did not name it.
    """
    choice = AlgorithmConfig(name, wanted.params, wanted.runner)
    made = schedule_of(library, wanted.collective, choice, p, nbytes, wanted.root)
    if made is None and wanted.algorithms:
        raise Problem(
            422,
            f"{name} of {library} follows other choices of that library, and no schedule says"
            " which: ask for it via schedule",
        )
    return made


def _simulate_one(
    wanted: PredictionRequest,
    made: Schedule,
    nbytes: int,
    placement: Placement,
    calibration: Calibration,
) -> float | None:
    """Return the simulated seconds.

    Returns None where the request did not name the algorithm, and the schedule is too large or
    stages messages through hosts whose cost is unknown.
    """
    from tuner.sim import simulate  # the simulation is slow to import

    try:
        return simulate(made, placement, calibration, nbytes, wanted.itemsize, memory=wanted.memory)
    except LimitExceededError:
        if wanted.algorithms:
            raise
        return None
    except MissingCostError:
        if wanted.algorithms or not made.staged:
            raise
        return None


def _check_effort(
    wanted: PredictionRequest, placement: Placement, library: str, names: Sequence[str]
) -> None:
    """Raise Problem 422 for a simulation that takes too long for a request."""
    work = 0.0
    for name in names if placement.p <= MAX_RANKS else ():
        known = algorithms.describe(wanted.collective, name).params
        candidate = Candidate(name, {**known, **wanted.params})
        choice = AlgorithmConfig(name, candidate.params, wanted.runner)
        for nbytes in wanted.sizes:
            number = segment_count(name, candidate.params, placement.p, nbytes)
            parts = max_message_parts(library, wanted.collective, choice, nbytes, number)
            work += parts * estimate_transfers(wanted.collective, candidate, placement.p, nbytes)
    if placement.p > MAX_RANKS or work > MAX_TRANSFERS:
        raise Problem(
            422,
            f"this is too much to simulate while you wait (at most {MAX_RANKS} ranks and"
            f" {MAX_TRANSFERS} transfers): make it a study",
        )


@router.get("", response_model=Page[PredictionSummary])
def list_predictions(service: ServiceDep, paging: Annotated[Pagination, Query()]) -> Any:
    """All questions that were asked."""
    with db.read_session(service.engine) as session:
        return db.list_predictions(session, after=paging.after, limit=paging.limit)


@router.get("/{prediction_id}", response_model=Prediction, responses=problem_responses(404))
def get_prediction(service: ServiceDep, prediction_id: PathId) -> Any:
    """One question with its answer."""
    with db.read_session(service.engine) as session:
        return db.load_prediction(session, prediction_id)
