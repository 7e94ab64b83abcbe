"""Simulated times of candidates, from our schedules on the calibrated topology."""

from __future__ import annotations

import math
from functools import cache

from tuner.cost import Calibration
from tuner.libraries.schedules import schedule_of
from tuner.select.dataset import Point, Simulate
from tuner.sim import where_priced
from tuner.table import Choice
from tuner.topology import Placement, Topology


def simulator(calibration: Calibration, topology: Topology) -> Simulate:
    """Seconds of (point, choice), remembered; NaN for an algorithm that has no schedule, and for
    device memory that topology or calibration do not know.

    Raises InputError when the point's ranks do not fit on the topology.
    """

    @cache
    def seconds(point: Point, choice: Choice) -> float:
        collective = point.key().collective
        schedule = schedule_of(calibration.library, collective, choice, point.p, point.nbytes)
        if schedule is None:
            return math.nan
        placement = Placement.consecutive(topology, point.ppn, point.p)
        return where_priced(schedule, placement, calibration, point.nbytes, point.memory)

    return seconds
