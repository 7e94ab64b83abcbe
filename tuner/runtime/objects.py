"""mpi4py's objects for communicators, and programs' own classes of them."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from tuner.runtime.compatibility import Buffer


def as_kind(kind: type[Any], comm: MPI.Comm) -> Any:
    """The same communicator as one of `kind`, whatever else a program's class asks to be made."""
    base = next(base for base in kind.__mro__ if base.__module__ == MPI.__name__)
    return base.__new__(kind, comm)


def leave(comm: MPI.Comm) -> None:
    """Make the object the null communicator, where another object's was freed that is the same."""
    _handle(comm)[:] = _handle(MPI.COMM_NULL)


def _handle(comm: MPI.Comm) -> Any:
    """MPI's own name for the communicator, in the memory of the object."""
    return Buffer.fromaddress(MPI._addressof(comm), MPI._sizeof(comm))
