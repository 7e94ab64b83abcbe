"""Calls of the communicator that run an algorithm of the library, which a rule forces.

Data that is moved but not reduced is passed as bytes. Ranks may describe one signature by
different datatypes, and Open MPI's algorithms divide the data at whole elements of each rank's
datatype (COLL_BASE_COMPUTED_SEGCOUNT in coll_base_util.h). When they are forced on such ranks they
hang or give wrong bytes, where the library default is correct.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mpi4py import MPI

from tuner.core.collective import Collective
from tuner.runtime.algorithm_control import NO_HOOKS, CallHooks
from tuner.runtime.buffers import is_in_place, is_plain_array
from tuner.runtime.dispatch_table import Action
from tuner.runtime.mpi_arguments import root_rank
from tuner.runtime.packing import do_nothing, pack_buffer

Move = Callable[[], None]
ConvertedBuffer = tuple[Any, Move]  # a buffer argument as bytes, and its unpack function
ConvertedArguments = tuple[tuple[Any, ...], Move]  # all arguments, and the unpack function


class LibraryCall:
    """One algorithm of the library on one communicator.

    comm        communicator whose collectives run it
    hooks       functions to call right before and right after each call

    call        makes a call; takes the arguments of the communicator's method
    """

    def __init__(self, comm: MPI.Intracomm, hooks: CallHooks, collective: Collective) -> None:
        self._hooks = hooks
        self._method: Action = getattr(comm, collective.spec.mpi)
        moves = collective.has_data and not collective.is_reduction
        self._converter = ByteConverter(comm, collective) if moves else None
        act = self._method if self._converter is None else self._call_with_bytes
        self._leaves_in_place = collective.gives_in_scratch
        run = _run_unless_in_place if self._leaves_in_place else _run_with_hooks
        self.call: Action = act if hooks is NO_HOOKS else partial(run, *hooks, act)

    def prepare(self, *arguments: Any) -> Move:
        """Do the part of a call that can fail on one rank alone; return what moves the data."""
        move: Move = partial(self._method, *arguments)
        if self._converter is not None:
            given, finish = self._converter.convert(*arguments)
            move = partial(_run_both, partial(self._method, *given), finish)
        if self._hooks is NO_HOOKS or (self._leaves_in_place and is_in_place(arguments[0])):
            return move
        return partial(_run_with_hooks, *self._hooks, move)

    def _call_with_bytes(self, *arguments: Any) -> None:
        assert self._converter is not None
        given, finish = self._converter.convert(*arguments)
        self._method(*given)
        finish()


class ByteConverter:
    """A converter of a collective's arguments that describes the buffers as bytes.

    Arguments that mpi4py refuses stay as they are, so that mpi4py raises the error.

    convert     converts all arguments
    """

    def __init__(self, comm: MPI.Intracomm, collective: Collective) -> None:
        self._comm, self._rank, self._collective = comm, comm.rank, collective
        self._sent, self._received = collective.blocks(comm.size)
        one = collective.has_one_buffer
        self.convert: Callable[..., ConvertedArguments] = self._one if one else self._two

    def _one(self, buf: Any, root: int = 0) -> ConvertedArguments:
        """Convert a buffer that the root sends and other ranks fill."""
        content, unpack = self._convert_buffer(buf, is_source=self._rank == root_rank(root))
        return (content, root), unpack

    def _two(self, sendbuf: Any, recvbuf: Any, *root: int) -> ConvertedArguments:
        """Convert the buffers that this rank sends and fills; in place, it may be only one."""
        at_root = self._rank == root_rank(*(root or (0,)))
        given, into, unpack = sendbuf, recvbuf, do_nothing
        if self._collective.takes(at_root) and not is_in_place(recvbuf):
            into, unpack = self._convert_buffer(recvbuf, is_source=False, blocks=self._received)
        if self._collective.gives(at_root):
            if not is_in_place(sendbuf):
                given, _ = self._convert_buffer(sendbuf, is_source=True, blocks=self._sent)
            elif unpack is not do_nothing:  # packed: fill in what this rank sends
                whole, _ = self._convert_buffer(recvbuf, is_source=True, blocks=self._received)
                into[0][...] = whole[0]
        return (given, into, *root), unpack

    def _convert_buffer(self, spec: Any, *, is_source: bool, blocks: int = 1) -> ConvertedBuffer:
        """Convert one buffer; a plain array, the common case, needs no packing."""
        if is_plain_array(spec) and spec.size % blocks == 0:
            return [spec, MPI.BYTE], do_nothing
        content = pack_buffer(spec, self._comm, is_source=is_source, blocks=blocks)
        if content is None:
            return spec, do_nothing
        return [content.array, MPI.BYTE], content.unpack


def _run_both(first: Move, second: Move) -> None:
    first()
    second()


def _run_unless_in_place(
    before: Callable[[], object], after: Callable[[], object], action: Action, *arguments: Any
) -> None:
    """Run with hooks, but a call in place without.

    No algorithm of MPICH exchanges blocks in place, and MPICH 3.4 would begin all the same.
    """
    if arguments and is_in_place(arguments[0]):
        action(*arguments)
    else:
        _run_with_hooks(before, after, action, *arguments)


def _run_with_hooks(
    before: Callable[[], object], after: Callable[[], object], action: Action, *arguments: Any
) -> None:
    try:
        before()
        action(*arguments)
    finally:
        after()
