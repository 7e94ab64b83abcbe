"""What the ranks of a replay do in an iteration, in a file that needs no simulator to be read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import dataclass_from_record, load_json, write_atomically
from tuner.base.errors import InputError
from tuner.core.table import TuningTable, table_from_record, table_record

PLAN_KIND = "replay-plan"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class ReplayStep:
    """A step of an iteration.

    computes    whether it belongs to the computation; if not, it is a call or a copy of the
                communication
    seconds     duration; of a call the predicted one, which the replay does not need
    after       numbers of the steps of the same iteration that it waits for
    before      numbers of the steps of the iteration before that it waits for
    operation   the call: the value of a `Collective`, `alltoall` or `send`; "" for no call
    nbytes      bytes of the buffer of the call
    size        ranks of each group that makes the call
    stride      distance between neighbouring ranks of a group
    """

    name: str
    computes: bool
    seconds: float
    after: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    operation: str = ""
    nbytes: int = 0
    size: int = 0
    stride: int = 1


@dataclass(frozen=True)
class ReadyTensor:
    """A gradient that is announced when the step `made_by` has ended."""

    nbytes: int
    made_by: int


@dataclass(frozen=True)
class ReplayCycles:
    """Cycles like Horovod's, in which the ranks agree on what is ready everywhere and reduce it.

    tensors         gradients in the order of computation
    cycle_time      seconds between the starts of two cycles, at least
    threshold       bytes of a fused buffer
    cache           whether ranks combine bits; if not, rank 0 gathers requests and answers
    local_size      ranks per node of a hierarchical allreduce; 0 for one that is not
    copy_rate       bytes per second of a copy into or out of a fused buffer; 0: copies take no time
    """

    tensors: tuple[ReadyTensor, ...]
    cycle_time: float
    threshold: int
    cache: bool
    local_size: int
    copy_rate: float


@dataclass(frozen=True)
class ReplayPlan:
    """An iteration of a workload on some number of ranks, and its predicted time.

    seconds     predicted time of an iteration
    compute     seconds that a rank computes in an iteration
    noise       relative standard deviation of the compute time of a rank
    steps       steps in the order in which they begin; if there are cycles, the number after the
                last step stands for the reduction of all gradients
    cycles      how gradients are reduced, if not by the calls among the steps
    table       table that calls follow; None for the library's default
    """

    workload: str
    ranks: int
    nodes: int
    seconds: float
    compute: float
    noise: float
    steps: tuple[ReplayStep, ...]
    cycles: ReplayCycles | None = None
    table: TuningTable | None = None


def plan_text(plan: ReplayPlan) -> str:
    """Return a plan as the text of a file, which is JSON."""
    table = table_record(plan.table) if plan.table else None
    record = {"kind": PLAN_KIND, "version": FORMAT_VERSION, **asdict(plan), "table": table}
    return json.dumps(record, indent=1) + "\n"


def write_plan(plan: ReplayPlan, path: Path) -> None:
    """Write a plan as JSON; raise InputError when it cannot be written."""
    write_atomically(path, plan_text(plan))


def plan_from_text(text: str) -> ReplayPlan | None:
    """Return the plan of a file's text, None for a file of another kind; raise InputError.

    An invalid plan gives an error; a text that is no JSON, or JSON of another kind, gives None.
    """
    try:
        record = load_json(text)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("kind") != PLAN_KIND:
        return None
    return _plan_from_record(record)


def _plan_from_record(record: dict[str, Any]) -> ReplayPlan:
    try:
        if record.get("version") != FORMAT_VERSION:
            raise ValueError(f"not of version {FORMAT_VERSION}")
        own = {key: value for key, value in record.items() if key not in ("kind", "version")}
        if own["table"] is not None:
            own["table"] = table_from_record(own["table"])
        plan = dataclass_from_record(ReplayPlan, own)
        _check_steps(plan)
    except (ValueError, TypeError, KeyError) as reason:
        raise InputError(
            f"not a plan of a replay ({reason}); write it again with --write-plan"
        ) from None
    return plan


def _check_steps(plan: ReplayPlan) -> None:
    """Raise ValueError for steps that wait for later ones, which would never begin."""
    known = len(plan.steps) + (plan.cycles is not None)
    made = [one.made_by for one in plan.cycles.tensors] if plan.cycles else []
    for number, step in enumerate(plan.steps):
        limit = known if plan.cycles and step.computes else number
        if any(not 0 <= other < limit or other == number for other in step.after):
            raise ValueError(f"step {step.name} waits for one that is not before it")
        if any(not 0 <= other < known for other in step.before) or step.seconds < 0:
            raise ValueError(f"step {step.name} has a negative time or waits for no step")
    if any(not 0 <= number < len(plan.steps) for number in made):
        raise ValueError("a gradient is made by no step")
