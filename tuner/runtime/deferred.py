"""A communicator that is tuned by its first collective call, for programs that we start.

Tuning imports numpy and reads the table, which takes longer than all else before the first line of
a program, and not every program calls a collective. All ranks make the first collective call, so
they tune together in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from mpi4py import MPI

from tuner.runtime.accesses import TUNED_COLLECTIVES
from tuner.runtime.comm_types import CommAlias, cast_comm
from tuner.runtime.deriving_methods import DERIVING_METHODS, PARTIAL_METHODS


class DeferredComm(CommAlias):
    """A mixin for a communicator that becomes a tuned one in its first collective call."""

    table = None
    _tune: Callable[[MPI.Intracomm], Any] | None = None  # None: it is not to be tuned

    def tune_now(self) -> Any:
        """Become the tuned communicator, and return it, or the plain one; collective.

        Objects that mpi4py makes of this class are never tuned.
        """
        if self._tune is None:
            return self.plain
        made, own = self._tune(self.plain), self.__dict__
        if made is self.plain:  # nothing could be made
            self._tune = None
            return made
        vars(made).update({name: own[name] for name in own.keys() - vars(made).keys() - {"_tune"}})
        self.__class__, self.__dict__ = type(made), vars(made)
        return self

    def follow(self) -> Any:
        """Tune the communicator and prepare for calls; collective."""
        made = self.tune_now()
        return made if made is self.plain else made.follow()

    def refresh(self) -> None:
        """Get the table; collective."""
        self.tune_now()

    def report(self) -> None:
        """Do nothing: there were no calls."""

    def finalize(self) -> None:
        """Do nothing: there were no calls."""


DERIVING = tuple(name for name in DERIVING_METHODS if name not in PARTIAL_METHODS)


def defer_tuning(plain: MPI.Intracomm, tune: Callable[[MPI.Intracomm], Any]) -> Any:
    """Return an object for a communicator that `tune` tunes in the first collective call."""
    kind = type(plain)
    collectives = (name for collective in TUNED_COLLECTIVES for name in collective.methods)
    names = [name for name in (*collectives, *DERIVING) if hasattr(kind, name)]
    body = {"_kind": kind, **{name: _tuning_method(kind, name) for name in names}}
    made = cast_comm(type(f"Deferred{kind.__name__}", (DeferredComm, kind), body), plain)
    made.plain, made._tune = plain, tune
    return made


def _tuning_method(kind: type[MPI.Intracomm], name: str) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        # A method that the program has kept finds the object tuned when it is called again.
        made = self.tune_now() if isinstance(self, DeferredComm) else self
        return getattr(made, name)(*arguments, **named)

    call.__name__ = name
    call.__doc__ = cast(str, getattr(kind, name).__doc__)
    return call
