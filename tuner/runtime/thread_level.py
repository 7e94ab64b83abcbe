"""The thread level with which mpi4py starts MPI; this module does not start it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import mpi4py

LEVEL_VARIABLE = "MPI4PY_RC_THREAD_LEVEL"  # which mpi4py 4 prefers to `mpi4py.rc`


@contextmanager
def started_at(level: str | None) -> Iterator[None]:
    """Start MPI at a thread level if it starts within; None leaves the choice to mpi4py."""
    if level is None:
        yield
        return
    before = os.environ.get(LEVEL_VARIABLE)
    mpi4py.rc.thread_level = os.environ[LEVEL_VARIABLE] = level
    try:
        yield
    finally:
        del os.environ[LEVEL_VARIABLE]  # processes that the program starts keep their own
        if before is not None:
            os.environ[LEVEL_VARIABLE] = before
