"""The access of a collective call to its buffer arguments on one rank: read, write or none."""

from __future__ import annotations

from typing import Any

from tuner.core.collective import Collective
from tuner.runtime.buffers import is_in_place
from tuner.runtime.mpi_arguments import root_rank
from tuner.runtime.staging import READ, UNUSED, WRITE, BufferAccess

AccessedBuffer = tuple[Any, BufferAccess]  # a buffer argument and its access


def accessed_buffers(
    collective: Collective, rank: int, arguments: tuple[Any, ...]
) -> tuple[AccessedBuffer, ...]:
    """Return the buffers of a call with their access on this rank.

    arguments   buffers first; the root, if any, last
    """
    at_root = rank == root_rank(arguments[-1])
    if collective == Collective.BCAST:
        return ((arguments[0], READ if at_root else WRITE),)
    if collective == Collective.SCATTER:
        return (arguments[0], READ if at_root else UNUSED), (arguments[1], WRITE)
    takes = at_root or collective not in (Collective.REDUCE, Collective.GATHER)
    return accessed_send_recv(arguments[0], arguments[1], has_result=takes)


def accessed_send_recv(
    send: Any, receive: Any, *, has_result: bool = True
) -> tuple[AccessedBuffer, AccessedBuffer]:
    """Return send and receive buffer with their access; in place, the receive buffer is also read.

    has_result  whether this rank gets a result; else its receive buffer may be anything
    """
    written = READ | WRITE if is_in_place(send) else WRITE
    return (send, READ), (receive, written if has_result else UNUSED)
