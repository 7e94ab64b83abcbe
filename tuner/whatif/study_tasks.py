"""A study as tasks: each prices one schedule on one machine, at all sizes that have that schedule.

`Pricer` is the one pure function behind all ways of carrying a study out: it needs nothing but the
study and the task, so any process on any computer gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from tuner.algorithms import describe
from tuner.base.errors import InputError, ScheduleError, TooLargeError, UnpricedError
from tuner.core.collective import Collective
from tuner.core.path_classes import CONSECUTIVE
from tuner.core.table import Key
from tuner.machines import Machine
from tuner.sim import sweep
from tuner.topology import Placement
from tuner.whatif.axes import placed, varied
from tuner.whatif.study_candidates import (
    Candidate,
    build,
    candidates,
    on_the_way,
    pieces,
    transfers,
)
from tuner.whatif.study_spec import Study
from tuner.whatif.table_regret import Rules, rules_for

MOST_TRANSFERS = 1 << 31  # of one call: a ring of 27,648 ranks, some ten seconds
MACHINES_KEPT = 4  # per process, with their routes; tasks of one machine come together
FIXED_EFFORT = 2e-3  # seconds to build and price the smallest schedule ...
EFFORT = 3e-8  # ... and of each transfer beyond, at each size ...
EFFORT_ON_THE_WAY = 4e-6  # ... or where the network combines or replicates messages

Answer = list[float] | None  # seconds at each size; None: not for these ranks, too large, unpriced


@dataclass(frozen=True)
class Task:
    """One schedule on the machine of one place of the study.

    params      with the segment of the first size; at the others it is another one, which cuts
                the message into as many pieces
    effort      about how many seconds of one core
    """

    place: int
    collective: Collective
    algorithm: str
    params: Mapping[str, int]
    sizes: tuple[int, ...]
    effort: float


@dataclass(frozen=True)
class Planned:
    """One point: who competes, by number of the task and of the call in it, and who does not."""

    place: int
    collective: Collective
    nbytes: int
    calls: tuple[tuple[Candidate, int, int], ...]
    left_out: tuple[str, ...]
    rules: Rules | None


class Pricer:
    """Prices tasks of one study, and remembers the last machines. Can be pickled."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._placed = lru_cache(MACHINES_KEPT)(self._place)

    def __reduce__(self) -> tuple[type[Pricer], tuple[Study]]:
        return Pricer, (self._study,)

    def __call__(self, task: Task) -> Answer:
        """None also where buffers in GPU memory go through hosts whose messages have no price.

        Raises UnpricedError where those of others have none.
        """
        machine, ranks = self._placed(task.place)
        candidate = Candidate(task.algorithm, task.params)
        try:
            made = build(task.collective, candidate, ranks.p, task.sizes[0])
        except (InputError, ScheduleError):
            return None
        memory = str(self._study.places[task.place]["memory"])
        try:
            return sweep(made, ranks, machine.calibration, task.sizes, memory=memory)
        except TooLargeError:
            return None
        except UnpricedError:
            if not made.staged:
                raise
            return None

    def _place(self, number: int) -> tuple[Machine, Placement]:
        at = self._study.places[number]
        machine = varied(self._study.machine, at)
        return machine, placed(machine, at)


@dataclass(frozen=True)
class Plan:
    """All points of a study in order, and the tasks that answer them."""

    points: tuple[Planned, ...]
    tasks: tuple[Task, ...]

    @property
    def effort(self) -> float:
        """About how many seconds of one core."""
        return sum(task.effort for task in self.tasks)


def plan(study: Study, watch: Callable[[float], None]) -> Plan:
    """What is to be done; `watch` is told the effort as it adds up.

    Raises InputError for a point at which nothing can be simulated.
    """
    points: list[Planned] = []
    tasks: list[Task] = []
    for place in range(len(study.places)):
        for collective in study.collectives:
            machine = _OneMachine(study, place, collective, len(tasks))
            points += [machine.planned(nbytes) for nbytes in study.sizes]
            tasks += machine.tasks()
            watch(sum(task.effort for task in tasks[machine.first :]))
    return Plan(tuple(points), tuple(tasks))


class _OneMachine:
    """One collective on one machine: calls with the same schedule are collected in one task."""

    def __init__(self, study: Study, place: int, collective: Collective, first: int) -> None:
        self.study, self.place, self.collective, self.first = study, place, collective, first
        at = study.places[place]
        self.nodes, self.ppn = int(at["nodes"]), int(at["ppn"])
        self.p = self.nodes * self.ppn
        self.key = Key(
            collective,
            self.nodes,
            self.ppn,
            str(at["memory"]),
            placement=str(at.get("placement", CONSECUTIVE)),
        )
        self.names = study.names(collective, at)
        self._alike: dict[tuple[object, ...], int] = {}
        self._calls: list[list[tuple[Candidate, int]]] = []

    def planned(self, nbytes: int) -> Planned:
        offered = list(candidates(self.collective, self.names, self.nodes, self.ppn, nbytes))
        rules = self._rules(nbytes)
        if rules is not None and rules.key and rules.candidate and rules.candidate not in offered:
            offered.append(rules.candidate)
        able = [one for one in offered if self._transfers(one, nbytes) <= MOST_TRANSFERS]
        if not able:
            raise InputError(
                f"{self.collective} on {self.p} ranks: every candidate has more than"
                f" {MOST_TRANSFERS} transfers; study a smaller machine or other algorithms"
            )
        left_out = tuple(str(one) for one in offered if one not in able)
        calls = tuple(self._call(one, nbytes) for one in able)
        return Planned(self.place, self.collective, nbytes, calls, left_out, rules)

    def tasks(self) -> list[Task]:
        return [self._task(calls) for calls in self._calls]

    def _rules(self, nbytes: int) -> Rules | None:
        table = self.study.table
        if table is None:
            return None
        return rules_for(table, self.key, nbytes)

    def _transfers(self, candidate: Candidate, nbytes: int) -> float:
        return transfers(self.collective, candidate, self.p, nbytes)

    def _call(self, candidate: Candidate, nbytes: int) -> tuple[Candidate, int, int]:
        fixed = sorted((k, v) for k, v in candidate.params.items() if k != "segment")
        number = pieces(candidate.algorithm, candidate.params, self.p, nbytes)
        alike = self._alike.setdefault((candidate.algorithm, *fixed, number), len(self._alike))
        if alike == len(self._calls):
            self._calls.append([])
        self._calls[alike].append((candidate, nbytes))
        return candidate, self.first + alike, len(self._calls[alike]) - 1

    def _task(self, calls: list[tuple[Candidate, int]]) -> Task:
        candidate, nbytes = calls[0]
        entry = describe(self.collective, candidate.algorithm)
        each = EFFORT_ON_THE_WAY if on_the_way(entry) else EFFORT
        work = self._transfers(candidate, nbytes) * len(calls)
        return Task(
            self.place,
            self.collective,
            candidate.algorithm,
            dict(candidate.params),
            tuple(size for _, size in calls),
            FIXED_EFFORT + each * work,
        )
