"""Several mpi4py objects for one communicator, also of classes that programs derive."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any, cast

from mpi4py import MPI

_CONSTANTS = (MPI.COMM_WORLD, MPI.COMM_SELF)
_BASES: dict[type[Any], type[Any]] = {}  # by class: the first class of mpi4py that it derives from
_NULL, _SIZE = MPI._addressof(MPI.COMM_NULL), MPI._sizeof(MPI.COMM_NULL)  # address and bytes


def cast_comm(comm_class: type[Any], comm: MPI.Comm) -> Any:
    """Return the same communicator as an object of `comm_class`, without the class's `__new__`.

    It has the attributes that the program gave to `comm`.
    """
    if comm_class not in _BASES:
        _BASES[comm_class] = next(
            base for base in comm_class.__mro__ if base.__module__ == MPI.__name__
        )
    base = _BASES[comm_class]
    made: Any = base.__new__(comm_class, comm)
    attributes = getattr(comm, "__dict__", None)
    if attributes and comm_class is not base:
        made.__dict__.update(attributes)
    return made


def is_constant(comm: MPI.Comm) -> bool:
    """Return whether this object is one of MPI's constants, which mpi4py never frees."""
    return any(comm is constant for constant in _CONSTANTS)


def set_to_comm_null(comm: MPI.Comm) -> None:
    """Turn an object into the null communicator, after another object of it was freed."""
    ctypes.memmove(MPI._addressof(comm), _NULL, _SIZE)


class CommAlias:
    """A mixin for a second object of a communicator of the program.

    Freeing this object frees the program's own, since the program may have kept methods of it; then
    both are the null communicator.
    """

    _kind: type[MPI.Intracomm]  # class of the program's object

    @cached_property
    def plain(self) -> MPI.Intracomm:
        """The program's object; made here for a communicator that mpi4py created with our class.

        `Idup` and `type(comm)(comm)` create such objects.
        """
        made: MPI.Intracomm = cast_comm(self._kind, cast(MPI.Comm, self))
        return made

    def Free(self) -> None:
        self._end("Free")

    def Disconnect(self) -> None:
        """Disconnect the communicator as `Comm.Disconnect` does."""
        self._end("Disconnect")

    def free(self) -> None:
        """Free the communicator as `Comm.free` does: MPI's constants are left alone."""
        if not is_constant(self.plain):
            self._end("free")

    def _end(self, method: str) -> None:
        if "plain" in self.__dict__:
            getattr(self.plain, method)()
            set_to_comm_null(cast(MPI.Comm, self))
        else:  # there is no second object
            getattr(self._kind, method)(self)

    def __reduce__(self) -> Any:
        """Pickle as the plain communicator, which works for MPI's constants only."""
        reduced = self.plain.__reduce__()
        if isinstance(reduced, str) and getattr(MPI, reduced) is not self:
            return type(self.plain), (self.plain,)
        return reduced
