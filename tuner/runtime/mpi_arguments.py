"""What mpi4py takes for a root and for an operator, and what it says of anything else."""

from __future__ import annotations

from typing import Any


def root_rank(root: Any) -> int | None:
    """The rank that a root argument names: whatever is a number, cut off; None for the rest.

    mpi4py converts it like C would, so 1.9, a 0-dimensional array and a bool are ranks. Nobody
    looks here whether the communicator has such a rank.
    """
    if type(root) is int:
        return root
    try:
        return int(root) if hasattr(root, "__int__") else None
    except (TypeError, ValueError, OverflowError):
        return None


def is_commutative(op: Any) -> bool:
    """Whether operands may change places; TypeError for what is no operator, as mpi4py says."""
    try:
        return bool(op.is_commutative)
    except AttributeError:
        raise TypeError(
            f"Argument 'op' has incorrect type (expected mpi4py.MPI.Op, got {type(op).__name__})"
        ) from None
