"""Simulated times of schedules: one cost model with two engines.

`reference_engine` defines the semantics; `fast_engine` gives the same times and does the work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError, MissingCostError
from tuner.base.spelling import unknown_name
from tuner.core.calibration import Calibration
from tuner.core.schedule import Schedule
from tuner.sim import fast_engine
from tuner.sim.blocked_signals import block_signals
from tuner.sim.transfers import build_transfers
from tuner.topology import CUDA, HOST, Placement

ENGINES = ("fast", "events")


def finish_times(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    nbytes: int,
    itemsize: int = 1,
    engine: str = "fast",
    memory: str = HOST,
) -> FloatArray:
    """Return when each rank is done, in seconds, shape (p,), if all enter the collective at 0.

    nbytes      bytes of the user's buffer, in elements of `itemsize` bytes
    engine      one of `ENGINES`
    memory      kind of memory that the buffer is in

    Raises InputError for an unknown engine and for what `build_transfers` refuses.
    """
    if engine not in ENGINES:
        raise InputError(unknown_name("engine", engine, ENGINES))
    if engine == "fast":
        with block_signals():
            times = fast_engine.finish_times(
                schedule, placement, calibration, [nbytes], itemsize, memory
            )[0]
    else:
        from tuner.sim import reference_engine  # SimPy, for this engine alone

        played = build_transfers(schedule, placement, calibration, nbytes, itemsize, memory)
        times = reference_engine.finish_times(played)
    whole: FloatArray = times + (calibration.pointer_query_seconds if memory == CUDA else 0.0)
    return whole


def simulate(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    nbytes: int,
    itemsize: int = 1,
    engine: str = "fast",
    memory: str = HOST,
) -> float:
    """Return the seconds until the last rank is done; see `finish_times` for the arguments."""
    times = finish_times(schedule, placement, calibration, nbytes, itemsize, engine, memory)
    return float(times.max())


def simulate_or_nan(
    schedule: Schedule, placement: Placement, calibration: Calibration, nbytes: int, memory: str
) -> float:
    """Return `simulate`, or NaN for device memory that topology or calibration do not know.

    Collectives on device buffers are measured wherever there are GPUs, also where the topology
    lacks them or no message between them was timed.
    """
    if memory != HOST and not placement.topology.has_gpus:
        return math.nan
    try:
        return simulate(schedule, placement, calibration, nbytes, memory=memory)
    except MissingCostError:
        if memory == HOST:
            raise
        return math.nan


def sweep(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    sizes: Sequence[int],
    itemsize: int = 1,
    memory: str = HOST,
    longest: Sequence[float] | None = None,
) -> list[float]:
    """Return `simulate` for each of `sizes` (bytes) in one pass.

    longest     seconds of each size: a call that takes longer may be given up, and then takes
                infinitely long; such a call is found out before all of it is simulated

    The schedule must be right for all sizes.
    """
    return fast_engine.PreparedSimulation(
        schedule, placement, calibration, itemsize, memory
    ).seconds(sizes, None if longest is None else np.array(longest))
