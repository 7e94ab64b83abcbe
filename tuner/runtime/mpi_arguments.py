"""Conversion of root and operator arguments as mpi4py does it."""

from __future__ import annotations

from typing import Any


def root_rank(root: Any) -> int | None:
    """Convert a root argument to a rank, truncating numbers; None for other arguments.

    mpi4py converts it as C does, so 1.9, a 0-dimensional array and a bool are ranks. Whether the
    communicator has this rank is not checked.
    """
    if type(root) is int:
        return root
    try:
        return int(root) if hasattr(root, "__int__") else None
    except (TypeError, ValueError, OverflowError):
        return None


def is_commutative(op: Any) -> bool:
    """Return whether an operator is commutative; raises mpi4py's TypeError for other objects."""
    try:
        return bool(op.is_commutative)
    except AttributeError:
        raise TypeError(
            f"Argument 'op' has incorrect type (expected mpi4py.MPI.Op, got {type(op).__name__})"
        ) from None
