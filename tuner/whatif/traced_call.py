"""One simulated call with the times of all its transfers, as columns of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError, ScheduleError
from tuner.core.collective import Collective, Held
from tuner.core.schedule import Round, Schedule
from tuner.machines import Machine
from tuner.machines.model_accuracy import NCCL
from tuner.prediction.call_candidates import Candidate
from tuner.sim.critical_paths import TIME_COMPONENTS, Explanation, PathSegment
from tuner.sim.flat_schedule import FlatSchedule, flatten_schedule
from tuner.sim.transfers import TransferTable, row_bytes
from tuner.topology import Placement
from tuner.whatif.live_study import one_machine_study
from tuner.whatif.machine_picture import picture_record
from tuner.whatif.study_tasks import TaskEvaluator, algorithms_at

MAX_SHOWN_ROWS = 400_000  # of transfers and copies
MAX_CROSSED_LINKS = 1_000_000  # of all paths together
TICKS_DIGITS = 9  # of the whole call in ticks, so that times are short whole numbers
COPYING, REDUCING = "copying", "reducing"


@dataclass(frozen=True)
class SimulatedCall:
    """A call and its run.

    rows            the rows of the schedule that have bytes, those within a rank included
    nccl_seconds    what NCCL's own model predicts instead; None where it does not
    """

    machine: Machine
    placement: Placement
    memory: str
    candidate: Candidate
    nbytes: int
    schedule: Schedule
    rows: FlatSchedule
    run: Explanation
    nccl_seconds: float | None


def trace_call(record: Any, params: Mapping[str, int]) -> SimulatedCall:
    """Simulate one call.

    record      a study of one machine, one collective, one size and one algorithm
    params      of the algorithm

    Raises InputError for what is no such call and for one with too many transfers.
    """
    study = one_machine_study(record)
    (nbytes,), (collective,) = study.sizes, study.collectives
    algorithms_at(study, study.grid[0], collective)  # raises where its NCCL lacks the algorithm
    evaluator, candidate = TaskEvaluator(study), Candidate(study.algorithms[0], dict(params))
    predictor = evaluator.predictor(0)
    placement, memory, choice = predictor.placement, predictor.memory, candidate.choice
    try:
        schedule = predictor.schedule(collective, choice, nbytes)
        run = predictor.explain(schedule, nbytes)
        plain = replace(schedule, make_rounds=partial(_consecutive_rounds, schedule))
        rows = flatten_schedule(plain, placement.node_of, memory)
    except ScheduleError as reason:  # rounds are made when they are asked for
        raise InputError(f"{candidate} is not possible: {reason}") from None
    rows = rows.select(row_bytes(schedule, rows, nbytes) > 0.0)
    is_of_nccl = predictor.model_of(collective, choice) == NCCL
    predicted = predictor.seconds(collective, choice, nbytes) if is_of_nccl else None
    return SimulatedCall(
        evaluator.machine(0), placement, memory, candidate, nbytes, schedule, rows, run, predicted
    )


def _consecutive_rounds(schedule: Schedule) -> Iterator[Round]:
    """Yield the rounds without runs; raise InputError where that makes too many rows."""
    made = 0
    for r in schedule.rounds():
        plain = r.consecutive()
        made += len(plain)
        if made > MAX_SHOWN_ROWS:
            raise InputError(
                f"{schedule} copies single blocks, which makes more than {MAX_SHOWN_ROWS} rows,"
                " too many to show: take fewer ranks"
            )
        yield plain


def call_record(call: SimulatedCall) -> dict[str, Any]:
    """Return a call as JSON data; times in columns are whole numbers of ticks.

    Raises InputError where its paths have too many links.
    """
    run, schedule = call.run, call.schedule
    tick = _tick(run.seconds)
    return {
        "collective": schedule.collective.value,
        "candidate": str(call.candidate),
        "nbytes": call.nbytes,
        "memory": call.memory,
        "root": schedule.root,
        "chunks": schedule.n_chunks,
        "holders": _holders(schedule.collective),
        "seconds": run.seconds,
        "nccl_seconds": call.nccl_seconds,
        "components": dict(run.components),
        "tick": tick,
        "ranks": {
            "node": call.placement.node_of.tolist(),
            "device": call.placement.rank_devices(call.memory).device.tolist(),
        },
        "transfers": _transfer_columns(call, tick),
        "local": _local_columns(call.rows),
        "paths": _path_columns(run.table),
        "work": _work_columns(run, tick),
        "critical_path": _critical_path_columns(list(run.path), tick),
        "machine": picture_record(call.machine.topology),
    }


def _tick(seconds: float) -> float:
    digits = math.ceil(math.log10(seconds)) if seconds > 0.0 else 0
    return float(f"1e{digits - TICKS_DIGITS}")


def _ticks(seconds: FloatArray, tick: float) -> list[int]:
    whole: list[int] = np.rint(seconds / tick).astype(np.int64).tolist()
    return whole


def _holders(collective: Collective) -> str:
    """Return who holds a chunk at the beginning: its `owner`, the `root`, or `all`.

    It is `all_in_scratch` where every rank holds all chunks, each by so many chunks further on.
    """
    return {
        Held.BLOCK: "owner",
        Held.WHOLE: "all",
        Held.WHOLE_AT_ROOT: "root",
        Held.FOR_EACH: "all_in_scratch",
    }[collective.spec.before]


def _transfer_columns(call: SimulatedCall, tick: float) -> dict[str, list[int]]:
    spans, table = call.run.transfers, call.run.table
    rows = call.rows.select(call.rows.src != call.rows.dst)
    started = np.array([span.started for span in spans])
    times = {
        "started": started,
        "flowing": started + table.overhead,
        "released": np.array([span.released for span in spans]),
        "arrived": np.array([span.arrived for span in spans]),
    }
    names = ("src", "dst", "round", "src_chunk", "dst_chunk", "count", "reduce")
    return {
        **{name: getattr(rows, name).tolist() for name in names},
        "nbytes": np.rint(table.nbytes).astype(np.int64).tolist(),
        "path": np.unique(table.path, return_inverse=True)[1].tolist(),
        **{name: _ticks(values, tick) for name, values in times.items()},
    }


def _local_columns(rows: FlatSchedule) -> dict[str, list[int]]:
    own = rows.select(rows.src == rows.dst)
    names = ("src", "round", "src_chunk", "dst_chunk", "count", "reduce")
    return {name: getattr(own, name).tolist() for name in names}


def _path_columns(table: TransferTable) -> dict[str, list[Any]]:
    """Return the links of each path that is taken: path i has links start[i] .. start[i + 1] - 1.

    load    bytes that cross a link for each byte sent
    """
    used = np.unique(table.path)
    links, load = table.links[used], table.load_factor[used]
    there = links >= 0
    if there.sum() > MAX_CROSSED_LINKS:
        raise InputError(
            f"the transfers of this call have paths of {there.sum()} links together, more than the"
            f" {MAX_CROSSED_LINKS} that can be shown: take fewer ranks"
        )
    return {
        "start": np.concatenate([[0], np.cumsum(there.sum(axis=1))]).tolist(),
        "links": links[there].tolist(),
        "load": np.round(load[there], 6).tolist(),
    }


def _work_columns(run: Explanation, tick: float) -> dict[str, list[int]]:
    """Return the copies and reductions of the ranks; kinds are `COPYING` and `REDUCING`."""
    own = run.timeline
    begin = np.concatenate([own.entered, own.completed])
    end = np.concatenate([own.copied, own.exited])
    lasting = end > begin
    return {
        "rank": np.tile(own.rank, 2)[lasting].tolist(),
        "kind": np.repeat(np.arange(2), len(own.rank))[lasting].tolist(),
        "begin": _ticks(begin[lasting], tick),
        "end": _ticks(end[lasting], tick),
    }


def _critical_path_columns(path: list[PathSegment], tick: float) -> dict[str, list[int]]:
    """Return the segments in order; components are those of `TIME_COMPONENTS`."""
    return {
        "component": [TIME_COMPONENTS.index(one.component) for one in path],
        "rank": [one.rank for one in path],
        "transfer": [one.transfer for one in path],
        "begin": _ticks(np.array([one.begin for one in path]), tick),
        "end": _ticks(np.array([one.end for one in path]), tick),
    }
