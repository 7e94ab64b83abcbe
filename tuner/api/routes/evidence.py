"""Evidence for a table: figures, checks against the library, measured calls, native formats."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from tuner import db
from tuner.api.native_offers import NativeFormat, offer_formats
from tuner.api.problems import problem_responses
from tuner.api.schemas import API_PREFIX, CollectiveName, Count, Identifier, PathId, QueryParameters
from tuner.api.service import Service, ServiceDep
from tuner.core.measurement import Measurements
from tuner.core.table import RuleKey, TuningTable
from tuner.report.measured_gain import mean_gain, measured_gains, rule_gains
from tuner.report.summary import describe_gain, geometric_mean_speedup, split_control
from tuner.select.call_evidence import describe_call
from tuner.select.table_diff import visible_rules

router = APIRouter(prefix=f"{API_PREFIX}/tables", tags=["tables"], responses=problem_responses(404))
MAX_SERIES = 50_000  # of one call that are evaluated
MAX_INLINE_SERIES = 100  # that take less time to evaluate than starting a worker


class CallGain(BaseModel):
    """Gain of a table for one collective on one shape.

    changed     sizes with evidence at which the table leaves the default
    measured    of them, those with measured rules
    gain        over the default at these sizes, geometric mean; 1 without any
    """

    collective: str = Field(examples=["bcast"])
    nodes: int = Field(examples=[4])
    ppn: int = Field(examples=[2])
    memory: str = Field(examples=["host"])
    operators: str = Field(examples=["any"])
    placement: str = Field(examples=["consecutive"])
    sizes: list[int] = Field(examples=[[1024, 65536]], description="bytes, with evidence")
    changed: int = Field(examples=[1])
    measured: int = Field(examples=[1])
    gain: float = Field(examples=[1.31])


class TableOverview(BaseModel):
    """A table in a few figures.

    gain        over the default where measured rules leave it, geometric mean over their calls, at
                the sizes that the rules were made from; 1 without any
    compared    calls that were compared with the default at held-out sizes
    outcome     what is known of the gain, in words: of that comparison, else of `gain`
    proved      gain of changed calls at held-out sizes with its 95 % interval
    """

    rules: int = Field(examples=[21])
    changing: int = Field(examples=[9], description="rules that leave the default")
    calls: list[CallGain]
    bases: dict[str, int] = Field(examples=[{"measured": 12, "none": 9}])
    changing_bases: dict[str, int] = Field(
        examples=[{"measured": 9}], description="of the rules that leave the default"
    )
    gain: float = Field(examples=[1.31])
    proved: tuple[float, float, float] | None = Field(examples=[[1.28, 1.21, 1.35]])
    compared: int = Field(examples=[30])
    outcome: str = Field(examples=["All rules leave calls to the library's default."])
    validated: int = Field(examples=[20], description="rules that were tried in the library")
    confirmed: int = Field(examples=[20], description="of them, those that it followed")


class Validation(BaseModel):
    """Algorithm that the library was seen to execute where a rule applied."""

    collective: str = Field(examples=["bcast"])
    p: int = Field(examples=[4])
    nbytes: int = Field(examples=[65536])
    expected: str = Field(examples=["binomial"])
    executed: str = Field(examples=["binomial"])
    confirmed: bool = Field(examples=[True])
    reason: str = Field(examples=[""])


class HeldoutTime(BaseModel):
    """The table against the library's default at a size that decided nothing."""

    collective: str = Field(examples=["bcast"])
    p: int = Field(examples=[4])
    nbytes: int = Field(examples=[49152])
    algorithm: str = Field(examples=["binomial"])
    default_s: float = Field(examples=[5.1e-05])
    tuned_s: float = Field(examples=[3.9e-05])
    ratio: float = Field(examples=[1.31], description="default over tuned time")
    ci95: tuple[float, float] = Field(examples=[[1.22, 1.41]])


class TableChecks(BaseModel):
    """The checks that a table underwent, both empty where it did not."""

    validations: list[Validation]
    heldout: list[HeldoutTime]


class CallKeyQuery(QueryParameters):
    """A collective on one shape."""

    collective: CollectiveName
    nodes: Count = Field(examples=[1])
    ppn: Count = Field(examples=[4], description="ranks per node")
    memory: Identifier = Field("host", examples=["host"])
    operators: Literal["any", "commutative"] = "any"
    placement: Literal["consecutive", "cyclic"] = "consecutive"

    def key(self) -> RuleKey:
        """Return the key of the rules for the call."""
        return RuleKey(
            self.collective, self.nodes, self.ppn, self.memory, self.operators, self.placement
        )


class RuleReason(BaseModel):
    """A rule of the call, as in the table, and why it chooses as it does."""

    start_bytes: int = Field(examples=[0])
    stop_bytes: int | Literal["inf"] = Field(examples=["inf"])
    choice: dict[str, Any] = Field(examples=[{"algorithm": "binomial"}])
    why: str = Field(examples=["Measured at 64KiB: 1.31 times as fast as the default."])


class CandidateTime(BaseModel):
    """Measured times of one candidate, or of the default, at one size."""

    nbytes: int = Field(examples=[65536])
    name: str = Field(examples=["binomial"], description="with its parameters")
    algorithm: str = Field(examples=["binomial"])
    samples: int = Field(examples=[60])
    launches: int = Field(examples=[3])
    seconds: float = Field(examples=[3.9e-05])
    low: float = Field(examples=[3.7e-05])
    high: float = Field(examples=[4.2e-05])
    gain: float | None = Field(examples=[1.31], description="default over this time")
    gain_ci95: tuple[float, float | None] | None = Field(examples=[[1.22, 1.41]])
    is_faster: bool = Field(examples=[True], description="than the default, surely")


class CallEvidence(BaseModel):
    """Everything known about a collective on one shape.

    measurements_id     of the probe that the table was made from; null where it is not stored
    """

    measurements_id: int | None = Field(examples=[1])
    rules: list[RuleReason]
    candidates: list[CandidateTime]


class OperatorsQuery(QueryParameters):
    """The operators that the files are for, where a format cannot tell them apart."""

    operators: Literal["any", "commutative"] = "any"


@router.get("/{version}/overview")
def get_overview(service: ServiceDep, version: PathId) -> TableOverview:
    """Coverage and gain of one version."""
    with db.read_session(service.engine) as session:
        table = db.load_table(session, version)
        heldout = db.load_heldout(session, version)
        validations = db.load_validations(session, version)
    calls = [_call_gain(table, key) for key in table.keys]
    changing = [rule for rule in table.rules if not rule.choice.is_default]
    changed, _ = split_control(heldout)
    return TableOverview(
        rules=len(table.rules),
        changing=len(changing),
        calls=calls,
        bases=Counter(rule.evidence.basis for rule in table.rules),
        changing_bases=Counter(rule.evidence.basis for rule in changing),
        gain=mean_gain(measured_gains(table.rules)),
        proved=geometric_mean_speedup(changed) if changed else None,
        compared=len(heldout),
        outcome=describe_gain(table, heldout),
        validated=len(validations),
        confirmed=sum(each["confirmed"] for each in validations),
    )


@router.get("/{version}/checks")
def get_checks(service: ServiceDep, version: PathId) -> TableChecks:
    """Return the algorithm executed under each rule, and times at sizes that decided nothing."""
    with db.read_session(service.engine) as session:
        db.describe_table(session, version)
        return TableChecks.model_validate(
            {
                "validations": db.load_validations(session, version),
                "heldout": db.load_heldout(session, version),
            }
        )


@router.get("/{version}/formats")
def list_formats(
    service: ServiceDep, version: PathId, query: Annotated[OperatorsQuery, Query()]
) -> list[NativeFormat]:
    """The formats of the table's library, and the rules that each leaves out.

    `GET /v1/tables/{version}?format=` returns the file.
    """
    with db.read_session(service.engine) as session:
        table = db.load_table(session, version)
    return offer_formats(table, query.operators, service.generic_rules)


@router.get(
    "/{version}/call",
    response_class=Response,
    responses=problem_responses(extra_responses={200: {"model": CallEvidence}}),
)
async def get_call(
    service: ServiceDep, version: PathId, query: Annotated[CallKeyQuery, Query()]
) -> Response:
    """The rules for a collective on one shape with their reasons, and what was measured of it."""
    cached = f"call {version} {query.model_dump_json()}"
    known = service.answers.get(cached)
    if known is None:
        known = await to_thread.run_sync(
            partial(_call_json, service, version, query.key()), limiter=service.long_limiter
        )
        service.answers.add(cached, known)
    return Response(known, media_type="application/json")


def _call_json(service: Service, version: int, key: RuleKey) -> bytes:
    """Return the evidence of a call, which a worker computes where it takes time."""
    with db.read_session(service.engine) as session:
        described = db.describe_table(session, version)
        table = db.load_table(session, version)
        source = described.measurements_id
        measured = None if source is None else _measurements_of(session, source, key, table)
    part = TuningTable(
        table.cluster, table.library, tuple(visible_rules(key, table)), table.provenance
    )
    is_small = measured is None or len(measured.series) <= MAX_INLINE_SERIES
    if service.workers is None or is_small:
        found = describe_call(part, measured)
    else:
        found = service.workers.run(describe_call, part, measured)
    return json.dumps({"measurements_id": source, **found}, allow_nan=False).encode()


def _measurements_of(
    session: db.Session, source: int, key: RuleKey, table: TuningTable
) -> Measurements:
    """Return what was measured of a call."""
    about = db.describe_measurements(session, source)
    page = db.list_series(
        session, source, collective=key.collective.value, p=key.p, limit=MAX_SERIES
    )
    wanted = (key.nodes, key.ppn, key.memory, key.placement)
    series = tuple(
        each for each in page.items if (each.nodes, each.ppn, each.memory, each.placement) == wanted
    )
    return Measurements(table.cluster, table.library, about.provenance, series)


def _call_gain(table: TuningTable, key: RuleKey) -> CallGain:
    rules = table.rules_for(key)
    gains = [gain for rule in rules for gain in rule_gains(rule)]
    return CallGain(
        collective=key.collective.value,
        nodes=key.nodes,
        ppn=key.ppn,
        memory=key.memory,
        operators=key.operators,
        placement=key.placement,
        sizes=sorted({nbytes for rule in rules for nbytes in rule.evidence.nbytes}),
        changed=len(gains),
        measured=len(measured_gains(rules)),
        gain=mean_gain(gains),
    )
