"""Calls of the communicator carried out by the library's own algorithm, which a rule forces.

What moves without being reduced is handed over as bytes. Ranks may describe one signature by
different datatypes, and Open MPI's algorithms cut the data at whole elements of each rank's own
(COLL_BASE_COMPUTED_SEGCOUNT in coll_base_util.h): forced on such ranks they hang, or give wrong
bytes, where the library's own choice is right.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mpi4py import MPI

from tuner.core.collective import Collective
from tuner.runtime.algorithm_control import NOTHING, Around
from tuner.runtime.buffers import in_place, is_plain
from tuner.runtime.dispatch_table import METHODS, Action
from tuner.runtime.mpi_arguments import rank_of
from tuner.runtime.packing import nothing, packed

Move = Callable[[], None]
Given = tuple[Any, Move]  # a buffer argument in bytes, and what puts them in place
Described = tuple[tuple[Any, ...], Move]  # all arguments, and the same


class Forced:
    """One algorithm of the library.

    comm        whose collectives run it
    around      what to do right before and right after each call

    call        makes a call, as the communicator's method
    prepare     does all of a call that can fail on one rank alone, and returns what moves the data
    """

    def __init__(self, comm: MPI.Intracomm, around: Around, collective: Collective) -> None:
        self._around = around
        self._method: Action = getattr(comm, METHODS[collective])
        self._bytes = None if collective.reduces else InBytes(comm, collective)
        act = self._method if self._bytes is None else self._call_in_bytes
        self.call: Action = act if around is NOTHING else partial(_between, *around, act)

    def prepare(self, *arguments: Any) -> Move:
        """See Forced."""
        move: Move = partial(self._method, *arguments)
        if self._bytes is not None:
            given, finish = self._bytes.describe(*arguments)
            move = partial(_one_after_the_other, partial(self._method, *given), finish)
        return move if self._around is NOTHING else partial(_between, *self._around, move)

    def _call_in_bytes(self, *arguments: Any) -> None:
        assert self._bytes is not None
        given, finish = self._bytes.describe(*arguments)
        self._method(*given)
        finish()


class InBytes:
    """Arguments of a collective, the buffers among them described as bytes.

    What mpi4py refuses stays as it is, for mpi4py to refuse.
    """

    def __init__(self, comm: MPI.Intracomm, collective: Collective) -> None:
        self._comm, self._rank, self._size = comm, comm.rank, comm.size
        self.describe: Callable[..., Described] = getattr(self, collective.value)

    def bcast(self, buf: Any, root: int = 0) -> Described:
        """Describe the arguments of `Comm.Bcast`."""
        content, unpack = self._bytes(buf, root=self._rank == rank_of(root))
        return (content, root), unpack

    def allgather(self, sendbuf: Any, recvbuf: Any) -> Described:
        """Describe the arguments of `Comm.Allgather`."""
        return self._gathered(sendbuf, recvbuf)

    def gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Described:
        """Describe the arguments of `Comm.Gather`."""
        if self._rank == rank_of(root):
            return self._gathered(sendbuf, recvbuf, root)
        given, _ = self._bytes(sendbuf, root=True)
        return (given, recvbuf, root), nothing

    def scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Described:
        """Describe the arguments of `Comm.Scatter`."""
        given, at_root = sendbuf, self._rank == rank_of(root)
        if at_root:
            given, _ = self._bytes(sendbuf, root=True, parts=self._size)
        if at_root and in_place(recvbuf):
            return (given, recvbuf, root), nothing
        into, unpack = self._bytes(recvbuf, root=False)
        return (given, into, root), unpack

    def _gathered(self, sendbuf: Any, recvbuf: Any, *root: int) -> Described:
        """What every rank of an allgather does, and the root of a gather."""
        given, (into, unpack) = sendbuf, self._bytes(recvbuf, root=False, parts=self._size)
        if not in_place(sendbuf):
            given, _ = self._bytes(sendbuf, root=True)
        elif unpack is not nothing:  # a copy, which lacks this rank's share
            into[0][...] = self._bytes(recvbuf, root=True, parts=self._size)[0][0]
        return (given, into, *root), unpack

    def _bytes(self, spec: Any, *, root: bool, parts: int = 1) -> Given:
        """See `packed`; a plain array, the common case, is taken as it is."""
        if is_plain(spec) and spec.size % parts == 0:
            return [spec, MPI.BYTE], nothing
        content = packed(spec, self._comm, root=root, parts=parts)
        if content is None:
            return spec, nothing
        return [content.array, MPI.BYTE], content.unpack


def _one_after_the_other(first: Move, second: Move) -> None:
    first()
    second()


def _between(
    before: Callable[[], object], after: Callable[[], object], act: Action, *arguments: Any
) -> None:
    try:
        before()
        act(*arguments)
    finally:
        after()
