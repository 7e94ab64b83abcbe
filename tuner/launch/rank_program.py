"""The command line of Python programs for MPI ranks, run by mpi4py at a given thread level."""

from __future__ import annotations

from tuner.base.thread_levels import THREAD_SINGLE


def rank_arguments(module: str, thread_level: str = THREAD_SINGLE) -> tuple[str, ...]:
    """Return the interpreter's arguments that run `module` on every rank.

    MPI is initialised with `thread_level`. An exception on one rank ends all ranks (`mpi4py.run`).
    `-P` keeps files of the working directory from taking the place of `tuner` or mpi4py.
    """
    return ("-P", "-m", "mpi4py", "-rc", f"thread_level={thread_level}", "-m", module)
