"""Schedules looked at once per number of chunks and bound once per buffer; both are kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from tuner.algorithms import build, is_segmented
from tuner.base.errors import InputError, ScheduleError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmConfig
from tuner.runtime.buffers import ByteArray, address_of
from tuner.runtime.compatibility import Buffer
from tuner.runtime.executor import PersistentSchedule
from tuner.runtime.rank_schedule import RankScheduleTemplate
from tuner.runtime.scratch import ScratchPool

MAX_SCHEDULES = 64  # buffers that stay bound, per choice and communicator; the oldest are given up
MAX_REQUESTS = 1 << 16  # of all of them together: each takes one or two kilobytes
MAX_CACHED_CALLS = 1024  # argument lists of which the treatment is remembered


class CachedCall(NamedTuple):
    """How a call was treated whose arguments have come again.

    source      what is copied to the bound buffer first; None for nothing
    """

    schedule: PersistentSchedule
    datatype: MPI.Datatype
    source: ByteArray | None


class ScheduleCache:
    """One algorithm on one communicator and one kind of memory.

    known       calls by all that decides how they are treated, for as long as their buffers are
                bound; arrays are known by address, and so not kept alive
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        collective: Collective,
        choice: AlgorithmConfig,
        scratch_pool: ScratchPool,
    ) -> None:
        self._comm, self._collective, self._choice, self._scratch_pool = (
            comm,
            collective,
            choice,
            scratch_pool,
        )
        self._segmented = is_segmented(collective, choice.algorithm, choice.params)
        self._templates: dict[tuple[int, int], RankScheduleTemplate] = {}
        self._schedules: dict[tuple[int, int, int, int], PersistentSchedule | None] = {}
        self._messages = 0
        self.calls: dict[tuple[Any, ...], CachedCall] = {}
        scratch_pool.on_release(self.release)

    def release(self) -> None:
        """Free all requests."""
        for key in [*self._schedules]:
            self._drop(key)

    def get_or_bind(
        self, buffer: ByteArray, count: int, itemsize: int, root: int | None
    ) -> PersistentSchedule | None:
        """The schedule on this buffer; None where it does not apply."""
        if root is None or not 0 <= root < self._comm.size:
            return None
        key = (address_of(buffer), count, itemsize, root)
        if key not in self._schedules:
            made = self._bind(*key)  # which may forget all others
            self._schedules[key] = made
            self._messages += made.n_messages if made else 0
            self._evict()
        return self._schedules[key]

    def store_call(self, call: tuple[Any, ...], cached: CachedCall) -> None:
        """Arguments that come again need not be looked at again."""
        if len(self.calls) == MAX_CACHED_CALLS:
            self.calls.clear()
        self.calls[call] = cached

    def _bind(
        self, address: int, count: int, itemsize: int, root: int
    ) -> PersistentSchedule | None:
        try:
            outline = self._template(count * itemsize, root)
            if self._collective.has_blocks and count % outline.schedule.n_chunks:
                return None
            part = outline.with_count(count)
        except (InputError, ScheduleError):
            return None  # too many segments, or a count that does not divide: on all ranks alike
        # By its address: a request that knew the array would keep it alive.
        buffer = memory_at(address, count * itemsize)
        spare = self._scratch_pool.scratch.reserve(part.extra_elements * itemsize)
        return PersistentSchedule(
            part, self._comm, buffer, spare, itemsize, self._scratch_pool.memory
        )

    def _template(self, nbytes: int, root: int) -> RankScheduleTemplate:
        """What this rank does; the same for all sizes that make as many chunks."""
        if not self._segmented and (0, root) in self._templates:
            return self._templates[0, root]  # one schedule is that of every size
        made = build(
            self._collective,
            self._choice.algorithm,
            self._comm.size,
            root=root,
            nbytes=nbytes,
            params=self._choice.params,
        )
        key = (made.n_chunks if self._segmented else 0, root)
        if key not in self._templates:
            if len(self._templates) == MAX_SCHEDULES:
                del self._templates[next(iter(self._templates))]
            self._templates[key] = RankScheduleTemplate.from_schedule(made, self._comm.rank)
        return self._templates[key]

    def _evict(self) -> None:
        """The oldest, until there are no more than may be; the newest stays."""
        while len(self._schedules) > MAX_SCHEDULES or (
            self._messages > MAX_REQUESTS and len(self._schedules) > 1
        ):
            self._drop(next(iter(self._schedules)))

    def _drop(self, key: tuple[int, int, int, int]) -> None:
        self.calls.clear()
        bound = self._schedules.pop(key)
        if bound is not None:
            self._messages -= bound.n_messages
            bound.free()


def memory_at(address: int, nbytes: int) -> ByteArray:
    """Memory whose owner is somebody else's affair."""
    memory: Any = Buffer.fromaddress(address, nbytes)
    return np.ndarray((nbytes,), np.uint8, memory)
