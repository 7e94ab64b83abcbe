"""Many calls on one calibration: those that differ in their size alone are prepared once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b

from tuner.base.errors import MissingCostError
from tuner.core.calibration import Calibration
from tuner.core.schedule import Schedule
from tuner.sim.fast_engine import PreparedSimulation
from tuner.topology import HOST, Placement

MAX_CACHED_SIMULATIONS = 128  # calls that are kept prepared: the algorithms of a few shapes
MAX_CACHED_TRANSFERS = 1 << 16  # transfers of a call that is kept: about a megabyte


@dataclass(frozen=True)
class ScheduleFingerprint:
    """What a schedule does. Two are equal if they move the same chunks between the same ranks.

    transfers   of all rounds
    """

    schedule: Schedule = field(compare=False)
    transfers: int
    key: tuple[object, ...]

    @classmethod
    def from_schedule(cls, schedule: Schedule) -> ScheduleFingerprint:
        """Its rounds are kept, unless they are many."""
        rounds, digest = list(schedule.rounds()), blake2b()
        for r in rounds:
            digest.update(len(r).to_bytes(8, "little"))
            for column in r.columns:
                digest.update(column.data)
        told = (
            schedule.n_chunks,
            schedule.staged,
            schedule.in_network,
            schedule.fire_and_forget,
            digest.digest(),
        )
        transfers = sum(map(len, rounds))
        kept = (
            replace(schedule, make_rounds=lambda: rounds)
            if transfers <= MAX_CACHED_TRANSFERS
            else schedule
        )
        return cls(kept, transfers, told)


class SimulationCache:
    """Seconds of calls on one calibration."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._fingerprint = lru_cache(MAX_CACHED_SIMULATIONS)(ScheduleFingerprint.from_schedule)
        self._cached = lru_cache(MAX_CACHED_SIMULATIONS)(self._prepare)

    def seconds(self, schedule: Schedule, placement: Placement, nbytes: int, memory: str) -> float:
        """Until the last rank is done; NaN for device memory that topology or calibration do not
        know. Raises as `tuner.sim.finish_times` does.

        Collectives on device buffers are measured wherever there are GPUs, also where nobody drew
        them or no message between them was timed.
        """
        if memory != HOST and not placement.topology.has_gpus:
            return math.nan
        moves = self._fingerprint(schedule)
        prepared = self._cached if moves.transfers <= MAX_CACHED_TRANSFERS else self._prepare
        try:
            return prepared(moves, placement, memory).seconds([nbytes])[0]
        except MissingCostError:
            if memory == HOST:
                raise
            return math.nan

    def _prepare(
        self, fingerprint: ScheduleFingerprint, placement: Placement, memory: str
    ) -> PreparedSimulation:
        return PreparedSimulation(fingerprint.schedule, placement, self._calibration, 1, memory)
