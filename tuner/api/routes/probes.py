"""Probes of the service's own computer, where its operator allows them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from tuner import db
from tuner.api.problems import Problem, problem_responses
from tuner.api.schemas import API_PREFIX, CollectiveName, RequestBody, SizeInBytes
from tuner.api.service import ClientDep, ServiceDep
from tuner.base.processes import available_cores
from tuner.jobs.kinds import PROBE
from tuner.probe.probed_machine import local_cluster
from tuner.probe.single_host import COLLECTIVE_SIZES, DEFAULT_COLLECTIVES

router = APIRouter(prefix=f"{API_PREFIX}/probes", tags=["jobs"], responses=problem_responses())
MAX_BYTES = 2**26  # of a buffer
MAX_BUDGET_S = 3600.0
MAX_RANKS_PER_CORE = 2
NOT_ALLOWED = "this service measures nothing: its operator allows it with `tuner serve --measure`"
ProbedSize = Annotated[SizeInBytes, Field(le=MAX_BYTES)]


class NewProbe(RequestBody):
    """A probe of the computer that the service runs on."""

    library: Literal["openmpi", "mpich"] = Field("openmpi", examples=["openmpi"])
    ranks: int = Field(ge=2, le=1024, examples=[4])
    budget: float = Field(
        300.0, strict=False, ge=10.0, le=MAX_BUDGET_S, description="seconds", examples=[300.0]
    )
    target_regret: float = Field(
        0.02,
        strict=False,
        gt=0.0,
        le=1.0,
        description="mean regret below which it stops, with 95 % certainty",
        examples=[0.02],
    )
    collectives: list[CollectiveName] = Field(
        list(DEFAULT_COLLECTIVES), min_length=1, max_length=20, examples=[["allreduce"]]
    )
    sizes: list[ProbedSize] = Field(
        list(COLLECTIVE_SIZES), min_length=1, max_length=64, examples=[[64, 65536]]
    )


class ProbeTarget(BaseModel):
    """The computer that probes measure."""

    is_allowed: bool = Field(examples=[True])
    cluster: str = Field(examples=["ares"], description="its name in measurements and tables")
    cores: int = Field(examples=[16])
    max_ranks: int = Field(examples=[32])
    collectives: list[str] = Field(examples=[["allreduce"]], description="by default")
    sizes: list[int] = Field(examples=[[64, 65536]], description="by default")


@router.get("/target")
def get_target(service: ServiceDep) -> ProbeTarget:
    """The computer that probes measure, and whether they may."""
    cluster = local_cluster()
    return ProbeTarget(
        is_allowed=service.settings.measures,
        cluster=cluster.name,
        cores=available_cores(),
        max_ranks=_max_ranks(),
        collectives=[each.value for each in DEFAULT_COLLECTIVES],
        sizes=list(COLLECTIVE_SIZES),
    )


@router.post("", status_code=202, response_model=db.JobSummary, responses=problem_responses(403))
def create_probe(service: ServiceDep, wanted: NewProbe, client: ClientDep) -> db.JobSummary:
    """Queue a job that measures the computer of the service and makes a table, as `tuner tune`.

    Its log says what was measured, how far the regret is bounded, and what comes next.
    """
    if not service.settings.measures:
        raise Problem(403, NOT_ALLOWED)
    if wanted.ranks > _max_ranks():
        raise Problem(422, f"at most {_max_ranks()} ranks fit on this computer")
    spec = {"cluster": local_cluster().name, **wanted.model_dump(mode="json")}
    with db.transaction(service.engine) as session:
        number = db.enqueue_job(
            session, PROBE, spec, by=client.name, limit=service.settings.max_queued_jobs
        )
        return db.describe_job(session, number)


def _max_ranks() -> int:
    return max(4, MAX_RANKS_PER_CORE * available_cores())
