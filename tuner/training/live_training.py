"""A prediction of training that is made in steps, so that it can be watched.

The record is that of a sweep whose axes, but for the ranks, have one value each, with the number of
ranks that are shown in detail under `detail`: their timeline, what limits them, and the variants,
which are other sizes of buckets and other algorithms. The other numbers of ranks are those of the
scaling curve.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError, LimitExceededError, ScheduleError
from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.machines.loader import load_preset, machine_warnings
from tuner.machines.model_accuracy import SIMULATION
from tuner.training.call_times import AlgorithmPolicy
from tuner.training.iteration import PredictedIteration, calls_by_model, predict_iteration
from tuner.training.memory_need import activation_warning, require_memory
from tuner.training.perfetto_trace import trace_text
from tuner.training.policies import FastestKnown, NcclChoice
from tuner.training.scaling import ExplainedIteration, counted_unit, model_record, point_record
from tuner.training.search import describe_settings, setting_grid, with_settings
from tuner.training.server_load import assumed_rate_warning, server_load
from tuner.training.sweep_spec import RANKS, sweep_from_record
from tuner.training.time_shares import time_shares
from tuner.training.timeline import CALL, COPY
from tuner.training.timeline_record import timeline_record
from tuner.training.training_limits import LIMIT_NAMES, limiting_factor, training_limits
from tuner.training.workload import Workload
from tuner.training.workload_settings import BEST, DEFAULT
from tuner.whatif.axes import narrow_uplinks_warning
from tuner.whatif.values import gpus_per_node

MAX_KEPT_MACHINES = 8  # each with the times of its calls
MAX_LAYER_PASSES = 1 << 16  # layers times passes of an iteration: some seconds
POINT, TIMELINE, LIMITS, VARIANT = "point", "timeline", "limits", "variant"
NOWHERE = Path("/nonexistent")  # what names of files would be relative to; there are none

Line = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """Another value of the main setting of a framework, and other algorithms.

    settings    the changed setting; none for a framework without any
    algorithms  DEFAULT, BEST or the name of an algorithm
    """

    settings: Mapping[str, Any]
    algorithms: str


class LiveTraining:
    """Training on one machine, whose answer consists of an outline and the lines of its steps."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        """Check the record; raises InputError for an invalid one.

        The machine and the times of its calls are those of an earlier record with the same machine
        and algorithms, if it is kept.
        """
        spec = {key: value for key, value in record.items() if key != "detail"}
        self.sweep = sweep_from_record({**spec, "topology": _large_enough(spec)}, NOWHERE)
        self.ranks = tuple(int(number) for number in self.sweep.axes[RANKS])
        self.detail = int(record["detail"])
        own, _ = self.sweep.configuration(self.sweep.grid[0])
        _require_short(own)
        self._kept = kept = _keep_machine(own, spec)
        self.workload = replace(
            own,
            machine=kept.workload.machine,
            policy=kept.workload.policy,
            _known_places=kept.workload._known_places,
            _known_times=kept.workload._known_times,
        )

    def outline(self) -> Line:
        """Return what the lines are about; raise InputError where the first cannot be predicted."""
        workload = self.workload
        predicted = calls_by_model([self._detailed])
        predicted.setdefault(SIMULATION, [])  # of variants
        unit, per_sample = counted_unit(workload)
        nodes = -(-self.detail // workload.ppn)
        changed = len(self.sweep.axes) > 1
        return {
            "kind": "outline",
            "name": workload.name,
            "machine": workload.machine.name,
            "unit": unit,
            "per_sample": per_sample,
            **model_record(workload),
            "ranks": list(self.ranks),
            "detail": self.detail,
            "nodes": nodes,
            "ppn": workload.ppn,
            "memory": workload.memory,
            "batch": workload.rank_batch(self.detail),
            "settings": workload.framework.settings,
            "setting": self._main_setting,
            "limits": dict(LIMIT_NAMES),
            "cautions": [text for text in self._cautions() if text],
            "accuracy": workload.machine.accuracy_sentence(predicted, changed=changed),
        }

    @cached_property
    def steps(self) -> tuple[tuple[str, Any], ...]:
        """The steps of the answer in order: kind of line, and ranks or variant."""
        others = [number for number in self.ranks if number != self.detail]
        return (
            (POINT, self.detail),
            (TIMELINE, self.detail),
            *((POINT, number) for number in others),
            (LIMITS, self.detail),
            *((VARIANT, variant) for variant in self._variants()),
        )

    def lines(self, start: int, seconds: float) -> tuple[int, list[Line]]:
        """Carry out steps from `start` for so many seconds, at least a part of one.

        Returns the number of the next step, and the lines, each with the progress made.
        """
        end, found = time.monotonic() + seconds, list[Line]()
        for number in range(start, len(self.steps)):
            if not self._times_calls(number, end):
                return number, found
            found.append({**self._line(number), "done": (number + 1) / len(self.steps)})
            if time.monotonic() > end:
                return number + 1, found
        return len(self.steps), found

    def names(self, start: int) -> list[str]:
        """Return what the steps from `start` on predict, for people."""
        return [_step_name(kind, argument) for kind, argument in self.steps[start:]]

    def trace(self) -> str:
        """Return the iteration that is shown in detail as a trace of Chrome's format."""
        return trace_text(self._detailed)

    def first_line(self) -> Line:
        """Return the line of the first step; raise InputError where it cannot be predicted."""
        return {**self._point(self.detail), "done": 1 / len(self.steps)}

    def _line(self, number: int) -> Line:
        kind, argument = self.steps[number]
        make: Mapping[str, Callable[[Any], Line]] = {
            POINT: self._point,
            TIMELINE: lambda _: {"kind": TIMELINE, **timeline_record(self._detailed)},
            LIMITS: lambda _: self._limits(),
            VARIANT: self._variant,
        }
        try:
            return make[kind](argument)
        except (InputError, ScheduleError) as reason:
            about = {"ranks": argument} if kind != VARIANT else _variant_record(argument)
            return {"kind": kind, **about, "problem": str(reason)}

    @cached_property
    def _detailed(self) -> PredictedIteration:
        require_memory(self.workload, self.detail)
        try:
            return predict_iteration(self.workload, self.detail)
        except ScheduleError as reason:
            raise InputError(str(reason)) from None

    def _point(self, ranks: int) -> Line:
        require_memory(self.workload, ranks)
        found = self._detailed if ranks == self.detail else predict_iteration(self.workload, ranks)
        shares = time_shares(found)
        load = server_load(self.workload, found, self.workload.call_times(ranks))
        explained = ExplainedIteration(found, shares, {}, load)
        hidden = max(0.0, found.communication - shares[CALL] - shares[COPY])
        record = point_record(self.workload, explained)
        return {"kind": POINT, **record, "hidden": min(hidden, found.compute)}

    def _limits(self) -> Line:
        times = self.workload.call_times(self.detail)
        limits = training_limits(self.workload, self._detailed, times)
        limit = limiting_factor(limits, self._detailed)
        return {"kind": LIMITS, "ranks": self.detail, "limits": limits, "limit": limit}

    @property
    def _main_setting(self) -> str | None:
        return next(iter(self._grid), None)

    @cached_property
    def _grid(self) -> Mapping[str, Sequence[Any]]:
        times = self.workload.call_times(self.detail)
        return setting_grid(self.workload.framework, self.detail, times.nodes)

    @property
    def _algorithms(self) -> Iterator[str]:
        """The algorithms of the variants: NCCL's choice, each of its own, the fastest known."""
        times = self.workload.call_times(self.detail)
        of_nccl = times.nccl(times.world)
        if of_nccl:
            yield DEFAULT
            yield from of_nccl.algorithms(Collective.ALLREDUCE, collnet=False)
        yield BEST

    def _variants(self) -> Iterator[Variant]:
        """Yield all variants, those that take longest last."""
        if self.detail == 1:
            return
        for algorithms in self._algorithms:
            for settings in self._tried_settings():
                yield Variant(settings, algorithms)

    def _tried_settings(self) -> list[Mapping[str, Any]]:
        """Return the values of the main setting, with the given one; one without any setting."""
        name = self._main_setting
        if name is None:
            return [{}]
        given = self.workload.framework.settings[name]
        return [{name: value} for value in sorted({*self._grid[name], given})]

    def _times_calls(self, number: int, end: float) -> bool:
        """Time the calls of a variant one by one until a moment, at least one not yet known.

        Returns whether all are known. The calls are those under the workload's own algorithms,
        which are nearly the same.
        """
        kind, variant = self.steps[number]
        if kind != VARIANT or variant.algorithms != BEST:
            return True
        changed = self._changed(variant)
        times = changed.call_times(self.detail)
        own = predict_iteration(replace(changed, policy=self.workload.policy), self.detail)
        unknown = [one.call for one in own.calls if not times.knows(one.call)]
        for left in range(len(unknown), 0, -1):
            try:
                times.timed(unknown[-left])
            except InputError:
                return True  # and the step itself says so
            if time.monotonic() > end:
                return left == 1
        return True

    def _changed(self, variant: Variant) -> Workload:
        framework = with_settings(self.workload.framework, variant.settings)
        policy = self._kept.policy(variant.algorithms)
        return replace(self.workload, framework=framework, policy=policy)

    def _variant(self, variant: Variant) -> Line:
        found = predict_iteration(self._changed(variant), self.detail)
        return {
            "kind": VARIANT,
            **_variant_record(variant),
            "seconds": found.seconds,
            "exposed": found.exposed,
            "samples_per_second": found.rate,
            "efficiency": found.efficiency,
            "calls": sum(call.count for call in found.calls),
            "runs": sorted({call.algorithm for call in found.calls}),
        }

    def _cautions(self) -> Iterator[str]:
        yield from machine_warnings(self.workload.machine)
        yield activation_warning(self.workload, self.detail)
        yield assumed_rate_warning(self.workload)
        yield narrow_uplinks_warning(self.workload.machine.topology, self.sweep.axes)


def _variant_record(variant: Variant) -> Line:
    return {"settings": dict(variant.settings), "algorithms": variant.algorithms}


def _step_name(kind: str, argument: Any) -> str:
    if kind == VARIANT:
        return f"{describe_settings(argument.settings)} with {argument.algorithms}".strip()
    return f"{kind} of {plural(argument, 'rank')}"


@dataclass(frozen=True)
class _KeptMachine:
    """A workload, whose machine and times of calls others share, and policies of variants."""

    workload: Workload
    policies: dict[str, AlgorithmPolicy] = field(default_factory=dict)

    def policy(self, algorithms: str) -> AlgorithmPolicy:
        """Return the policy of DEFAULT, BEST or one algorithm, the same object each time."""
        names = () if algorithms == BEST else (algorithms,)
        made: AlgorithmPolicy = NcclChoice() if algorithms == DEFAULT else FastestKnown(names)
        own = self.workload.policy
        return self.policies.setdefault(algorithms, own if made == own else made)


_kept: OrderedDict[str, _KeptMachine] = OrderedDict()


def _keep_machine(workload: Workload, record: Mapping[str, Any]) -> _KeptMachine:
    """Return the kept machine of a record, which is that of the workload if none is kept."""
    own = ("topology", "vary", "ppn", "memory", "algorithms")
    parts = {name: record.get(name) for name in own}
    placed = workload.memory, len(workload.machine.topology.nodes)
    key = json.dumps([parts, placed], sort_keys=True)
    kept = _kept.setdefault(key, _KeptMachine(workload))
    _kept.move_to_end(key)
    while len(_kept) > MAX_KEPT_MACHINES:
        _kept.popitem(last=False)
    return kept


def _require_short(workload: Workload) -> None:
    """Raise LimitExceededError for an iteration that takes long to predict, as no step is cut."""
    layers = len(workload.model.layers)
    if layers * workload.passes > MAX_LAYER_PASSES:
        raise LimitExceededError(
            f"passes: {workload.passes} of {layers} layers take too long to be watched: ask for at"
            f" most {max(1, MAX_LAYER_PASSES // layers)}, or predict them with `tuner training run`"
        )


def _large_enough(record: Mapping[str, Any]) -> Any:
    """Return the topology, of a whole preset the one with as many nodes as are needed."""
    topology = record["topology"]
    if not isinstance(topology, str) or topology.count(":") != 1:
        return topology
    ppn = record.get("ppn") or gpus_per_node(load_preset(f"{topology}:1").topology) or 1
    return f"{topology}:{-(-max(record[RANKS]) // ppn)}"
