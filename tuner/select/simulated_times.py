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

from tuner.base.errors import MissingCostError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.core.calibration import REDUCTIONS_KEY, Calibration
from tuner.core.table import AlgorithmChoice
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms, default_lookup
from tuner.prediction.call_predictor import CallPredictor, NoPrediction
from tuner.select.dataset import CallPoint, Observation, PointConfig
from tuner.sim.process_pool import map_unordered
from tuner.sim.simulation_cache import SimulationCache
from tuner.topology import HOST, NETWORK, Placement, Topology

SimulatedPairs = list[tuple[PointConfig, float]]

MAX_SERIAL_S = 4.0  # seconds of work before worker processes are started for the rest
MAX_PROCESSES = 16  # each takes an eighth of a gigabyte at its start


class Simulator:
    """A cached function (point, choice) -> simulated seconds.

    It is NaN for an algorithm without a schedule, for too large a call, and for device memory that
    topology or calibration do not describe.

    default_algorithms  what the default runs; its time is NaN where that is unknown
    deadline            `time.monotonic` after which only cached times are returned, otherwise NaN

    Raises InputError when the point's ranks do not fit on the topology.
    """

    def __init__(
        self,
        calibration: Calibration,
        topology: Topology,
        default_algorithms: Iterable[DefaultAlgorithms] = (),
    ) -> None:
        self._calibration, self._topology = calibration, topology
        self._default_algorithms = tuple(default_algorithms)
        self._lookup_default = default_lookup(self._default_algorithms, calibration.library)
        self._simulations = SimulationCache(calibration)
        self._predictor = cache(self._new_predictor)
        self._cache: dict[PointConfig, float] = {}
        self.deadline = math.inf

    def __call__(self, point: CallPoint, choice: AlgorithmChoice) -> float:
        """Return the simulated seconds, from the cache if possible."""
        pair = point, choice
        if pair not in self._cache:
            if time.monotonic() > self.deadline:
                return math.nan
            self._cache[pair] = self._seconds(*pair)
        return self._cache[pair]

    def with_calibration(self, calibration: Calibration, topology: Topology) -> Simulator:
        """Return a simulator with another calibration.

        It shares the cache of this one if costs and topology are the same.
        """
        other = Simulator(calibration, topology, self._default_algorithms)
        same = replace(calibration, provenance={}) == replace(self._calibration, provenance={})
        if same and topology == self._topology:
            other._cache = self._cache
        return other

    def uses_unmeasured_costs(self, point: CallPoint) -> bool:
        """Return whether simulations of calls like `point` rest on costs that were not measured."""
        borrowed = set(self._calibration.borrowed_costs)
        between, inside = NETWORK in borrowed, bool(borrowed - {NETWORK, REDUCTIONS_KEY})
        reducing = REDUCTIONS_KEY in borrowed and point.key().collective.is_reduction
        return reducing or (between and point.nodes > 1) or (inside and point.ppn > 1)

    def prefetch(
        self, pairs: Iterable[PointConfig], progress: ProgressCallback = no_progress, cores: int = 1
    ) -> None:
        """Simulate pairs in advance, with up to `cores` processes if that takes long.

        What is left when one of these processes is killed is simulated here.
        """
        left = sorted((pair for pair in pairs if pair not in self._cache), key=_order)
        before, begun = len(self._cache), time.monotonic()

        def tell() -> None:
            progress(len(self._cache) - before, len(left))

        for pair in left:
            tell()
            if cores > 1 and time.monotonic() - begun > MAX_SERIAL_S:
                self._simulate_in_parallel(left, min(cores, MAX_PROCESSES), tell)
                cores = 1
            self(*pair)
        tell()

    def _simulate_in_parallel(
        self, pairs: Iterable[PointConfig], cores: int, tell: Callable[[], None]
    ) -> None:
        given = self._calibration, self._topology, self._default_algorithms
        batches = _batches(pair for pair in pairs if pair not in self._cache)
        found = map_unordered(_build_worker, given, batches, cores)
        with closing(found), suppress(BrokenProcessPool):
            for answers in found:
                self._cache.update(priced for answer in answers for priced in answer)
                tell()

    def default_runs(self, point: CallPoint) -> AlgorithmChoice | None:
        """Return the algorithm that the default runs; None where that is unknown."""
        call = (point.key().collective, point.nodes, point.ppn, point.placement)
        return self._lookup_default(call, point.nbytes) if point.memory == HOST else None

    def _seconds(self, point: CallPoint, choice: AlgorithmChoice) -> float:
        collective = point.key().collective
        if choice.is_default:
            choice = self.default_runs(point) or choice
        if choice.is_default or (point.memory != HOST and not self._topology.has_gpus):
            return math.nan
        predictor = self._predictor(point.placement, point.ppn, point.p, point.memory)
        try:
            found = predictor.predict(collective, choice, point.nbytes)
        except MissingCostError:
            if point.memory == HOST:
                raise
            return math.nan  # collectives are measured where no message between GPUs was timed
        if not isinstance(found, NoPrediction):
            return found
        lacks_cost = isinstance(found.reason, MissingCostError) and point.memory == HOST
        if found.is_wrong_choice or lacks_cost:
            raise found.reason
        return math.nan

    def _new_predictor(self, placement: str, ppn: int, p: int, memory: str) -> CallPredictor:
        placed = Placement.from_name(placement, self._topology, ppn, p)
        costs, simulations = self._calibration, self._simulations
        return CallPredictor(placed, costs, memory, simulations=simulations)


def _order(pair: PointConfig) -> tuple[CallPoint, str, int]:
    """Return a sort key that groups calls that differ only in size: they are prepared once."""
    point, choice = pair
    return point.with_size(0), str(choice), point.nbytes


def _batches(pairs: Iterable[PointConfig]) -> list[list[PointConfig]]:
    """Return batches of sorted pairs that differ only in size.

    Those with most ranks come first, since they take longest.
    """
    alike = (list(own) for _, own in groupby(pairs, key=lambda pair: _order(pair)[:2]))
    return sorted(alike, key=lambda batch: -batch[0][0].p)


def _build_worker(
    calibration: Calibration, topology: Topology, default_algorithms: Sequence[DefaultAlgorithms]
) -> Callable[[Sequence[PointConfig]], SimulatedPairs]:
    simulate = Simulator(calibration, topology, default_algorithms)
    return lambda pairs: [(pair, simulate(*pair)) for pair in pairs]


def prediction_records(observations: Sequence[Observation]) -> list[dict[str, Any]]:
    """Return the simulated times of observations, as `tuner simulate` prints them."""
    return [
        {
            "collective": str(row.point.collective),
            "algorithm": row.choice.algorithm,
            "params": dict(row.choice.params),
            "p": row.point.p,
            "nbytes": row.point.nbytes,
            "seconds": row.simulated_seconds,
        }
        for row in observations
        if not math.isnan(row.simulated_seconds)
    ]
