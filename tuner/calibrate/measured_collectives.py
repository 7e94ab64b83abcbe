"""Measured collectives that a schedule of ours describes, and what a calibration predicts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.calibrate.accuracy import Case, Point
from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.core.measurement import Measurements
from tuner.core.schedule import Schedule
from tuner.core.speedup import over_launches
from tuner.core.table import RUNNER, Choice
from tuner.mpi_libraries.schedules import schedule_of
from tuner.sim import where_priced
from tuner.topology import HOST, Placement, Topology


@dataclass(frozen=True)
class Call:
    """One algorithm at one point, with the seconds it took."""

    point: Point
    choice: Choice
    schedule: Schedule
    placement: Placement
    measured: float

    def priced(self, calibration: Calibration) -> bool:
        """Whether topology and calibration know the memory of its buffers."""
        return self.point[-2] == HOST or not math.isnan(self.predicted(calibration).predicted)

    def predicted(self, calibration: Calibration) -> Case:
        """Simulated; NaN for device memory that topology or calibration do not know."""
        nbytes, memory = self.point[-1], self.point[-2]
        seconds = where_priced(self.schedule, self.placement, calibration, nbytes, memory)
        return Case(self.point, self.choice, self.measured, seconds)


def calls(measurements: Measurements, topology: Topology) -> list[Call]:
    """In the order of the file. Raises InputError where ranks do not fit on the topology.

    Left out are the library's default, as nobody knows what it ran, algorithms that no schedule of
    ours describes, and times of 0, below what a clock resolves.
    """
    samples: dict[tuple[Point, Choice], list[tuple[float, ...]]] = defaultdict(list)
    for one in measurements.series:
        if one.kind not in RUNNER or one.nbytes == 0 or one.p != one.nodes * one.ppn:
            continue
        if min(one.samples) <= 0 or one.subject not in list(Collective):
            continue
        point = (Collective(one.subject), one.nodes, one.ppn, one.placement, one.memory, one.nbytes)
        choice = Choice(one.algorithm, one.params, RUNNER[one.kind])
        if not choice.is_default:
            samples[point, choice].append(one.samples)
    found = []
    for (point, choice), taken in samples.items():
        collective, nodes, ppn, kind, _, nbytes = point
        p = nodes * ppn
        schedule = schedule_of(measurements.library, collective, choice, p, nbytes)
        if schedule is not None:
            placement = Placement.of(kind, topology, ppn, p)
            found.append(Call(point, choice, schedule, placement, over_launches(taken)[0]))
    return found


def predict(own: Iterable[Call], calibration: Calibration) -> list[Case]:
    """What the calibration says about each."""
    return [call.predicted(calibration) for call in own]


def thinned(own: Sequence[Call], most: int) -> list[Call]:
    """Whole points, evenly over their order, with about `most` calls in all."""
    points = list(dict.fromkeys(call.point for call in own))
    keep = max(2, round(len(points) * most / max(len(own), 1)))
    if keep >= len(points):
        return list(own)
    chosen = {points[i] for i in np.linspace(0, len(points) - 1, keep).round().astype(int)}
    return [call for call in own if call.point in chosen]
