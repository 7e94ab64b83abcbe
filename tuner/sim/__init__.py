"""One cost semantics, two engines: `events` is the reference, `fast` does the work."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tuner.cost import Calibration
from tuner.errors import InputError
from tuner.schedule import Schedule
from tuner.sim import events, fast
from tuner.sim.traffic import traffic
from tuner.topology import Placement

ENGINES = {"fast": fast.finish_times, "events": events.finish_times}


def finish_times(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    nbytes: int,
    itemsize: int = 1,
    engine: str = "fast",
) -> NDArray[np.float64]:
    """When each rank is done, in seconds, shape (p,), if all enter the collective at 0.

    nbytes is the user's buffer in elements of `itemsize` bytes. Raises InputError for an unknown
    engine and for whatever `traffic` cannot price.
    """
    if engine not in ENGINES:
        raise InputError(f"there is no engine {engine!r}; known: {', '.join(ENGINES)}")
    return ENGINES[engine](traffic(schedule, placement, calibration, nbytes, itemsize))


def simulate(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    nbytes: int,
    itemsize: int = 1,
    engine: str = "fast",
) -> float:
    """Seconds until the last rank is done; arguments and errors as for `finish_times`."""
    times = finish_times(schedule, placement, calibration, nbytes, itemsize, engine)
    return float(times.max())
