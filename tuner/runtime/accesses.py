"""What a collective call does with its buffer arguments on one rank."""

from __future__ import annotations

from typing import Any

from tuner.core.collective import Collective
from tuner.runtime.buffers import in_place
from tuner.runtime.mpi_arguments import rank_of
from tuner.runtime.staging import READ, UNUSED, WRITE, Access

Used = tuple[Any, Access]  # a buffer argument, and what is done with it


def buffers_of(collective: Collective, rank: int, arguments: tuple[Any, ...]) -> tuple[Used, ...]:
    """Return the buffers of a call, which are the first of its arguments; the root is the last."""
    at_root = rank == rank_of(arguments[-1])
    if collective == Collective.BCAST:
        return ((arguments[0], READ if at_root else WRITE),)
    if collective == Collective.SCATTER:
        return (arguments[0], READ if at_root else UNUSED), (arguments[1], WRITE)
    takes = at_root or collective not in (Collective.REDUCE, Collective.GATHER)
    return both(arguments[0], arguments[1], takes=takes)


def both(send: Any, receive: Any, *, takes: bool = True) -> tuple[Used, Used]:
    """Return send and receive buffer; in place, the receive buffer is read as well.

    takes   this rank gets a result; the receive buffer of others may be anything
    """
    written = READ | WRITE if in_place(send) else WRITE
    return (send, READ), (receive, written if takes else UNUSED)
