"""Making the MPI library run a given algorithm while the program runs (rank side).

Open MPI reads its forcing variables when a communicator is created, so every choice gets a
duplicate of its own; MPICH reads them at every call, so they are written around the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mpi4py import MPI

from tuner.runtime.control_variables import ControlVariables

Settings = Mapping[str, int | str]


class Forcing:
    """Gives, for a communicator and the settings of a choice, a way to call it."""

    def __init__(self, library: str) -> None:
        self._per_call = library == "mpich"
        self._variables = ControlVariables()
        self._made: dict[tuple[int, tuple[tuple[str, int | str], ...]], MPI.Comm] = {}

    def communicator(self, comm: MPI.Comm, settings: Settings) -> MPI.Comm:
        """The communicator whose collectives obey `settings`; made once, then reused.

        Collective over `comm`. Raises InputError naming the variable and the value when the library
        refuses one.
        """
        if self._per_call:
            return comm
        key = (comm.size, tuple(sorted(settings.items())))
        if key not in self._made:
            before = self._write(settings)
            self._made[key] = comm.Dup()
            self._write(before)
        return self._made[key]

    def around(self, settings: Settings) -> tuple[Callable[[], object], Callable[[], object]]:
        """What to do right before and right after each call under `settings`."""
        if not self._per_call or not settings:
            return _nothing, _nothing
        usual = {name: self._variables.read(name) for name in settings}
        return partial(self._write, settings), partial(self._write, usual)

    def release(self) -> None:
        """Free the communicators made so far; collective over each of them."""
        for comm in self._made.values():
            comm.Free()
        self._made.clear()

    def read(self, name: str) -> int | str:
        """The value of one variable of the library."""
        return self._variables.read(name)

    def _write(self, settings: Settings) -> dict[str, int | str]:
        """Write all; returns what was there before."""
        before = {}
        for name, value in settings.items():
            before[name] = self._variables.read(name)
            self._variables.write(name, value)
        return before


def _nothing() -> None:
    pass
