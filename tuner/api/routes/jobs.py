"""Jobs: work that takes longer than a request may."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field
from sse_starlette import EventSourceResponse, ServerSentEvent

from tuner import db
from tuner.api.access import PUBLISH
from tuner.api.problems import Problem, documented
from tuner.api.schemas import MOMENT, MOST, PREFIX, Body, Id, IdInPath, Page, Paging, example
from tuner.api.service import Asking, Service, Serving
from tuner.select.constraints import constraints_from

router = APIRouter(prefix=f"{PREFIX}/jobs", tags=["jobs"], responses=documented())
State = Literal["queued", "running", "done", "failed", "cancelled"]
MOST_STREAMS = 200  # of events, in each process: each looks at the database again and again
ENDED = ("done", "failed", "cancelled")
LOOK_EVERY = 0.25  # seconds
MOST_FORBIDDEN = 1000
JSON = "application/json"
Algorithm = Annotated[str, Field(max_length=100, pattern=r"^([a-z_]+:)?[A-Za-z0-9_.-]+$")]
EVENT = {  # of a stream of them; `data` is the job as JSON
    "type": "object",
    "required": ["id", "event", "data"],
    "properties": {
        "id": {"type": "string"},
        "event": {"const": "progress"},
        "data": {"type": "string"},
    },
}


SUMMARY = {
    "id": 1,
    "kind": "tune",
    "state": "running",
    "progress": 0.4,
    "text": "simulating",
    "attempts": 1,
    "error": None,
    "cancel_requested": False,
    "by": "operator",
    "created_at": MOMENT,
    "started_at": MOMENT,
    "ended_at": None,
}


class Wishes(Body):
    """What the table that `tune` makes may say, as the options of `tuner tune` do."""

    forbid: list[Algorithm] = Field(
        default=[],
        max_length=MOST_FORBIDDEN,
        examples=[["ring", "bcast:chain"]],
        description="algorithms that no rule may use: `ring`, or of one collective `bcast:chain`",
    )
    reproducible: bool = Field(
        default=False,
        description="reductions only by algorithms that combine every element in one order",
    )
    rules: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        examples=[20],
        description="how many the table may have, the best ones",
    )
    commutative_only: bool = Field(
        default=False, description="no rules for operators that do not commute"
    )


class NewJob(Body):
    """What to do with measurements."""

    kind: Literal["calibrate", "tune"] = Field(examples=["tune"])
    measurements: Id = Field(examples=[1])
    topology: Id | None = Field(
        None, examples=[None], description="of the measured cluster; needed for several hosts"
    )
    publish: bool = Field(False, description="the table that `tune` makes")
    wishes: Wishes = Field(
        Wishes(),
        description="for the table that `tune` makes",
        examples=[{"forbid": ["ring", "bcast:chain"], "reproducible": True, "rules": 20}],
    )


class JobSummary(BaseModel):
    """How far a job is."""

    model_config = example(**SUMMARY)

    id: int
    kind: str
    state: State
    progress: float = Field(ge=0, le=1)
    text: str = Field(description="what is happening")
    attempts: int
    error: str | None
    cancel_requested: bool
    by: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class Job(JobSummary):
    """A job with what it was asked for and what it made."""

    model_config = example(
        **SUMMARY,
        result=None,
        spec={
            "measurements": 1,
            "topology": None,
            "publish": True,
            "wishes": {
                "forbid": ["ring"],
                "reproducible": False,
                "rules": 20,
                "commutative_only": False,
            },
        },
    )

    spec: dict[str, Any]
    result: Any


@router.post(
    "",
    status_code=202,
    response_class=Response,
    responses=documented(404, also={202: {"model": Job}}),
)
def enqueue(service: Serving, wanted: NewJob, client: Asking) -> Response:
    """Queue a job; follow it with its events."""
    if wanted.publish and PUBLISH not in client.scopes:
        raise Problem(403, f"the token {client.name} lacks the scope {PUBLISH}")
    if wanted.kind != "tune" and wanted.wishes != Wishes():
        raise Problem(422, f"wishes are for a table, and {wanted.kind} makes none: leave them out")
    constraints_from(wanted.wishes.model_dump())  # what cannot be met is refused at once
    spec = wanted.model_dump(exclude={"kind"}) | {"by": client.name}
    with db.transaction(service.engine) as session:
        db.describe_measurements(session, wanted.measurements)
        if wanted.topology is not None:
            db.load_topology(session, wanted.topology)
        number = db.enqueue(
            session, wanted.kind, spec, by=client.name, limit=service.settings.queued_jobs
        )
        return Response(document(session, number), 202, media_type=JSON)


class JobsQuery(Paging):
    """Which jobs."""

    state: State | None = None


@router.get("", response_model=Page[JobSummary])
def listing(service: Serving, query: Annotated[JobsQuery, Query()]) -> Any:
    """All jobs, or those in one state."""
    with db.reading(service.engine) as session:
        return db.list_jobs(session, **query.model_dump())


@router.get(
    "/{job_id}", response_class=Response, responses=documented(404, also={200: {"model": Job}})
)
def one(service: Serving, job_id: IdInPath) -> Response:
    """One job."""
    with db.reading(service.engine) as session:
        return Response(document(session, job_id), media_type=JSON)


def summary(session: db.Session, job_id: int) -> JobSummary:
    """Return the job as lists show it; raises NotFoundError."""
    return JobSummary.model_construct(**vars(db.describe_job(session, job_id)))


def document(session: db.Session, job_id: int) -> str:
    """Return the JSON of a `Job`; raises NotFoundError.

    What was asked for and the result are passed on as they are stored, since they may be large.
    """
    spec, result = db.job_documents(session, job_id)
    shown = summary(session, job_id).model_dump_json()
    return f'{shown[:-1]},"spec":{spec},"result":{result}}}'


@router.post(
    "/{job_id}/cancel",
    status_code=202,
    response_class=Response,
    responses=documented(404, 409, also={202: {"model": Job}}),
)
def cancel(service: Serving, job_id: IdInPath) -> Response:
    """Ask for the end of a job; a running one ends within a second. 409 when it has ended."""
    with db.transaction(service.engine) as session:
        db.cancel_job(session, job_id)
        return Response(document(session, job_id), 202, media_type=JSON)


@router.get(
    "/{job_id}/events",
    response_class=EventSourceResponse,
    responses=documented(
        404,
        also={
            200: {"content": {"text/event-stream": {"schema": EVENT}}},
            204: {"description": "The job has ended and Last-Event-ID was its last event"},
        },
    ),
)
async def events(
    service: Serving, job_id: IdInPath, last_event_id: Annotated[str | None, Header()] = None
) -> Response:
    """`progress` events with the job, from now until it has ended.

    A client that comes back with Last-Event-ID gets the next event as soon as there is news.
    """
    first = await to_thread.run_sync(_look, service, job_id, last_event_id)
    if first.last and last_event_id == first.id:
        return Response(status_code=204)
    if len(service.streams) >= MOST_STREAMS:
        raise Problem(503, f"{MOST_STREAMS} clients follow jobs already: ask for the job itself")
    return EventSourceResponse(_events(service, job_id, first, last_event_id))


@dataclass(frozen=True)
class _News:
    """A job as an event; `id` is the same for as long as there is no news, and no `data` then."""

    id: str
    data: str
    last: bool


async def _events(
    service: Service, job_id: int, news: _News, last_event_id: str | None
) -> AsyncIterator[ServerSentEvent]:
    stream = object()
    service.streams.add(stream)
    try:
        while True:
            if news.id != last_event_id:
                last_event_id = news.id
                yield ServerSentEvent(event="progress", id=news.id, data=news.data)
            if news.last:
                return
            await asyncio.sleep(LOOK_EVERY)
            try:
                news = await to_thread.run_sync(_look, service, job_id, last_event_id)
            except db.UnavailableError:
                continue  # the next look may succeed
            except db.NotFoundError:
                return  # it has ended and was deleted since
    finally:
        service.streams.discard(stream)


def _look(service: Service, job_id: int, last_event_id: str | None) -> _News:
    """Return what there is to say of a job, all in a thread. What was asked for never changes, and
    the result comes with the state.
    """
    with db.reading(service.engine) as session:
        job = summary(session, job_id)
        event_id = hashlib.sha256(job.model_dump_json().encode()).hexdigest()[:16]
        data = document(session, job_id) if event_id != last_event_id else ""
    return _News(event_id, data, job.state in ENDED)
