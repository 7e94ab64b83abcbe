"""Jobs, for work that takes too long for one request."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Header, Query, Response
from pydantic import Field, TypeAdapter
from sse_starlette import EventSourceResponse, ServerSentEvent

from tuner import db
from tuner.api.access import PUBLISH
from tuner.api.problems import Problem, problem_responses
from tuner.api.schemas import (
    API_PREFIX,
    EXAMPLE_TIMESTAMP,
    MAX_INT32,
    Id,
    Page,
    Pagination,
    PathId,
    RequestBody,
    set_example,
)
from tuner.api.service import ClientDep, Service, ServiceDep
from tuner.select.constraints import constraints_from_options

router = APIRouter(prefix=f"{API_PREFIX}/jobs", tags=["jobs"], responses=problem_responses())
MAX_STREAMS = 200  # event streams per process; each polls the database
END_STATES = ("done", "failed", "cancelled")
POLL_INTERVAL_S = 0.25  # seconds
MAX_FORBIDDEN_ALGORITHMS = 1000
JSON_MEDIA_TYPE = "application/json"
AlgorithmName = Annotated[str, Field(max_length=100, pattern=r"^([a-z_]+:)?[A-Za-z0-9_.-]+$")]
EVENT_SCHEMA = {  # of an event stream; `data` is the job as JSON
    "type": "object",
    "required": ["id", "event", "data"],
    "properties": {
        "id": {"type": "string"},
        "event": {"const": "progress"},
        "data": {"type": "string"},
    },
}


EXAMPLE_SUMMARY = {
    "id": 1,
    "kind": "tune",
    "state": "running",
    "progress": 0.4,
    "text": "simulating",
    "attempts": 1,
    "error": None,
    "cancel_requested": False,
    "by": "operator",
    "created_at": EXAMPLE_TIMESTAMP,
    "started_at": EXAMPLE_TIMESTAMP,
    "ended_at": None,
}


class TableConstraints(RequestBody):
    """Constraints on the table that `tune` makes, as the options of `tuner tune`."""

    excluded_algorithms: list[AlgorithmName] = Field(
        default=[],
        max_length=MAX_FORBIDDEN_ALGORITHMS,
        examples=[["ring", "bcast:chain"]],
        description="algorithms that no rule may use: `ring`, or of one collective `bcast:chain`",
    )
    reproducible: bool = Field(
        default=False,
        description="reductions only by algorithms that combine every element in one order",
    )
    max_rules: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INT32,
        examples=[20],
        description="maximum number of rules, default rules included; the most valuable are kept",
    )
    commutative_only: bool = Field(
        default=False, description="no rules for operators that do not commute"
    )


class NewJob(RequestBody):
    """A job to do with measurements."""

    kind: Literal["calibrate", "tune"] = Field(examples=["tune"])
    measurements: Id = Field(examples=[1])
    topology: Id | None = Field(
        None, examples=[None], description="of the measured cluster; needed for several hosts"
    )
    publish: bool = Field(False, description="the table that `tune` makes")
    constraints: TableConstraints = Field(
        TableConstraints(),
        description="for the table that `tune` makes",
        examples=[
            {"excluded_algorithms": ["ring", "bcast:chain"], "reproducible": True, "max_rules": 20}
        ],
    )


@dataclass(frozen=True)
class JobWithResult(db.Job):
    """A job with what it was asked for and, once it is done, what it made."""

    result: Any


set_example(db.JobSummary, **EXAMPLE_SUMMARY)
set_example(
    JobWithResult,
    **EXAMPLE_SUMMARY,
    result=None,
    spec={
        "measurements": 1,
        "topology": None,
        "publish": True,
        "constraints": {
            "excluded_algorithms": ["ring"],
            "reproducible": False,
            "max_rules": 20,
            "commutative_only": False,
        },
    },
)
_SUMMARY = TypeAdapter(db.JobSummary)


@router.post(
    "",
    status_code=202,
    response_class=Response,
    responses=problem_responses(404, extra_responses={202: {"model": JobWithResult}}),
)
def create_job(service: ServiceDep, wanted: NewJob, client: ClientDep) -> Response:
    """Queue a job; follow it with its events."""
    if wanted.publish and PUBLISH not in client.scopes:
        raise Problem(403, f"the token {client.name} lacks the scope {PUBLISH}")
    if wanted.kind != "tune" and wanted.constraints != TableConstraints():
        raise Problem(
            422, f"constraints are for a table, and {wanted.kind} makes none: leave them out"
        )
    constraints_from_options(wanted.constraints.model_dump())  # refuses invalid constraints at once
    spec = wanted.model_dump(exclude={"kind"}) | {"by": client.name}
    with db.transaction(service.engine) as session:
        db.describe_measurements(session, wanted.measurements)
        if wanted.topology is not None:
            db.load_topology(session, wanted.topology)
        number = db.enqueue_job(
            session, wanted.kind, spec, by=client.name, limit=service.settings.max_queued_jobs
        )
        return Response(job_json(session, number), 202, media_type=JSON_MEDIA_TYPE)


class JobsQuery(Pagination):
    """The jobs that are wanted."""

    state: db.JobState | None = None


@router.get("", response_model=Page[db.JobSummary])
def list_jobs(service: ServiceDep, query: Annotated[JobsQuery, Query()]) -> Any:
    """All jobs, or those in one state."""
    with db.read_session(service.engine) as session:
        return db.list_jobs(session, **query.model_dump())


@router.get(
    "/{job_id}",
    response_class=Response,
    responses=problem_responses(404, extra_responses={200: {"model": JobWithResult}}),
)
def get_job(service: ServiceDep, job_id: PathId) -> Response:
    """One job."""
    with db.read_session(service.engine) as session:
        return Response(job_json(session, job_id), media_type=JSON_MEDIA_TYPE)


def job_json(session: db.Session, job_id: int) -> str:
    """Return the JSON of a `Job`; raise NotFoundError if there is none.

    Its parameters and result are passed on as they are stored, since they may be large.
    """
    spec, result = db.load_job_json(session, job_id)
    shown = _SUMMARY.dump_json(db.describe_job(session, job_id)).decode()
    return f'{shown[:-1]},"spec":{spec},"result":{result}}}'


set_example(
    db.JobLogEntry,
    id=7,
    attempt=1,
    at=EXAMPLE_TIMESTAMP,
    text="measured 12 series of calls, 0 of messages",
    data=None,
)


@router.get("/{job_id}/log", response_model=Page[db.JobLogEntry], responses=problem_responses(404))
def list_log(service: ServiceDep, job_id: PathId, paging: Annotated[Pagination, Query()]) -> Any:
    """The log of a job, oldest entry first; ask for what came `after` the last one."""
    with db.read_session(service.engine) as session:
        return db.list_job_log(session, job_id, after=paging.after, limit=paging.limit)


@router.post(
    "/{job_id}/cancel",
    status_code=202,
    response_class=Response,
    responses=problem_responses(404, 409, extra_responses={202: {"model": JobWithResult}}),
)
def cancel_job(service: ServiceDep, job_id: PathId) -> Response:
    """Ask for the end of a job; a running one ends within a second. 409 when it has ended."""
    with db.transaction(service.engine) as session:
        db.cancel_job(session, job_id)
        return Response(job_json(session, job_id), 202, media_type=JSON_MEDIA_TYPE)


@router.get(
    "/{job_id}/events",
    response_class=EventSourceResponse,
    responses=problem_responses(
        404,
        extra_responses={
            200: {"content": {"text/event-stream": {"schema": EVENT_SCHEMA}}},
            204: {"description": "The job has ended and Last-Event-ID was its last event"},
        },
    ),
)
async def stream_events(
    service: ServiceDep, job_id: PathId, last_event_id: Annotated[str | None, Header()] = None
) -> Response:
    """`progress` events with the job, from now until it has ended.

    A client that comes back with Last-Event-ID gets the next event as soon as there is news.
    """
    first = await to_thread.run_sync(_poll_job, service, job_id, last_event_id)
    if first.is_last and last_event_id == first.id:
        return Response(status_code=204)
    if len(service.open_streams) >= MAX_STREAMS:
        raise Problem(503, f"{MAX_STREAMS} clients follow jobs already: ask for the job itself")
    return EventSourceResponse(_events(service, job_id, first, last_event_id))


@dataclass(frozen=True)
class _JobEvent:
    """The state of a job as an event.

    id          the same for as long as the state does not change
    data        the job as JSON; empty where the client has this state already
    is_last     whether the job has ended
    """

    id: str
    data: str
    is_last: bool


async def _events(
    service: Service, job_id: int, news: _JobEvent, last_event_id: str | None
) -> AsyncIterator[ServerSentEvent]:
    stream = object()
    service.open_streams.add(stream)
    try:
        while True:
            if news.id != last_event_id:
                last_event_id = news.id
                yield ServerSentEvent(event="progress", id=news.id, data=news.data)
            if news.is_last:
                return
            await asyncio.sleep(POLL_INTERVAL_S)
            try:
                news = await to_thread.run_sync(_poll_job, service, job_id, last_event_id)
            except db.UnavailableError:
                continue  # the next poll may succeed
            except db.NotFoundError:
                return  # it ended and was then deleted
    finally:
        service.open_streams.discard(stream)


def _poll_job(service: Service, job_id: int, last_event_id: str | None) -> _JobEvent:
    """Return the state of a job as an event; this runs in a thread.

    The id depends on the metadata alone, since the parameters never change and the result is stored
    together with the state.
    """
    with db.read_session(service.engine) as session:
        job = db.describe_job(session, job_id)
        event_id = hashlib.sha256(_SUMMARY.dump_json(job)).hexdigest()[:16]
        data = job_json(session, job_id) if event_id != last_event_id else ""
    return _JobEvent(event_id, data, job.state in END_STATES)
