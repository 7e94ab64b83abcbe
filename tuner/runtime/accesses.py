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

    A receive buffer is also read where the call is in place; a buffer that the call does not access
    may be anything.

    arguments   buffers first; the root, if any, last
    """
    at_root = rank == root_rank(arguments[-1])
    if collective.has_one_buffer:
        return ((arguments[0], READ if at_root else WRITE),)
    send, receive = arguments[:2]
    gives, takes = collective.gives(at_root), collective.takes(at_root)
    written = READ | WRITE if gives and is_in_place(send) else WRITE
    return (send, READ if gives else UNUSED), (receive, written if takes else UNUSED)
