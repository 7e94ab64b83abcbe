"""The end of a process whose MPI may still wait for ranks that never come.

mpi4py finalizes MPI at the end of the interpreter, which waits for all ranks. After a call that
timed out, or an exception that nobody caught, that would be for ever: the process then ends without
it, and the launcher does what it does when a rank fails.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress

_STATUS_OF_FAILURE = 1
_unfinished = False
_finalizers: list[Callable[[], None]] = []


def leave_mpi_unfinished() -> None:
    """End the process without finalizing MPI, since a call is still waiting in it."""
    global _unfinished
    _unfinished = True


def finalize_by(act: Callable[[], None]) -> None:
    """Call `act` at the orderly end of the process."""
    _finalizers.append(act)


def end_process() -> None:
    """End MPI in order, or the process without it."""
    if _unfinished or (getattr(sys, "last_value", None) is not None and _other_ranks_wait()):
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(_STATUS_OF_FAILURE)
    for act in _finalizers:
        act()


def _other_ranks_wait() -> bool:
    """Return whether MPI runs with several ranks, so that its end would wait for them."""
    module = sys.modules.get("mpi4py.MPI")
    running = module is not None and module.Is_initialized() and not module.Is_finalized()
    return running and module is not None and module.COMM_WORLD.size > 1


atexit.register(end_process)
