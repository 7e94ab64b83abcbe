"""Many calls on one calibration: those that differ in their size alone are prepared once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b

from tuner.cost import Calibration
from tuner.errors import UnpricedError
from tuner.schedule import Schedule
from tuner.sim.fast import Call
from tuner.topology import HOST, Placement

KEPT = 128  # calls that are kept prepared: the algorithms of a few shapes
LARGEST = 1 << 16  # transfers of a call that is kept: about a megabyte


@dataclass(frozen=True)
class Alike:
    """A call of any size. Two are equal if they move the same chunks between the same ranks.

    transfers   of all rounds
    """

    schedule: Schedule = field(compare=False)
    placement: Placement = field(compare=False)
    memory: str
    transfers: int
    told: tuple[object, ...]

    @classmethod
    def of(cls, schedule: Schedule, placement: Placement, memory: str) -> Alike:
        """A placement is equal to itself alone."""
        rounds, digest = list(schedule.rounds()), blake2b()
        for r in rounds:
            digest.update(len(r).to_bytes(8, "little"))
            for column in r.columns:
                digest.update(column.data)
        told = (id(placement), schedule.n_chunks, schedule.staged, schedule.in_network,
                schedule.unawaited, digest.digest())  # fmt: skip
        kept = replace(schedule, make=lambda: rounds)
        return cls(kept, placement, memory, sum(map(len, rounds)), told)


class Simulations:
    """Seconds of calls on one calibration."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._kept = lru_cache(KEPT)(self._prepared)

    def seconds(self, schedule: Schedule, placement: Placement, nbytes: int, memory: str) -> float:
        """Until the last rank is done; NaN for device memory that topology or calibration do not
        know. Raises as `tuner.sim.finish_times` does.

        Collectives on device buffers are measured wherever there are GPUs, also where nobody drew
        them or no message between them was timed.
        """
        if memory != HOST and not placement.topology.has_gpus:
            return math.nan
        alike = Alike.of(schedule, placement, memory)
        prepared = self._kept if alike.transfers <= LARGEST else self._prepared
        try:
            return prepared(alike).seconds([nbytes])[0]
        except UnpricedError:
            if memory == HOST:
                raise
            return math.nan

    def _prepared(self, alike: Alike) -> Call:
        return Call(alike.schedule, alike.placement, self._calibration, 1, alike.memory)
