"""Schedules looked at once per number of chunks and bound once per buffer; both are kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from tuner.algorithms import build, segmented
from tuner.base.errors import InputError, ScheduleError
from tuner.core.collective import Collective
from tuner.core.table import Choice
from tuner.runtime.buffers import Bytes, address_of
from tuner.runtime.compatibility import Buffer
from tuner.runtime.executor import Bound
from tuner.runtime.rank_schedule import Outline
from tuner.runtime.scratch import Spaces

KEPT = 64  # buffers that stay bound, per choice and communicator; the oldest are given up
MESSAGES = 1 << 16  # of all of them together: each takes one or two kilobytes
KNOWN = 1024  # argument lists of which the treatment is remembered


class Known(NamedTuple):
    """How a call was treated whose arguments have come again.

    source      what is copied to the bound buffer first; None for nothing
    """

    bound: Bound
    datatype: MPI.Datatype
    source: Bytes | None


class Bindings:
    """One algorithm on one communicator and one kind of memory.

    known       calls by all that decides how they are treated, for as long as their buffers are
                bound; arrays are known by address, and so not kept alive
    """

    def __init__(
        self, comm: MPI.Intracomm, collective: Collective, choice: Choice, spaces: Spaces
    ) -> None:
        self._comm, self._collective, self._choice, self._spaces = comm, collective, choice, spaces
        self._segmented = segmented(collective, choice.algorithm, choice.params)
        self._outlines: dict[tuple[int, int], Outline] = {}
        self._bounds: dict[tuple[int, int, int, int], Bound | None] = {}
        self._messages = 0
        self.known: dict[tuple[Any, ...], Known] = {}
        spaces.leave(self.release)

    def release(self) -> None:
        """Free all requests."""
        for key in [*self._bounds]:
            self._forget(key)

    def bound(self, buffer: Bytes, count: int, itemsize: int, root: int | None) -> Bound | None:
        """The schedule on this buffer; None where it does not apply."""
        if root is None or not 0 <= root < self._comm.size:
            return None
        key = (address_of(buffer), count, itemsize, root)
        if key not in self._bounds:
            made = self._bind(*key)  # which may forget all others
            self._bounds[key] = made
            self._messages += made.messages if made else 0
            self._give_up()
        return self._bounds[key]

    def remember(self, call: tuple[Any, ...], known: Known) -> None:
        """Arguments that come again need not be looked at again."""
        if len(self.known) == KNOWN:
            self.known.clear()
        self.known[call] = known

    def _bind(self, address: int, count: int, itemsize: int, root: int) -> Bound | None:
        try:
            outline = self._outline(count * itemsize, root)
            if self._collective.divided and count % outline.schedule.n_chunks:
                return None
            part = outline.part(count)
        except (InputError, ScheduleError):
            return None  # too many segments, or a count that does not divide: on all ranks alike
        # By its address: a request that knew the array would keep it alive.
        buffer = memory_at(address, count * itemsize)
        spare = self._spaces.spare.take(part.beyond * itemsize)
        return Bound(part, self._comm, buffer, spare, itemsize, self._spaces.memory)

    def _outline(self, nbytes: int, root: int) -> Outline:
        """What this rank does; the same for all sizes that make as many chunks."""
        if not self._segmented and (0, root) in self._outlines:
            return self._outlines[0, root]  # one schedule is that of every size
        made = build(
            self._collective,
            self._choice.algorithm,
            self._comm.size,
            root=root,
            nbytes=nbytes,
            params=self._choice.params,
        )
        key = (made.n_chunks if self._segmented else 0, root)
        if key not in self._outlines:
            if len(self._outlines) == KEPT:
                del self._outlines[next(iter(self._outlines))]
            self._outlines[key] = Outline.of(made, self._comm.rank)
        return self._outlines[key]

    def _give_up(self) -> None:
        """The oldest, until there are no more than may be; the newest stays."""
        while len(self._bounds) > KEPT or (self._messages > MESSAGES and len(self._bounds) > 1):
            self._forget(next(iter(self._bounds)))

    def _forget(self, key: tuple[int, int, int, int]) -> None:
        self.known.clear()
        bound = self._bounds.pop(key)
        if bound is not None:
            self._messages -= bound.messages
            bound.free()


def memory_at(address: int, nbytes: int) -> Bytes:
    """Memory whose owner is somebody else's affair."""
    memory: Any = Buffer.fromaddress(address, nbytes)
    return np.ndarray((nbytes,), np.uint8, memory)
