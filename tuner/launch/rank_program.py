"""How Python programs of MPI ranks are started: through mpi4py, at a chosen thread level."""

from __future__ import annotations

# Of MPI_Init_thread, from what a C program has that calls MPI_Init to what mpi4py asks for.
THREAD_SINGLE = "single"
THREAD_LEVELS = (THREAD_SINGLE, "funneled", "serialized", "multiple")


def rank_arguments(module: str, thread_level: str = THREAD_SINGLE) -> tuple[str, ...]:
    """Return the words after the interpreter's name that run `module` on every rank.

    MPI starts with `thread_level`. An exception on one rank ends all ranks (`mpi4py_version.run`).
    """
    return ("-m", "mpi4py", "-rc", f"thread_level={thread_level}", "-m", module)
