"""Many calls on one calibration: those that differ in their size alone are prepared once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b

from tuner.base.errors import UnpricedError
from tuner.core.calibration import Calibration
from tuner.core.schedule import Schedule
from tuner.sim.fast_engine import Call
from tuner.topology import HOST, Placement

KEPT = 128  # calls that are kept prepared: the algorithms of a few shapes
LARGEST = 1 << 16  # transfers of a call that is kept: about a megabyte


@dataclass(frozen=True)
class Moves:
    """What a schedule does. Two are equal if they move the same chunks between the same ranks.

    transfers   of all rounds
    """

    schedule: Schedule = field(compare=False)
    transfers: int
    told: tuple[object, ...]

    @classmethod
    def of(cls, schedule: Schedule) -> Moves:
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
            schedule.unawaited,
            digest.digest(),
        )
        transfers = sum(map(len, rounds))
        kept = replace(schedule, make=lambda: rounds) if transfers <= LARGEST else schedule
        return cls(kept, transfers, told)


class Simulations:
    """Seconds of calls on one calibration."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._moves = lru_cache(KEPT)(Moves.of)
        self._kept = lru_cache(KEPT)(self._prepared)

    def seconds(self, schedule: Schedule, placement: Placement, nbytes: int, memory: str) -> float:
        """Until the last rank is done; NaN for device memory that topology or calibration do not
        know. Raises as `tuner.sim.finish_times` does.

        Collectives on device buffers are measured wherever there are GPUs, also where nobody drew
        them or no message between them was timed.
        """
        if memory != HOST and not placement.topology.has_gpus:
            return math.nan
        moves = self._moves(schedule)
        prepared = self._kept if moves.transfers <= LARGEST else self._prepared
        try:
            return prepared(moves, placement, memory).seconds([nbytes])[0]
        except UnpricedError:
            if memory == HOST:
                raise
            return math.nan

    def _prepared(self, moves: Moves, placement: Placement, memory: str) -> Call:
        return Call(moves.schedule, placement, self._calibration, 1, memory)
