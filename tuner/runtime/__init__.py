"""The part of tuner that runs inside MPI programs; it needs only numpy and mpi4py.

from tuner.runtime import tune
"""

from typing import Any

__all__ = ["tune"]


def __getattr__(name: str) -> Any:
    """Import `tune` on first use, since it imports mpi4py, which starts MPI."""
    if name != "tune":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tuner.runtime.entry import tune

    return tune
