"""What-if studies on other machines."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from tuner import db
from tuner.api.bodies import RawBody, parse_json_body, request_body_docs
from tuner.api.large_requests import LargeBodyRoute
from tuner.api.problems import Problem, problem_responses
from tuner.api.resolve import DatabaseResolver, with_topology_record
from tuner.api.routes.jobs import JSON_MEDIA_TYPE
from tuner.api.schemas import API_PREFIX, Page, Pagination, PathId
from tuner.api.service import ClientDep, ServiceDep

router = APIRouter(
    prefix=f"{API_PREFIX}/studies",
    tags=["studies"],
    responses=problem_responses(),
    route_class=LargeBodyRoute,
)
JOB_KIND = "study"
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
    job: db.JobSummary


class StudyWithResult(StudyJob):
    """A study with its question, and its answer once it is done."""

    spec: dict[str, Any] = Field(examples=[EXAMPLE])
    result: dict[str, Any] | None = Field(examples=[None])


@router.post("", status_code=202, openapi_extra=request_body_docs({"application/json": EXAMPLE}))
def create_study(service: ServiceDep, body: RawBody, client: ClientDep) -> StudyJob:
    """Queue a study. Topology, calibration and table may be given whole or by id."""
    from tuner.whatif.checked_study import study_record
    from tuner.whatif.study_spec import study_from_record

    spec = parse_json_body(body)
    with db.read_session(service.engine) as session:
        references = DatabaseResolver(session)
        record = study_record(study_from_record(with_topology_record(spec, references), references))
    with db.transaction(service.engine) as session:
        number = db.enqueue_job(
            session, JOB_KIND, record, by=client.name, limit=service.settings.max_queued_jobs
        )
        return StudyJob.model_construct(id=number, job=db.describe_job(session, number))


@router.get("", response_model=Page[StudyJob])
def list_studies(service: ServiceDep, paging: Annotated[Pagination, Query()]) -> Any:
    """All studies."""
    with db.read_session(service.engine) as session:
        page = db.list_jobs(session, kind=JOB_KIND, after=paging.after, limit=paging.limit)
    items = [{"id": job.id, "job": job} for job in page.items]
    return {"items": items, "next": page.next}


@router.get(
    "/{study_id}",
    response_class=Response,
    responses=problem_responses(404, extra_responses={200: {"model": StudyWithResult}}),
)
def get_study(service: ServiceDep, study_id: PathId) -> Response:
    """One study."""
    with db.read_session(service.engine) as session:
        job = db.describe_job(session, study_id)
        if job.kind != JOB_KIND:
            raise Problem(404, f"expected a study: job {study_id} is of the kind {job.kind}")
        spec, result = db.load_job_json(session, study_id)
    shown = StudyJob.model_construct(id=study_id, job=job).model_dump_json()
    return Response(f'{shown[:-1]},"spec":{spec},"result":{result}}}', media_type=JSON_MEDIA_TYPE)
