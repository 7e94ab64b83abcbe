"""One cost semantics, two engines: `stream_events` is the reference, `fast` does the work."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError
from tuner.core.calibration import Calibration
from tuner.core.schedule import Schedule
from tuner.sim import fast_engine, reference_engine
from tuner.sim.blocked_signals import block_signals
from tuner.sim.simulation_cache import SimulationCache
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
    """When each rank is done, in seconds, shape (p,), if all enter the collective at 0.

    nbytes is the user's buffer, in `memory`, in elements of `itemsize` bytes. Raises InputError
    for an unknown engine and for whatever `build_transfers` cannot price.
    """
    if engine not in ENGINES:
        raise InputError(f"there is no engine {engine!r}; known: {', '.join(ENGINES)}")
    if engine == "fast":
        with block_signals():
            times = fast_engine.finish_times(
                schedule, placement, calibration, [nbytes], itemsize, memory
            )[0]
    else:
        played = build_transfers(schedule, placement, calibration, nbytes, itemsize, memory)
        times = reference_engine.finish_times(played)
    whole: FloatArray = times + (calibration.pointer_query if memory == CUDA else 0.0)
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
    """Seconds until the last rank is done; arguments and errors as for `finish_times`."""
    times = finish_times(schedule, placement, calibration, nbytes, itemsize, engine, memory)
    return float(times.max())


def simulate_or_nan(
    schedule: Schedule, placement: Placement, calibration: Calibration, nbytes: int, memory: str
) -> float:
    """As `SimulationCache.seconds`, for one call."""
    return SimulationCache(calibration).seconds(schedule, placement, nbytes, memory)


def sweep(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    sizes: Sequence[int],
    itemsize: int = 1,
    memory: str = HOST,
) -> list[float]:
    """`simulate` for every one of `sizes`, bytes, in one pass; of a schedule that fits them all."""
    return fast_engine.PreparedSimulation(
        schedule, placement, calibration, itemsize, memory
    ).seconds(sizes)
