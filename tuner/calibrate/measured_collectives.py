"""Measured collectives that a schedule of ours describes, and their predicted times."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.calibrate.accuracy import CollectivePoint, CollectivePrediction
from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.core.measurement import Measurements
from tuner.core.schedule import Schedule
from tuner.core.speedup import mean_over_launches
from tuner.core.table import RUNNER_OF_KIND, AlgorithmChoice
from tuner.mpi_libraries.schedules import schedule_of
from tuner.sim import simulate_or_nan
from tuner.topology import HOST, Placement, Topology


@dataclass(frozen=True)
class MeasuredCollective:
    """One algorithm at one point, with the seconds that it took."""

    point: CollectivePoint
    choice: AlgorithmChoice
    schedule: Schedule
    placement: Placement
    measured_s: float

    def has_known_costs(self, calibration: Calibration) -> bool:
        """Return whether topology and calibration have costs for the memory of its buffers."""
        return self.point[-2] == HOST or not math.isnan(self.predict(calibration).predicted_s)

    def predict(self, calibration: Calibration) -> CollectivePrediction:
        """Return the simulated time; NaN for device memory unknown to topology or calibration."""
        nbytes, memory = self.point[-1], self.point[-2]
        seconds = simulate_or_nan(self.schedule, self.placement, calibration, nbytes, memory)
        return CollectivePrediction(self.point, self.choice, self.measured_s, seconds)


def simulatable_collectives(
    measurements: Measurements, topology: Topology
) -> list[MeasuredCollective]:
    """Return the measured collectives that can be simulated, in the order of the file.

    Left out are the library default, since it is unknown what it ran, algorithms that no schedule
    of ours describes, and times of 0, below the resolution of a clock. Raises InputError where
    ranks do not fit on the topology.
    """
    samples: dict[tuple[CollectivePoint, AlgorithmChoice], list[tuple[float, ...]]] = defaultdict(
        list
    )
    for one in measurements.series:
        if one.kind not in RUNNER_OF_KIND or one.nbytes == 0 or one.p != one.nodes * one.ppn:
            continue
        if min(one.samples) <= 0 or one.subject not in list(Collective):
            continue
        point = (one.collective, one.nodes, one.ppn, one.placement, one.memory, one.nbytes)
        choice = AlgorithmChoice(one.algorithm, one.params, RUNNER_OF_KIND[one.kind])
        if not choice.is_default:
            samples[point, choice].append(one.samples)
    found = []
    for (point, choice), taken in samples.items():
        collective, nodes, ppn, kind, _, nbytes = point
        p = nodes * ppn
        schedule = schedule_of(measurements.library, collective, choice, p, nbytes)
        if schedule is not None:
            placement = Placement.from_name(kind, topology, ppn, p)
            found.append(
                MeasuredCollective(point, choice, schedule, placement, mean_over_launches(taken)[0])
            )
    return found


def predict_all(
    collectives: Iterable[MeasuredCollective], calibration: Calibration
) -> list[CollectivePrediction]:
    """Return the prediction of the calibration for each collective."""
    return [call.predict(calibration) for call in collectives]


def subsample(
    collectives: Sequence[MeasuredCollective], max_count: int
) -> list[MeasuredCollective]:
    """Return whole points, evenly spaced in their order, with about `max_count` calls in all."""
    points = list(dict.fromkeys(call.point for call in collectives))
    keep = max(2, round(len(points) * max_count / max(len(collectives), 1)))
    if keep >= len(points):
        return list(collectives)
    chosen = {points[i] for i in np.linspace(0, len(points) - 1, keep).round().astype(int)}
    return [call for call in collectives if call.point in chosen]
