"""What runs inside MPI programs: numpy and mpi4py are all it loads.

from tuner.runtime import tune
"""

from typing import Any

__all__ = ["tune"]


def __getattr__(name: str) -> Any:
    """`tune` brings mpi4py in, which starts MPI; who only launches ranks does without."""
    if name != "tune":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tuner.runtime.entry import tune

    return tune
