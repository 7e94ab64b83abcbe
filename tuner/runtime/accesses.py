"""The access of a collective call to its buffer arguments on one rank, and the size of the call."""

from __future__ import annotations

from functools import cache
from typing import Any

from tuner.core.collective import Collective, Held
from tuner.runtime.buffers import is_in_place, nbytes_of
from tuner.runtime.mpi_arguments import root_rank
from tuner.runtime.staging import READ, UNUSED, WRITE, BufferAccess

# The size of a call is the same on all ranks. That of others follows from what ranks have agreed
# before, which the dispatcher for programs in any language does (tuner.preload).
TUNED_COLLECTIVES = tuple(one for one in Collective if not one.is_ragged)
READ_WRITE = READ | WRITE
AccessedBuffer = tuple[Any, BufferAccess]  # a buffer argument and its access


class BufferRoles:
    """The roles of the send and the receive buffer of a collective, found once for all calls."""

    def __init__(self, collective: Collective) -> None:
        spec = collective.spec
        self.is_rooted, self.has_blocks = collective.is_rooted, collective.has_blocks
        self._used = [(collective.gives(at), collective.takes(at)) for at in (False, True)]
        self._sends_block = spec.before is Held.BLOCK
        self._receives_block = spec.after is Held.BLOCK
        self._scatters = self._receives_block and not spec.reduces  # in place, it keeps its block

    def accesses(self, at_root: bool, send: Any, receive: Any) -> tuple[AccessedBuffer, ...]:
        """Return the two buffers with their access on a rank, the root or another one.

        A buffer that the call does not access may be anything.
        """
        gives, takes = self._used[at_root]
        written = READ_WRITE if gives and self._is_in_place(send) else WRITE
        return (send, READ if gives else UNUSED), (receive, written if takes else UNUSED)

    def nbytes(self, at_root: bool, p: int, send: Any, receive: Any) -> int | None:
        """Return the bytes of the whole buffer, equal on all ranks; None where mpi4py refuses it.

        p       number of ranks; 1 for a collective without blocks
        """
        if self._is_in_place(send):
            return nbytes_of(receive, p)
        if self._used[at_root][0]:
            return nbytes_of(send, 1, p) if self._sends_block else nbytes_of(send, p)
        return nbytes_of(receive, 1, p) if self._receives_block else nbytes_of(receive, p)

    def _is_in_place(self, send: Any) -> bool:
        """Return whether what is sent is in the receive buffer."""
        return not self._scatters and is_in_place(send)


@cache
def roles_of(collective: Collective) -> BufferRoles:
    """Return the roles of the buffers of a collective."""
    return BufferRoles(collective)


def accessed_buffers(
    collective: Collective, rank: int, arguments: tuple[Any, ...]
) -> tuple[AccessedBuffer, ...]:
    """Return the buffers of a call with their access on this rank.

    arguments   buffers first; the root, if any, last
    """
    if not collective.has_data:
        return ()
    at_root = collective.is_rooted and rank == root_rank(arguments[-1])
    if collective.has_one_buffer:
        return ((arguments[0], READ if at_root else WRITE),)
    return roles_of(collective).accesses(at_root, arguments[0], arguments[1])
