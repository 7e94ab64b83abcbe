"""What-if questions: one collective on one machine, answered while it is computed."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field

from tuner import db
from tuner.algorithms import REQUIREMENTS, algorithm_names, describe
from tuner.api.live_answers import LiveAnswer
from tuner.api.problems import Problem, problem_responses, text_response_docs
from tuner.api.resolve import DatabaseResolver, with_stored_topology
from tuner.api.schemas import (
    API_PREFIX,
    CollectiveName,
    Identifier,
    QueryParameters,
    RequestBody,
    SizeInBytes,
)
from tuner.api.service import ServiceDep
from tuner.core.collective import Collective
from tuner.machines import PRESETS, preset_spec
from tuner.machines.loader import load_preset
from tuner.machines.yaml_machines import PRESET_PREFIX
from tuner.whatif.axes import AXES
from tuner.whatif.library_default import DEFAULT_PREFIX
from tuner.whatif.machine_axes import describe_axes

router = APIRouter(prefix=f"{API_PREFIX}/what-if", tags=["what-if"], responses=problem_responses())
NDJSON_MEDIA_TYPE = "application/x-ndjson"
NAME = "what if"  # of the study that a question is
MAX_SIZES = 64
MAX_SENT_ANSWERS = 200  # that clients of one process are reading, or do not read
MAX_CACHED_MACHINES = 64
DESCRIBED_NODES = 64  # of a preset, enough for every kind of link

Reference = Annotated[
    str, Field(min_length=1, max_length=100, examples=["preset:dgx-a100"], pattern=r"^[^\x00]+$")
]
AxisValue = Annotated[int | float, Field(gt=0, le=1e15)] | Annotated[str, Field(max_length=40)]


class Question(RequestBody):
    """A machine with its axes at certain values, and a collective."""

    topology: Reference = Field(description="`preset:NAME`, or the id of a topology")
    axes: dict[Identifier, AxisValue] = Field(
        {},
        max_length=20,
        description="values of axes as in the `vary` of a study, one each",
        examples=[{"nodes": 16, "bandwidth": "400Gb/s"}],
    )
    collective: CollectiveName
    sizes: list[SizeInBytes] = Field(min_length=1, max_length=MAX_SIZES, examples=[[1024, 1048576]])
    algorithms: list[Identifier] = Field([], max_length=50, description="all, if left out")
    library: Literal["openmpi", "mpich"] | None = Field(
        None, description="MPI library whose own choices are priced, too, and named"
    )
    without: list[Identifier] = Field(
        [],
        max_length=100,
        description="capabilities of the topology and algorithms to leave out; `configured` stands"
        " for the capabilities that administrators have to configure",
        examples=[["configured"]],
    )
    first: list[Annotated[str, Field(max_length=200)]] = Field(
        [], max_length=200, description="labels of schedules of an earlier answer to begin with"
    )
    ahead: bool = Field(
        False,
        description="permission to wait for all other answers: this one is only prepared, for when"
        " the question is asked again",
    )

    def study(self) -> dict[str, Any]:
        """Return the record of the study that the question is."""
        return {
            "name": NAME,
            "topology": self.topology,
            "vary": {name: [value] for name, value in self.axes.items()},
            "collectives": [self.collective.value],
            "sizes": self.sizes,
            **({"algorithms": self.algorithms} if self.algorithms else {}),
            **({"table": f"{DEFAULT_PREFIX}{self.library}"} if self.library else {}),
            **({"without": self.without} if self.without else {}),
        }


@router.post(
    "",
    response_class=StreamingResponse,
    responses=problem_responses(extra_responses=text_response_docs(NDJSON_MEDIA_TYPE)),
)
async def answer_question(service: ServiceDep, question: Question) -> Response:
    """Stream the times of the candidates as lines of JSON, as soon as they are known.

    A variant of an algorithm is left out at a size where it takes longer than another one of the
    same algorithm, as soon as that is certain: the best time of every algorithm is that of a study.

    The first line says that work has `begun`, at once; `compiling` follows where the simulation
    must be compiled, which takes a minute, once. Then come the `outline`, lines of `times`, of
    `gains` with each resource twice as fast, the `limits` that follow from these, and the `end`; or
    a `problem` with its `detail`, if such a machine or call cannot be priced. Nothing is stored.
    Close the connection to give up the rest.
    """
    key = json.dumps(question.model_dump(mode="json", exclude={"first", "ahead"}), sort_keys=True)
    known = service.answers.get(key)
    if known is not None:
        return Response(known, media_type=NDJSON_MEDIA_TYPE)
    study = await to_thread.run_sync(with_stored_topology, service.engine, question.study())
    if len(service.open_answers) >= MAX_SENT_ANSWERS // (2 if question.ahead else 1):
        raise Problem(503, f"{MAX_SENT_ANSWERS} answers are being sent: ask again soon")
    answer = LiveAnswer(
        service, key, json.dumps(study, sort_keys=True), question.first, question.ahead
    )
    return StreamingResponse(answer.lines(), media_type=NDJSON_MEDIA_TYPE)


class KnownMachine(BaseModel):
    """A machine that comes with tuner."""

    topology: str = Field(examples=["preset:dgx-a100"])
    title: str = Field(examples=["NVIDIA DGX A100"])


class Catalogue(BaseModel):
    """Names that a question may use.

    algorithms      of each collective, on any machine
    parameters      of each collective's algorithms that have some, with their defaults
    """

    machines: list[KnownMachine]
    algorithms: dict[str, list[str]] = Field(examples=[{"bcast": ["binomial", "chain"]}])
    parameters: dict[str, dict[str, dict[str, int]]] = Field(
        examples=[{"bcast": {"chain": {"chains": 4, "segment": 0}}}]
    )
    axes: list[str] = Field(examples=[["nodes", "ppn"]])


@router.get("/catalogue")
def get_catalogue() -> Catalogue:
    """The machines, collectives, algorithms and axes that a question may name."""
    return Catalogue(
        machines=known_machines(),
        algorithms={each.value: sorted(algorithm_names(each, REQUIREMENTS)) for each in Collective},
        parameters={each.value: known_parameters(each) for each in Collective},
        axes=list(AXES),
    )


class MachineQuery(QueryParameters):
    """The machine that is wanted."""

    topology: Reference


class MachineAxes(BaseModel):
    """Axes along which a machine can be changed, and its own values on them."""

    name: str = Field(examples=["dgx-a100"])
    title: str = Field(examples=["NVIDIA DGX A100"], description="empty for a topology alone")
    fabric: str = Field(examples=["fat tree of 2 levels"], description="empty likewise")
    nodes: int = Field(examples=[140])
    max_nodes: int = Field(examples=[16384])
    cores: int = Field(examples=[128], description="per node")
    gpus: int = Field(examples=[8], description="per node")
    gpu: str = Field(examples=["A100"], description="product; empty where it is not known")
    ppn: int = Field(examples=[8])
    memory: str = Field(examples=["cuda"])
    nics: int = Field(examples=[8], description="per node")
    bandwidth: float | None = Field(examples=[2.36e10], description="of a link at a node")
    line_rate: float | None = Field(examples=[2.5e10], description="of its port")
    latency: float | None = Field(examples=[3.3e-06], description="between nodes on one switch")
    taper: float | None = Field(examples=[1.0])
    configured: list[str] = Field(
        examples=[["multicast"]], description="offered, and to be configured by administrators"
    )
    axes: list[str] = Field(examples=[["nodes", "ppn", "bandwidth"]])
    nccl_versions: list[str] = Field(
        examples=[["2.32.3", "2.31.2"]], description="that choose differently, the newest first"
    )
    known_gpus: list[str] = Field(examples=[["A100", "H100"]])


@router.get("/machine", response_model=MachineAxes)
def get_machine(service: ServiceDep, asked: Annotated[MachineQuery, Query()]) -> Any:
    """One machine: its axes, and the values that it has itself."""
    return machine_axes(service.engine, asked.topology)


def machine_axes(engine: db.Engine, topology: str) -> dict[str, Any]:
    """Return the axes of a preset or of the topology of an id; raises InputError."""
    if topology.startswith(PRESET_PREFIX):
        return _preset_axes(topology)
    with db.read_session(engine) as session:
        return describe_axes(DatabaseResolver(session).machine(topology))


@lru_cache(MAX_CACHED_MACHINES)
def _preset_axes(topology: str) -> dict[str, Any]:
    """Return the axes of a preset, found on a few of its nodes, as it may have thousands."""
    name, colon, _ = topology.removeprefix(PRESET_PREFIX).partition(":")
    nodes = int(preset_spec(name).nodes.value)
    if colon or nodes <= DESCRIBED_NODES:
        return describe_axes(load_preset(topology))
    return {**describe_axes(load_preset(f"{topology}:{DESCRIBED_NODES}")), "nodes": nodes}


def known_parameters(collective: Collective) -> dict[str, dict[str, int]]:
    """Return the parameters of the algorithms that have some, with their defaults."""
    entries = (describe(collective, name) for name in algorithm_names(collective, REQUIREMENTS))
    return {entry.name: dict(entry.params) for entry in entries if entry.params}


def known_machines() -> list[KnownMachine]:
    """Return the presets."""
    return [
        KnownMachine(topology=f"{PRESET_PREFIX}{name}", title=preset_spec(name).title)
        for name in PRESETS
    ]
