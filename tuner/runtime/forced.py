"""Calls of the communicator carried out by the library's own algorithm, which a rule forces.

What moves without being reduced is handed over as bytes. Ranks may describe one signature by
different datatypes, and Open MPI's algorithms cut the data at whole elements of each rank's own
(COLL_BASE_COMPUTED_SEGCOUNT in coll_base_util.h): forced on such ranks they hang, or give wrong
bytes, where the library's own choice is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mpi4py import MPI

from tuner.collective import Collective
from tuner.runtime.arguments import rank_of
from tuner.runtime.buffers import in_place, is_plain
from tuner.runtime.forcing import NOTHING, Forcing
from tuner.runtime.ladders import METHODS, Action
from tuner.runtime.packing import nothing, packed

Given = tuple[Any, Callable[[], None]]  # a buffer argument in bytes, and what puts them in place


class Forced:
    """One algorithm of the library; its communicator is made by the first call, of all ranks."""

    def __init__(
        self, forcing: Forcing, settings: Mapping[str, int | str], collective: Collective
    ) -> None:
        self._forcing, self._settings, self._collective = forcing, settings, collective
        self._act: Action = self._first

    def __call__(self, *arguments: Any) -> None:
        """As the communicator's method."""
        self._act(*arguments)

    def _first(self, *arguments: Any) -> None:
        comm = self._forcing.communicator(self._settings)
        act: Action = getattr(comm, METHODS[self._collective])
        if not self._collective.reduces:
            act = getattr(InBytes(comm, act), self._collective.value)
        around = self._forcing.around(self._settings)
        self._act = act if around is NOTHING else partial(_between, *around, act)
        self._act(*arguments)


class InBytes:
    """A method of a communicator, its buffer arguments described as bytes.

    What mpi4py refuses is handed over as it is, and refused.
    """

    def __init__(self, comm: MPI.Intracomm, method: Action) -> None:
        self._comm, self._method = comm, method
        self._rank, self._size = comm.rank, comm.size

    def bcast(self, buf: Any, root: int = 0) -> None:
        """As `Comm.Bcast`."""
        content, unpack = self._bytes(buf, root=self._rank == rank_of(root))
        self._method(content, root)
        unpack()

    def allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """As `Comm.Allgather`."""
        self._gathered(sendbuf, recvbuf)

    def gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """As `Comm.Gather`."""
        if self._rank == rank_of(root):
            return self._gathered(sendbuf, recvbuf, root)
        given, _ = self._bytes(sendbuf, root=True)
        return self._method(given, recvbuf, root)

    def scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """As `Comm.Scatter`."""
        given, at_root = sendbuf, self._rank == rank_of(root)
        if at_root:
            given, _ = self._bytes(sendbuf, root=True, parts=self._size)
        if at_root and in_place(recvbuf):
            return self._method(given, recvbuf, root)
        into, unpack = self._bytes(recvbuf, root=False)
        self._method(given, into, root)
        unpack()
        return None

    def _gathered(self, sendbuf: Any, recvbuf: Any, *root: int) -> None:
        """What every rank of an allgather does, and the root of a gather."""
        given, (into, unpack) = sendbuf, self._bytes(recvbuf, root=False, parts=self._size)
        if not in_place(sendbuf):
            given, _ = self._bytes(sendbuf, root=True)
        elif unpack is not nothing:  # a copy, which lacks this rank's share
            into[0][...] = self._bytes(recvbuf, root=True, parts=self._size)[0][0]
        self._method(given, into, *root)
        unpack()

    def _bytes(self, spec: Any, *, root: bool, parts: int = 1) -> Given:
        """See `packed`; a plain array, the common case, is taken as it is."""
        if is_plain(spec) and spec.size % parts == 0:
            return [spec, MPI.BYTE], nothing
        content = packed(spec, self._comm, root=root, parts=parts)
        if content is None:
            return spec, nothing
        return [content.array, MPI.BYTE], content.unpack


def _between(
    before: Callable[[], object], after: Callable[[], object], act: Action, *arguments: Any
) -> None:
    try:
        before()
        act(*arguments)
    finally:
        after()
