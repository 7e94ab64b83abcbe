"""Training: a model on one machine, predicted while the answer is sent."""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field

from tuner import db
from tuner.api.problems import problem_responses, text_response_docs
from tuner.api.resolve import with_stored_topology
from tuner.api.routes.what_if import (
    NDJSON_MEDIA_TYPE,
    AxisValue,
    KnownMachine,
    MachineAxes,
    MachineQuery,
    Reference,
    known_machines,
    machine_axes,
)
from tuner.api.schemas import API_PREFIX, Identifier, Name, RequestBody, example_config
from tuner.api.service import ServiceDep
from tuner.api.setting_models import settings_model
from tuner.api.training_answers import begin_prediction, training_trace
from tuner.base.file_settings import MAX_TEXT, declared_settings
from tuner.machines.loader import machine_from_record
from tuner.machines.yaml_machines import PRESET_PREFIX
from tuner.training.models.transformers import Architecture
from tuner.training.published import MAX_RESULTS, PublishedSettings
from tuner.training.published_workloads import (
    PUBLISHED_PREFIX,
    published_machine,
    published_workloads,
)
from tuner.training.workload_settings import WorkloadSettings
from tuner.whatif.machine_axes import describe_axes

router = APIRouter(
    prefix=f"{API_PREFIX}/training", tags=["training"], responses=problem_responses()
)
MAX_POINTS = 40
MAX_RANKS = 1 << 15
MAX_TABLE_CHARACTERS = 200_000

Ranks = Annotated[int, Field(ge=1, le=MAX_RANKS)]
SettingValue = bool | int | float | Annotated[str, Field(max_length=MAX_TEXT)]


class Transformer(settings_model(Architecture)):  # type: ignore[misc]  # made from the settings
    """A transformer by the numbers of its architecture."""

    kind: Literal["gpt", "bert", "llama", "mixtral"]
    name: Name | None = None


class LayerTable(RequestBody):
    """A model by the times or the operations of its layers, as CSV."""

    table: str = Field(
        max_length=MAX_TABLE_CHARACTERS,
        examples=["name,forward_ms,backward_ms,elements\nfc,0.3,0.6,2048000\n"],
    )
    name: Name = "layers"


class Published(settings_model(PublishedSettings)):  # type: ignore[misc]  # made from the settings
    """A published result to compare with; one of rate, efficiency and speedup."""


_OF_FILES = {"calibration", "defaults"}  # settings that name files
_IN_ANOTHER_FORM = {"name", "topology", "model", "framework", "ranks", "algorithms", "published"}


class TrainingQuestion(settings_model(WorkloadSettings, _OF_FILES | _IN_ANOTHER_FORM)):  # type: ignore[misc]
    """A workload as `tuner training` reads it, on a machine with its axes at certain values."""

    model_config = example_config(
        topology="preset:dgx-a100",
        model="resnet50",
        batch=64,
        framework={"name": "horovod", "fusion_threshold": "64MiB"},
        ranks=[8, 64],
        noise="2%",
    )

    name: Name | None = None
    topology: Reference = Field(
        description="`preset:NAME`, `published:NAME` of the catalogue, or the id of a topology",
        examples=["preset:dgx-a100"],
    )
    axes: dict[Identifier, AxisValue] = Field(
        {},
        max_length=20,
        description="values of axes as in the `vary` of a sweep, one each",
        examples=[{"bandwidth": "400Gb/s"}],
    )
    model: Identifier | Transformer | LayerTable = Field(examples=["resnet50"])
    framework: Identifier | dict[Identifier, SettingValue] = Field(
        description="name of a framework of the catalogue, or a mapping with it and settings",
        examples=[{"name": "horovod", "fusion_threshold": "64MiB"}],
    )
    ranks: list[Ranks] = Field(
        min_length=1, max_length=MAX_POINTS, description="of the scaling curve", examples=[[8, 64]]
    )
    detail: Ranks | None = Field(
        None, description="ranks that are shown in detail; by default the most", examples=[64]
    )
    algorithms: Literal["default", "best"] | list[Identifier] | None = None
    published: list[Published] | None = Field(None, max_length=MAX_RESULTS)

    def record(self) -> dict[str, Any]:
        """Return the record that `LiveTraining` takes, whose topology may be an id."""
        given: dict[str, Any] = self.model_dump(
            mode="json", exclude={"axes", "detail"}, exclude_none=True
        )
        detail = self.detail or max(self.ranks)
        vary = {name: [value] for name, value in self.axes.items()}
        return given | {"ranks": sorted({*self.ranks, detail}), "detail": detail, "vary": vary}


@router.post(
    "",
    response_class=StreamingResponse,
    responses=problem_responses(extra_responses=text_response_docs(NDJSON_MEDIA_TYPE)),
)
async def predict_training(service: ServiceDep, question: TrainingQuestion) -> Response:
    """The prediction as lines of JSON, as soon as they are known.

    After the `outline` come a `point` for each number of ranks, the `timeline` and the `limits` of
    the ranks in detail, and a `variant` for each size of buckets and choice of algorithms; then the
    `end`. A line of what cannot be predicted has a `problem`. Nothing is stored. Close the
    connection to give up the rest.
    """
    key = json.dumps(["training", question.record()], sort_keys=True)
    known = service.answers.get(key)
    if known is not None:
        return Response(known, media_type=NDJSON_MEDIA_TYPE)
    record = await to_thread.run_sync(_resolve, service.engine, question.record())
    answer = await begin_prediction(service, key, json.dumps(record, sort_keys=True))
    return StreamingResponse(answer.lines(), media_type=NDJSON_MEDIA_TYPE)


@router.post("/trace", response_model=dict[str, Any])
async def get_trace(service: ServiceDep, question: TrainingQuestion) -> Response:
    """One iteration on the ranks in detail, as a trace that Perfetto and Chrome open."""
    record = await to_thread.run_sync(_resolve, service.engine, question.record())
    trace = await training_trace(service, json.dumps(record, sort_keys=True))
    return Response(trace, media_type="application/json")


class KnownModel(BaseModel):
    """A model that has a name."""

    name: str = Field(examples=["resnet50"])
    unit: Literal["images", "tokens"]


class FrameworkSetting(BaseModel):
    """A setting of a framework.

    kind        how its value is written: size, time, rate, number, flag, or choice
    default     in bytes, seconds or bytes per second
    """

    name: str = Field(examples=["fusion_threshold"])
    kind: str = Field(examples=["size"])
    default: bool | int | float | str
    choices: list[str] = []


class KnownFramework(BaseModel):
    """A framework and its settings."""

    name: str = Field(examples=["horovod"])
    settings: list[FrameworkSetting]


class PublishedWorkload(BaseModel):
    """A workload of the literature.

    workload    as `tuner training run` reads it, but for the name of its topology
    machine     record of its topology where that is no preset
    """

    id: str = Field(examples=["horovod-summit"])
    workload: dict[str, Any]
    machine: dict[str, Any] | None


class TrainingCatalogue(BaseModel):
    """Names that a question may use."""

    machines: list[KnownMachine]
    models: list[KnownModel]
    frameworks: list[KnownFramework]
    precisions: list[str]
    published: list[PublishedWorkload]


@router.get("/catalogue")
def get_training_catalogue() -> TrainingCatalogue:
    """The machines, models, frameworks and published workloads that a question may name."""
    return _catalogue()


@router.get("/machine", response_model=MachineAxes)
def get_training_machine(service: ServiceDep, asked: Annotated[MachineQuery, Query()]) -> Any:
    """One machine, also of a published workload: its axes, and the values that it has itself.

    Training uses the nodes that a machine has; only presets can have more.
    """
    if asked.topology.startswith(PUBLISHED_PREFIX):
        own = describe_axes(machine_from_record(published_machine(asked.topology)))
    else:
        own = machine_axes(service.engine, asked.topology)
    is_preset = asked.topology.startswith(PRESET_PREFIX)
    return own if is_preset else {**own, "max_nodes": own["nodes"]}


@cache
def _catalogue() -> TrainingCatalogue:
    # What predicts is slow to import.
    from tuner.training.compute import PRECISIONS
    from tuner.training.frameworks import FRAMEWORKS
    from tuner.training.models import MODEL_NAMES

    return TrainingCatalogue(
        machines=known_machines(),
        models=[_known_model(name) for name in MODEL_NAMES],
        frameworks=[_known_framework(name) for name in FRAMEWORKS],
        precisions=list(PRECISIONS),
        published=[_published(name, record) for name, record in published_workloads().items()],
    )


def _known_model(name: str) -> KnownModel:
    from tuner.training.models import build_model

    return KnownModel(name=name, unit="tokens" if build_model(name).transformer else "images")


def _known_framework(name: str) -> KnownFramework:
    from tuner.training.frameworks import FRAMEWORKS

    framework = FRAMEWORKS[name]
    defaults = framework.settings
    return KnownFramework(
        name=name,
        settings=[
            FrameworkSetting(
                name=one.name,
                kind=one.kind.name,
                default=defaults[one.name],
                choices=list(one.kind.choices),
            )
            for one in declared_settings(type(framework)).values()
        ],
    )


def _published(name: str, record: dict[str, Any]) -> PublishedWorkload:
    topology = record["topology"]
    own = published_machine(topology) if topology.startswith(PUBLISHED_PREFIX) else None
    return PublishedWorkload(id=name, workload=record, machine=own)


def _resolve(engine: db.Engine, record: dict[str, Any]) -> Any:
    if record["topology"].startswith(PUBLISHED_PREFIX):
        return {**record, "topology": published_machine(record["topology"])}
    return with_stored_topology(engine, record)
