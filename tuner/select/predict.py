"""Simulated times of candidates, from our schedules on the calibrated topology."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

from tuner.cost import Calibration
from tuner.libraries.decisions import Decisions, runs
from tuner.libraries.schedules import schedule_of
from tuner.select.dataset import Point, Simulate
from tuner.sim.simulations import Simulations
from tuner.table import Choice
from tuner.topology import HOST, Placement, Topology


def simulator(
    calibration: Calibration, topology: Topology, decisions: Iterable[Decisions] = ()
) -> Simulate:
    """Seconds of (point, choice), remembered; NaN for an algorithm that has no schedule, and for
    device memory that topology or calibration do not know.

    decisions   of the default; its time is NaN where it is not known what it runs

    Raises InputError when the point's ranks do not fit on the topology.
    """

    known = runs(decisions, calibration.library)
    simulations = Simulations(calibration)

    @cache
    def placed(placement: str, ppn: int, p: int) -> Placement:
        return Placement.of(placement, topology, ppn, p)

    @cache
    def seconds(point: Point, choice: Choice) -> float:
        collective = point.key().collective
        if choice.is_default and point.memory == HOST:
            call = (collective, point.nodes, point.ppn, point.placement)
            choice = known(call, point.nbytes) or choice
        schedule = schedule_of(calibration.library, collective, choice, point.p, point.nbytes)
        if schedule is None:
            return math.nan
        placement = placed(point.placement, point.ppn, point.p)
        return simulations.seconds(schedule, placement, point.nbytes, point.memory)

    return seconds
