"""Studies: what if the machine were another one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from tuner import db
from tuner.api.bodies import Raw, accepts, record_of
from tuner.api.problems import Problem, documented
from tuner.api.routes.jobs import JobSummary, shown
from tuner.api.schemas import PREFIX, IdInPath, Page, Paging
from tuner.api.service import Asking, Serving
from tuner.cost import Calibration
from tuner.errors import InputError, quoted
from tuner.sim.study import study_from, study_record
from tuner.table import TuningTable
from tuner.topologies import given_calibration, topology_from_record
from tuner.topologies.machines import load_machine
from tuner.topologies.presets import Machine
from tuner.topologies.short import PREFIX as PRESET

router = APIRouter(prefix=f"{PREFIX}/studies", tags=["studies"], responses=documented())
KIND = "study"
EXAMPLE = {
    "name": "twice the network",
    "topology": {"name": "flat8", "nodes": 8, "latency": "2us", "bandwidth": "12.5GB/s"},
    "vary": {"nodes": [4, 8], "bandwidth": ["12.5GB/s", "25GB/s"]},
    "collectives": ["allreduce"], "sizes": ["1KiB", "1MiB"],
}  # fmt: skip


class References:
    """What a study names by id, from the database."""

    def __init__(self, session: db.Session) -> None:
        self._session = session

    def machine(self, name: str) -> Machine:
        """A preset, or a topology that is stored; raises InputError, also for the others."""
        if name.startswith(PRESET):
            return load_machine(name)
        topology = topology_from_record(db.load_topology(self._session, _id(name)).record)
        return Machine(topology.name, topology, given_calibration(topology))

    def calibration(self, name: str) -> Calibration:
        """By id."""
        return db.load_calibration(self._session, _id(name))

    def table(self, name: str) -> TuningTable:
        """By version."""
        return db.load_table(self._session, _id(name))


def _id(name: str) -> int:
    if not name.isascii() or not name.isdigit() or len(name) > 9:
        raise InputError(f"{quoted(name)} is no id: a study names what is stored here by its id")
    return int(name)


class StudyJob(BaseModel):
    """A study is a job: both have the same id."""

    id: int
    job: JobSummary


class Study(StudyJob):
    """A study with its question, and its answer once it is done."""

    spec: dict[str, Any]
    result: dict[str, Any] | None


@router.post("", status_code=202, openapi_extra=accepts({"application/json": EXAMPLE}))
def enqueue(service: Serving, body: Raw, client: Asking) -> StudyJob:
    """Queue a study. Topology, calibration and table may be given whole or by id."""
    spec = record_of(body)
    with db.reading(service.engine) as session:
        try:
            record = study_record(study_from(spec, References(session)))
        except db.NotFoundError as reason:  # not what the URL names, but what the body does
            raise Problem(422, str(reason)) from None
    with db.transaction(service.engine) as session:
        number = db.enqueue(session, KIND, record, by=client.name)
        return _queued(session, number)


def _queued(session: db.Session, number: int) -> StudyJob:
    return StudyJob.model_construct(id=number, job=shown(session, number))


@router.get("", response_model=Page[StudyJob])
def listing(service: Serving, paging: Annotated[Paging, Query()]) -> Any:
    """All studies."""
    with db.reading(service.engine) as session:
        page = db.list_jobs(session, kind=KIND, after=paging.after, limit=paging.limit)
    items = [{"id": job.id, "job": job} for job in page.items]
    return {"items": items, "next": page.next}


@router.get("/{study_id}", responses=documented(404))
def one(service: Serving, study_id: IdInPath) -> Study:
    """One study."""
    with db.reading(service.engine) as session:
        job = shown(session, study_id)
    if job.kind != KIND:
        raise Problem(404, f"job {study_id} is no study")
    return Study.model_construct(id=study_id, job=job, spec=job.spec, result=job.result)
