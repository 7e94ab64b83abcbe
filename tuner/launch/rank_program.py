"""The command line of Python programs for MPI ranks, run by mpi4py at a given thread level."""

from __future__ import annotations

# Levels of MPI_Init_thread, from that of MPI_Init in a C program to mpi4py's default.
THREAD_SINGLE = "single"
THREAD_LEVELS = (THREAD_SINGLE, "funneled", "serialized", "multiple")


def rank_arguments(module: str, thread_level: str = THREAD_SINGLE) -> tuple[str, ...]:
    """Return the interpreter's arguments that run `module` on every rank.

    MPI is initialised with `thread_level`. An exception on one rank ends all ranks (`mpi4py.run`).
    """
    return ("-m", "mpi4py", "-rc", f"thread_level={thread_level}", "-m", module)
