"""A cache of schedules by number of chunks and of bound schedules by buffer."""

from __future__ import annotations

from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from tuner.algorithms import build, is_segmented
from tuner.base.errors import InputError, ScheduleError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.runtime.buffers import ByteArray, address_of
from tuner.runtime.compatibility import Buffer
from tuner.runtime.executor import PersistentSchedule
from tuner.runtime.rank_schedule import RankScheduleTemplate
from tuner.runtime.scratch import ScratchPool

MAX_SCHEDULES = 64  # buffers that stay bound, per choice and communicator; the oldest are dropped
MAX_REQUESTS = 1 << 16  # in total: each takes one or two kilobytes
MAX_CACHED_CALLS = 1024  # argument lists
MAX_TEMPLATES = 256  # of all communicators of this process; the oldest are dropped
_TEMPLATES: dict[tuple[Any, ...], RankScheduleTemplate] = {}
_TEMPLATES_LOCK = Lock()


class CachedCall(NamedTuple):
    """The bound schedule for a list of arguments.

    datatype    datatype of one element
    source      memory to copy to the bound buffer first; None for none
    """

    schedule: PersistentSchedule
    datatype: MPI.Datatype
    source: ByteArray | None


class ScheduleCache:
    """The bound schedules of one algorithm on one communicator and one kind of memory.

    calls       cached calls by a key of their arguments, kept while their buffers are bound;
                arrays are identified by address, so they are not kept alive
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        collective: Collective,
        choice: AlgorithmChoice,
        scratch_pool: ScratchPool,
    ) -> None:
        self._comm = comm
        self._collective = collective
        self._choice = choice
        self._scratch_pool = scratch_pool
        self._segmented = is_segmented(collective, choice.algorithm, choice.params)
        self._shape = collective, choice, comm.size, comm.rank
        self._schedules: dict[tuple[int, int, int, int], PersistentSchedule | None] = {}
        self._messages = 0
        self.calls: dict[tuple[Any, ...], CachedCall] = {}
        scratch_pool.on_release(self.release)

    def release(self) -> None:
        for key in [*self._schedules]:
            self._drop(key)

    def get_or_bind(
        self, buffer: ByteArray, count: int, itemsize: int, root: int | None
    ) -> PersistentSchedule | None:
        """Return the schedule bound to this buffer; None where it does not apply.

        count       number of elements
        itemsize    bytes of one element
        root        rank of the root, 0 for collectives without one; None where it is invalid
        """
        if root is None or not 0 <= root < self._comm.size:
            return None
        key = (address_of(buffer), count, itemsize, root)
        if key not in self._schedules:
            made = self._bind(*key)  # may release all others
            self._schedules[key] = made
            self._messages += made.n_messages if made else 0
            self._evict()
        return self._schedules[key]

    def store_call(self, call: tuple[Any, ...], cached: CachedCall) -> None:
        """Store how to make a call with these arguments when they come again."""
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
            part = outline.with_count(count, itemsize)
        except (InputError, ScheduleError):
            return None  # too many segments, or an indivisible count: the same on all ranks
        # By its address: a request that refers to the array would keep it alive.
        buffer = memory_at(address, count * itemsize)
        spare = self._scratch_pool.scratch.reserve(part.extra_elements * itemsize)
        return PersistentSchedule(
            part, self._comm, buffer, spare, itemsize, self._scratch_pool.memory
        )

    def _template(self, nbytes: int, root: int) -> RankScheduleTemplate:
        """Return this rank's transfers in chunks.

        Sizes with equally many chunks share them, and so do communicators of equally many ranks in
        which this rank has the same number.
        """
        known = None if self._segmented else _TEMPLATES.get((*self._shape, 0, root))
        if known is not None:
            return known  # one schedule serves every size
        made = build(
            self._collective,
            self._choice.algorithm,
            self._comm.size,
            root=root,
            nbytes=nbytes,
            params=self._choice.params,
        )
        key = (*self._shape, made.n_chunks if self._segmented else 0, root)
        known = _TEMPLATES.get(key)
        if known is not None:
            return known
        template = RankScheduleTemplate.from_schedule(made, self._comm.rank)
        with _TEMPLATES_LOCK:
            if len(_TEMPLATES) == MAX_TEMPLATES:
                del _TEMPLATES[next(iter(_TEMPLATES))]
            _TEMPLATES[key] = template
        return template

    def _evict(self) -> None:
        """Drop the oldest schedules until the limits hold; the newest one stays."""
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
    """Return the memory at an address as an array, which does not keep its owner alive."""
    memory: Any = Buffer.fromaddress(address, nbytes)
    return np.ndarray((nbytes,), np.uint8, memory)
