"""Simulated times of candidates, from our schedules on the calibrated topology."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Any

from tuner.base.progress import Counted, quietly
from tuner.core.calibration import REDUCTIONS, Calibration
from tuner.core.table import Choice
from tuner.mpi_libraries.default_algorithms import Decisions, runs
from tuner.mpi_libraries.schedules import schedule_of
from tuner.select.dataset import Pair, Point, Row
from tuner.sim.process_pool import spread
from tuner.sim.simulation_cache import Simulations
from tuner.topology import HOST, NETWORK, Placement, Topology

Priced = list[tuple[Pair, float]]

ALONE = 4.0  # seconds of work that are done before other processes are started for the rest
PROCESSES = 16  # at most: each takes an eighth of a gigabyte before it begins


class Simulator:
    """Seconds of (point, choice), remembered; NaN for an algorithm that has no schedule, and for
    device memory that topology or calibration do not know.

    decisions   of the default; its time is NaN where it is not known what it runs
    until       time.monotonic from which on NaN is said of what was not simulated before

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
        self.until = math.inf

    def __call__(self, point: Point, choice: Choice) -> float:
        """Simulate what was not asked for before."""
        pair = point, choice
        if pair not in self._known:
            if time.monotonic() > self.until:
                return math.nan
            self._known[pair] = self._seconds(*pair)
        return self._known[pair]

    def like(self, calibration: Calibration, topology: Topology) -> Simulator:
        """Return a simulator of another calibration, with what was simulated before if that has the
        same costs.
        """
        other = Simulator(calibration, topology, self._decisions)
        same = replace(calibration, provenance={}) == replace(self._calibration, provenance={})
        if same and topology == self._topology:
            other._known = self._known
        return other

    def doubted(self, point: Point) -> bool:
        """Return whether simulations of such calls rest on costs that were not measured."""
        borrowed = set(self._calibration.borrowed)
        between, inside = NETWORK in borrowed, bool(borrowed - {NETWORK, REDUCTIONS})
        reducing = REDUCTIONS in borrowed and point.key().collective.reduces
        return reducing or (between and point.nodes > 1) or (inside and point.ppn > 1)

    def ahead(self, pairs: Iterable[Pair], progress: Counted = quietly, cores: int = 1) -> None:
        """Those that will be asked for; where that takes long, by as many processes as `cores`.

        What is not done because one of them was killed is done here.
        """
        left = sorted((pair for pair in pairs if pair not in self._known), key=_order)
        before, begun = len(self._known), time.monotonic()

        def tell() -> None:
            progress(len(self._known) - before, len(left))

        for pair in left:
            tell()
            if cores > 1 and time.monotonic() - begun > ALONE:
                self._spread(left, min(cores, PROCESSES), tell)
                cores = 1
            self(*pair)
        tell()

    def _spread(self, pairs: Iterable[Pair], cores: int, tell: Callable[[], None]) -> None:
        given = self._calibration, self._topology, self._decisions
        batches = _batches(pair for pair in pairs if pair not in self._known)
        found = spread(_simulating, given, batches, cores)
        with closing(found), suppress(BrokenProcessPool):
            for answers in found:
                self._known.update(priced for answer in answers for priced in answer)
                tell()

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


def _order(pair: Pair) -> tuple[Point, str, int]:
    """Calls that differ in their size alone together: they are prepared once."""
    point, choice = pair
    return point.at(0), str(choice), point.nbytes


def _batches(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Of ordered pairs those that differ in their size alone; the most ranks first, since they take
    longest.
    """
    alike = (list(own) for _, own in groupby(pairs, key=lambda pair: _order(pair)[:2]))
    return sorted(alike, key=lambda batch: -batch[0][0].p)


def _simulating(
    calibration: Calibration, topology: Topology, decisions: Sequence[Decisions]
) -> Callable[[Sequence[Pair]], Priced]:
    simulate = Simulator(calibration, topology, decisions)
    return lambda pairs: [(pair, simulate(*pair)) for pair in pairs]


def predictions(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the simulated times of labelled rows, as `tuner simulate` prints them."""
    return [
        {
            "collective": str(row.point.collective),
            "algorithm": row.choice.algorithm,
            "params": dict(row.choice.params),
            "p": row.point.p,
            "nbytes": row.point.nbytes,
            "seconds": row.simulated,
        }
        for row in rows
        if not math.isnan(row.simulated)
    ]
