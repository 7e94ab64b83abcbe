"""Studies: what if the machine were another one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from tuner import db
from tuner.api.bodies import Raw, accepts, record_of
from tuner.api.large_requests import LargeBodyRoute
from tuner.api.problems import Problem, documented
from tuner.api.resolve import References
from tuner.api.routes.jobs import JSON, JobSummary, summary
from tuner.api.schemas import PREFIX, IdInPath, Page, Paging
from tuner.api.service import Asking, Serving
from tuner.machines.yaml_machines import PREFIX as PRESET
from tuner.whatif import study_from, study_record

router = APIRouter(
    prefix=f"{PREFIX}/studies", tags=["studies"], responses=documented(), route_class=LargeBodyRoute
)
KIND = "study"
EXAMPLE = {
    "name": "twice the network",
    "topology": {"name": "flat8", "nodes": 8, "latency": "2us", "bandwidth": "12.5GB/s"},
    "vary": {"nodes": [4, 8], "bandwidth": ["12.5GB/s", "25GB/s"]},
    "collectives": ["allreduce"],
    "sizes": ["1KiB", "1MiB"],
}


class StudyJob(BaseModel):
    """A study is a job: both have the same id."""

    id: int = Field(examples=[1])
    job: JobSummary


class Study(StudyJob):
    """A study with its question, and its answer once it is done."""

    spec: dict[str, Any] = Field(examples=[EXAMPLE])
    result: dict[str, Any] | None = Field(examples=[None])


@router.post("", status_code=202, openapi_extra=accepts({"application/json": EXAMPLE}))
def enqueue(service: Serving, body: Raw, client: Asking) -> StudyJob:
    """Queue a study. Topology, calibration and table may be given whole or by id."""
    spec = record_of(body)
    with db.reading(service.engine) as session:
        references = References(session)
        record = study_record(study_from(_whole(spec, references), references))
    with db.transaction(service.engine) as session:
        number = db.enqueue(
            session, KIND, record, by=client.name, limit=service.settings.queued_jobs
        )
        return StudyJob.model_construct(id=number, job=summary(session, number))


def _whole(spec: Any, references: References) -> Any:
    """The study with what its topology stands for; `study_record` knows no costs of presets."""
    topology = spec.get("topology") if isinstance(spec, dict) else None
    if not isinstance(topology, str) or topology.startswith(PRESET):
        return spec
    return {**spec, "topology": references.written(topology)}


@router.get("", response_model=Page[StudyJob])
def listing(service: Serving, paging: Annotated[Paging, Query()]) -> Any:
    """All studies."""
    with db.reading(service.engine) as session:
        page = db.list_jobs(session, kind=KIND, after=paging.after, limit=paging.limit)
    items = [{"id": job.id, "job": job} for job in page.items]
    return {"items": items, "next": page.next}


@router.get(
    "/{study_id}", response_class=Response, responses=documented(404, also={200: {"model": Study}})
)
def one(service: Serving, study_id: IdInPath) -> Response:
    """One study."""
    with db.reading(service.engine) as session:
        job = summary(session, study_id)
        if job.kind != KIND:
            raise Problem(404, f"job {study_id} is not a study")
        spec, result = db.job_documents(session, study_id)
    shown = StudyJob.model_construct(id=study_id, job=job).model_dump_json()
    return Response(f'{shown[:-1]},"spec":{spec},"result":{result}}}', media_type=JSON)
