"""A study of one collective on one machine that is answered in steps, so that it can be watched.

Schedules that are asked for are priced first, then those that all sizes share. Those that are
expected to take longer than `MAX_TASK_S` are left out and named.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tuner.base.errors import InputError, shortened_repr
from tuner.base.giving_up import go_on
from tuner.core.calibration import Calibration
from tuner.core.table import TuningTable
from tuner.machines import Machine
from tuner.machines.loader import (
    load_preset,
    machine_warnings,
    missing_overhead_warning,
    shared_gpu_warning,
)
from tuner.machines.model_accuracy import NCCL, SIMULATION, SizedCall
from tuner.machines.yaml_machines import PRESET_PREFIX
from tuner.prediction.call_candidates import Candidate, is_run_by_nccl
from tuner.prediction.nccl_times import nccl_note
from tuner.topology import CUDA
from tuner.whatif.axes import narrow_uplinks_warning
from tuner.whatif.best_calls import BestCalls, BestTimedCall, PricedTask
from tuner.whatif.checked_study import Study
from tuner.whatif.library_default import title_of_default
from tuner.whatif.machine_resources import (
    IMPROVEMENT,
    RESOURCE_NAMES,
    SLOWING,
    resources_of_nccl,
    share_of_time,
    studied_resources,
)
from tuner.whatif.study_runner import OTHER_MACHINES
from tuner.whatif.study_spec import study_from_record
from tuner.whatif.study_tasks import (
    BestCall,
    PlannedPoint,
    StudyPlan,
    StudyTask,
    TaskEvaluator,
    about_nccl_versions,
    plan_sensitivities,
    plan_study,
)
from tuner.whatif.table_regret import TableLookup

EQUALLY_FAST = 1 + 1e-11  # times that differ by less may be equal in their order
MAX_TASK_S = 1.0  # estimated seconds of one schedule, which nothing interrupts


class LiveCall(NamedTuple):
    """A call of a task.

    size    index of its size
    place   its place among the candidates for that size
    """

    size: int
    candidate: Candidate
    place: int


@dataclass(frozen=True)
class LiveStudy:
    """A planned study of one machine and one collective.

    calls   the calls of each task
    """

    study: Study
    plan: StudyPlan
    evaluator: TaskEvaluator
    calls: tuple[tuple[LiveCall, ...], ...]

    @classmethod
    def from_record(cls, record: Any) -> LiveStudy:
        """Plan the study of a record, which names at most a preset.

        Raises InputError for an invalid study and for one of several machines or collectives.
        """
        study = one_machine_study(record)
        plan = plan_study(study, lambda _core_seconds: None)
        calls: list[list[LiveCall]] = [[] for _ in plan.tasks]
        for size, point in enumerate(plan.points):
            for place, (candidate, task, _) in enumerate(point.calls):
                calls[task].append(LiveCall(size, candidate, place))
        return cls(study, plan, TaskEvaluator(study), tuple(map(tuple, calls)))

    def outline(self) -> dict[str, Any]:
        """Return what is known before anything is priced, as JSON data."""
        study, (at,), points = self.study, self.study.grid, self.plan.points
        nodes = int(at["nodes"])
        of_nccl = {name for point in points for name in point.of_nccl}
        simulates = any(not self._is_of_nccl(task) for task in self.plan.tasks)
        models = {*([NCCL] if of_nccl else []), *([SIMULATION] if simulates else [])}
        calls = [SizedCall(study.collectives[0], nodes, size) for size in study.sizes]
        changed = not OTHER_MACHINES.isdisjoint(study.axes)
        resources = studied_resources(self.evaluator.machine(0), bool(of_nccl))
        too_long = self.names(set(range(len(self.plan.tasks))).difference(self.order(())))
        return {
            "machine": study.topology.name,
            "nodes": nodes,
            "ppn": int(at["ppn"]),
            "memory": str(at["memory"]),
            "collective": study.collectives[0].value,
            "sizes": list(study.sizes),
            "nccl_choices": [self._offered_choice_of_nccl(point) for point in points],
            "library": title_of_default(study.table) if study.table else "",
            "library_choices": [_label(point.table_lookup) for point in points],
            "resources": {name: RESOURCE_NAMES[name] for name in resources},
            "skipped": sorted({*too_long, *(name for one in points for name in one.skipped)}),
            "cautions": [text for text in _cautions(study) if text],
            "notes": [nccl_note({(name, nodes) for name in of_nccl}, simulates=simulates)]
            if of_nccl
            else [],
            "accuracy": study.machine.accuracy_sentence(
                dict.fromkeys(models, calls), changed=changed
            ),
            "median_errors": study.machine.median_errors(study.collectives[0]),
        }

    def order(self, first: Sequence[str]) -> list[int]:
        """Return the numbers of the tasks in the order in which they should be priced.

        The cheapest one is the very first, so that there is a time at every size at once. Schedules
        of which one is for all sizes come before those of which each is for some, and of both the
        cheapest come first: so those with many segments, which take longest to simulate, find times
        of their algorithm beyond which they need not be simulated.

        first   labels of the schedules to begin with
        """
        asked, all_sizes = set(first), len(self.study.sizes)

        def cost(number: int) -> tuple[bool, float]:
            task = self.plan.tasks[number]
            return len(task.sizes) < all_sizes, task.core_seconds / len(task.sizes)

        affordable = [n for n, task in enumerate(self.plan.tasks) if task.core_seconds < MAX_TASK_S]
        by_cost = sorted(affordable, key=cost)
        rest = sorted(by_cost[1:], key=lambda number: self.label(number) not in asked)
        return [*by_cost[:1], *rest]

    def price(
        self, numbers: Sequence[int], seconds: float, best: BestCalls
    ) -> tuple[int, list[PricedTask]]:
        """Price tasks in order for so many seconds, at least one; return how many, and their times.

        best    the best calls of the tasks that were priced before, to which these are added

        Times of those whose algorithm is not for this rank count are left out, as is each that is
        longer than that of another call of the algorithm at the size, unless a table chooses it.
        """
        end, found = time.monotonic() + seconds, list[PricedTask]()
        for done, number in enumerate(numbers, start=1):
            go_on()
            for one in self._priced(number, best):
                best.add(one)
                found.append(one)
            if time.monotonic() > end:
                return done, found
        return len(numbers), found

    def names(self, numbers: Iterable[int]) -> list[str]:
        return sorted({str(call.candidate) for number in numbers for call in self.calls[number]})

    def gains(self, best: Sequence[BestTimedCall], resource: str) -> list[float | None]:
        """Return how many times as fast the best calls are with a resource twice as fast.

        best    the best call at each size

        A gain is None where it cannot be simulated.
        """
        times = self._changed_seconds(best, resource, IMPROVEMENT)
        return [one.seconds / own if own else None for one, own in zip(best, times, strict=True)]

    def shares(self, best: Sequence[BestTimedCall], resource: str) -> list[float | None]:
        """Return a resource's share of the time of the best calls, None likewise."""
        simulated = [one for one in best if not self._is_of_nccl(self.plan.tasks[one.task])]
        slowed = iter(self._changed_seconds(simulated, resource, SLOWING))
        found = list[float | None]()
        for one in best:
            if one in simulated:
                own = next(slowed)
                found.append(share_of_time(one.seconds, own) if own else None)
            else:
                found.append(self._share_in_nccl(one, resource))
        return found

    def _changed_seconds(
        self, best: Sequence[BestTimedCall], resource: str, factor: float
    ) -> list[float | None]:
        """Return the seconds of the best calls with a resource changed by a factor."""
        calls: list[BestCall] = [
            (self.calls[one.task][one.call].candidate, one.task, one.call) for one in best
        ]
        found: dict[tuple[int, int], float | None] = {}
        for one in plan_sensitivities(self.plan, calls, factor):
            if one.task.changed == resource:
                seconds = self.evaluator(one.task) or [None] * len(one.calls)
                found |= {(one.number, c): s for c, s in zip(one.calls, seconds, strict=True)}
        return [found.get((one.task, one.call)) for one in best]

    def _share_in_nccl(self, best: BestTimedCall, resource: str) -> float:
        """Return a resource's share of the time of a call that NCCL's model predicts."""
        call = self.calls[best.task][best.call]
        nbytes = self.study.sizes[call.size]
        limits = self.evaluator.nccl_limits(
            0, self.study.collectives[0], call.candidate.algorithm, nbytes
        )
        return resources_of_nccl(limits.shares).get(resource, 0.0)

    def label(self, number: int) -> str:
        """Return what asks for a task to be priced first: its candidate at the first size."""
        return str(self.calls[number][0].candidate)

    def _priced(self, number: int, best: BestCalls) -> Iterator[PricedTask]:
        task, calls = self.plan.tasks[number], self.calls[number]
        longest = [
            math.inf
            if self._is_chosen(call)
            else EQUALLY_FAST * best.seconds(task.algorithm, call.size)
            for call in calls
        ]
        seconds = self.evaluator(task, longest) or []
        known = [(at, one) for at, one in enumerate(seconds) if one is None or one < math.inf]
        if known:
            yield PricedTask(
                number,
                self.label(number),
                task.algorithm,
                NCCL if self._is_of_nccl(task) else SIMULATION,
                tuple(at for at, _ in known),
                tuple(calls[at].size for at, _ in known),
                tuple(str(calls[at].candidate) for at, _ in known),
                tuple(calls[at].place for at, _ in known),
                tuple(one for _, one in known),
            )

    def _is_chosen(self, call: LiveCall) -> bool:
        """Return whether the table of the study chooses a call."""
        lookup = self.plan.points[call.size].table_lookup
        return lookup is not None and lookup.candidate == call.candidate

    def _offered_choice_of_nccl(self, point: PlannedPoint) -> str:
        """Return what NCCL chooses by itself, "" if that is not among the candidates."""
        chosen, _ = self.evaluator.nccl_choice(point)
        return chosen if chosen in point.of_nccl else ""

    def _is_of_nccl(self, task: StudyTask) -> bool:
        choice = Candidate(task.algorithm, task.params).choice
        return is_run_by_nccl(choice, self.plan.points[0].of_nccl)


def one_machine_study(record: Any) -> Study:
    """Return the study of one collective on one machine; raise InputError for any other."""
    study = study_from_record(_with_nodes(record), _PresetResolver())
    if len(study.grid) > 1 or len(study.collectives) > 1:
        raise InputError("one machine and one collective at a time: give each axis one value")
    return study


def _with_nodes(record: Any) -> Any:
    """Return a study whose preset has the nodes of the study: others would be built in vain."""
    try:
        topology, nodes = record["topology"], record["vary"]["nodes"]
        is_whole = topology.startswith(PRESET_PREFIX) and topology.count(":") == 1
        return {**record, "topology": f"{topology}:{int(nodes[0])}"} if is_whole else record
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        return record  # which is refused with a sentence


class _PresetResolver:
    """A resolver that knows presets alone, of which it keeps the last ones."""

    def machine(self, name: str) -> Machine:
        if not name.startswith(PRESET_PREFIX):
            raise InputError(
                f"expected {PRESET_PREFIX}NAME or the record of a topology, got"
                f" {shortened_repr(name)}"
            )
        return load_preset(name)

    def calibration(self, name: str) -> Calibration:
        raise InputError(f"calibration {shortened_repr(name)} must be given whole")

    def table(self, name: str) -> TuningTable:
        raise InputError(f"table {shortened_repr(name)} must be given whole")


def _label(lookup: TableLookup | None) -> str:
    """Return the candidate that a table chooses; "" where none is known."""
    candidate = lookup.candidate if lookup else None
    return str(candidate) if candidate else ""


def _cautions(study: Study) -> Iterator[str]:
    """Yield the warnings that `tuner study` gives; some are empty."""
    yield from machine_warnings(study.machine, has_latency="latency" in study.axes)
    if CUDA in study.axes["memory"]:
        yield shared_gpu_warning(study.topology, int(study.axes["ppn"][-1]))
    yield narrow_uplinks_warning(study.topology, study.axes)
    yield from about_nccl_versions(study)
    if study.calibration is None:
        yield missing_overhead_warning(study.machine)
