"""Simulated times of candidates, from our schedules on the calibrated topology."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from functools import cache
from itertools import groupby

from tuner.cost import Calibration
from tuner.libraries.decisions import Decisions, runs
from tuner.libraries.schedules import schedule_of
from tuner.select.dataset import Pair, Point, Progress, quietly
from tuner.sim.cores import spread
from tuner.sim.simulations import Simulations
from tuner.table import Choice
from tuner.topology import HOST, Placement, Topology

Priced = list[tuple[Pair, float]]

ALONE = 4.0  # seconds of work that are done before other processes are started for the rest
MOST = 400  # calls that travel together: with more a killed process could leave half of an answer
KILLED = (
    "a process that simulates was killed, often for want of memory: try again where more of it is"
    " free"
)


class Simulator:
    """Seconds of (point, choice), remembered; NaN for an algorithm that has no schedule, and for
    device memory that topology or calibration do not know.

    decisions   of the default; its time is NaN where it is not known what it runs

    Raises InputError when the point's ranks do not fit on the topology.
    """

    def __init__(
        self, calibration: Calibration, topology: Topology, decisions: Iterable[Decisions] = ()
    ) -> None:
        self._calibration, self._topology = calibration, topology
        self._decisions = tuple(decisions)
        self._runs = runs(self._decisions, calibration.library)
        self._simulations = Simulations(calibration)
        self._placed = cache(self._placement)
        self._known: dict[Pair, float] = {}

    def __call__(self, point: Point, choice: Choice) -> float:
        """Simulate what was not asked for before."""
        pair = point, choice
        if pair not in self._known:
            self._known[pair] = self._seconds(*pair)
        return self._known[pair]

    def ahead(self, pairs: Iterable[Pair], progress: Progress = quietly, cores: int = 1) -> None:
        """Those that will be asked for; by as many processes as `cores` when they take long."""
        left = sorted(pairs, key=lambda pair: pair[0])  # sizes of a call together
        total, begun = len(left), time.monotonic()
        while left and (cores == 1 or time.monotonic() - begun < ALONE):
            progress(total - len(left), total)
            self(*left.pop())
        done = total - len(left)
        for answered in self._spread(left, cores):
            self._known.update(answered)
            done += len(answered)
            progress(done, total)
        progress(total, total)

    def _spread(self, pairs: Sequence[Pair], cores: int) -> Generator[Priced]:
        if pairs:
            given = self._calibration, self._topology, self._decisions
            with closing(spread(_simulating, given, _batches(pairs), cores, KILLED)) as found:
                for answers in found:
                    yield [priced for answer in answers for priced in answer]

    def _seconds(self, point: Point, choice: Choice) -> float:
        collective = point.key().collective
        if choice.is_default and point.memory == HOST:
            call = (collective, point.nodes, point.ppn, point.placement)
            choice = self._runs(call, point.nbytes) or choice
        schedule = schedule_of(self._calibration.library, collective, choice, point.p, point.nbytes)
        if schedule is None:
            return math.nan
        placement = self._placed(point.placement, point.ppn, point.p)
        return self._simulations.seconds(schedule, placement, point.nbytes, point.memory)

    def _placement(self, placement: str, ppn: int, p: int) -> Placement:
        return Placement.of(placement, self._topology, ppn, p)


def _batches(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Those of one shape together, as calls that differ in their size alone are prepared once; the
    most ranks first, since they take longest.
    """
    shapes = groupby(pairs, key=lambda pair: pair[0].at(0))
    own = [list(pairs) for _, pairs in shapes]
    cut = [shape[at : at + MOST] for shape in own for at in range(0, len(shape), MOST)]
    return sorted(cut, key=lambda batch: -batch[0][0].p)


def _simulating(
    calibration: Calibration, topology: Topology, decisions: Sequence[Decisions]
) -> Callable[[Sequence[Pair]], Priced]:
    simulate = Simulator(calibration, topology, decisions)
    return lambda pairs: [(pair, simulate(*pair)) for pair in pairs]
