"""Objects of mpi4py for one communicator, and programs' own classes of them."""

from __future__ import annotations

import ctypes
from typing import Any, cast

from mpi4py import MPI

_CONSTANTS = (MPI.COMM_WORLD, MPI.COMM_SELF)
_BASES: dict[type[Any], type[Any]] = {}  # of a class, the first of mpi4py's that it derives from
_NULL, _SIZE = MPI._addressof(MPI.COMM_NULL), MPI._sizeof(MPI.COMM_NULL)  # where, and bytes


def cast_comm(comm_class: type[Any], comm: MPI.Comm) -> Any:
    """Return the same communicator as an object of `kind`, without calling a program's `__new__`.

    It has the attributes that the program gave to `comm`.
    """
    if comm_class not in _BASES:
        _BASES[comm_class] = next(
            base for base in comm_class.__mro__ if base.__module__ == MPI.__name__
        )
    base = _BASES[comm_class]
    made: Any = base.__new__(comm_class, comm)
    if comm_class is not base:
        made.__dict__.update(getattr(comm, "__dict__", {}))
    return made


def is_constant(comm: MPI.Comm) -> bool:
    """Return whether this object is one of MPI's constants, which mpi4py never frees."""
    return any(comm is constant for constant in _CONSTANTS)


def set_to_comm_null(comm: MPI.Comm) -> None:
    """Make the object the null communicator, after another object for the same was freed."""
    ctypes.memmove(MPI._addressof(comm), _NULL, _SIZE)


class CommAlias:
    """A second object for a communicator of the program; mixed into mpi4py's own class.

    The object that the program gave is the one that is freed, since the program may have kept
    methods of it; then both are the null communicator.
    """

    plain: MPI.Intracomm  # the object that the program gave
    _kind: type[MPI.Intracomm]  # its class

    def Free(self) -> None:
        """As `Comm.Free`."""
        self._end("Free")

    def Disconnect(self) -> None:
        """As `Comm.Disconnect`."""
        self._end("Disconnect")

    def free(self) -> None:
        """As `Comm.free`: nothing happens to MPI's constants."""
        if not is_constant(self.plain):
            self._end("free")

    def _end(self, method: str) -> None:
        getattr(self.plain, method)()
        set_to_comm_null(cast(MPI.Comm, self))

    def __reduce__(self) -> Any:
        """Travel as the plain communicator, which only MPI's constants can."""
        reduced = self.plain.__reduce__()
        if isinstance(reduced, str) and getattr(MPI, reduced) is not self:
            return type(self.plain), (self.plain,)
        return reduced

    def __getattr__(self, name: str) -> Any:
        """Make the plain object of a communicator that mpi4py made of our class.

        `Idup` does so, and `type(comm)(comm)`.
        """
        if name == "plain":
            self.plain = cast_comm(self._kind, cast(MPI.Comm, self))
            return self.plain
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
