"""A cache of prepared simulations, for many calls on one calibration."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b

from tuner.core.calibration import Calibration
from tuner.core.schedule import Schedule
from tuner.sim.fast_engine import PreparedSimulation
from tuner.topology import Placement

MAX_CACHED_SIMULATIONS = 128  # enough for the algorithms of a few shapes
MAX_CACHED_TRANSFERS = 1 << 16  # most transfers of a cached call: about a megabyte


@dataclass(frozen=True)
class ScheduleFingerprint:
    """The identity of a schedule: equal if the same chunks move between the same ranks.

    transfers   number of transfers of all rounds
    """

    schedule: Schedule = field(compare=False)
    transfers: int
    key: tuple[object, ...]

    @classmethod
    def from_schedule(cls, schedule: Schedule) -> ScheduleFingerprint:
        """Return the fingerprint; it keeps the rounds if there are at most MAX_CACHED_TRANSFERS."""
        rounds, digest = list(schedule.rounds()), blake2b()
        for r in rounds:
            digest.update(len(r).to_bytes(8, "little"))
            for column in r.columns:
                digest.update(column.data)
        told = (
            schedule.n_chunks,
            schedule.segment_bytes,
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
    """Simulated times of calls on one calibration; calls that differ in size are prepared once."""

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self._fingerprint = lru_cache(MAX_CACHED_SIMULATIONS)(ScheduleFingerprint.from_schedule)
        self._cached = lru_cache(MAX_CACHED_SIMULATIONS)(self._prepare)

    def seconds(self, schedule: Schedule, placement: Placement, nbytes: int, memory: str) -> float:
        """Return the seconds until the last rank is done.

        Raises what `tuner.sim.finish_times` does.
        """
        moves = self._fingerprint(schedule)
        prepared = self._cached if moves.transfers <= MAX_CACHED_TRANSFERS else self._prepare
        return prepared(moves, placement, memory).seconds([nbytes])[0]

    def _prepare(
        self, fingerprint: ScheduleFingerprint, placement: Placement, memory: str
    ) -> PreparedSimulation:
        return PreparedSimulation(fingerprint.schedule, placement, self.calibration, 1, memory)
