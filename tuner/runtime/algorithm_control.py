"""Making the MPI library run a given algorithm while the program runs (rank side).

Open MPI reads its forcing variables when a communicator is created, so every choice gets a
communicator of its own, all but `AT_CALL`; those, and all of MPICH's, are read at every call, so
they are written around the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

from mpi4py import MPI

from tuner.base.errors import InputError
from tuner.mpi_libraries.openmpi import DYNAMIC_RULES
from tuner.runtime.collective_lock import alone
from tuner.runtime.compatibility import info_of
from tuner.runtime.consensus import attempt
from tuner.runtime.control_variables import ControlVariables

Settings = Mapping[str, int | str]
Around = tuple[Callable[[], object], Callable[[], object]]
# Over several nodes Open MPI's hierarchical component would come before the forced algorithm.
# Measured over 8 hosts by the bytes that each sends: the value at the creation has no effect.
AT_CALL = frozenset({"coll_tuned_bcast_algorithm_knomial_radix"})
NOT_HIERARCHICAL = {"ompi_comm_coll_preference": "^han"}


PER_CALL = 2e-6  # seconds that writing variables around a call may take: tests/bench/overhead.py


class Forcing:
    """Gives the ranks of one communicator ways to call it under the settings of a choice."""

    def __init__(self, library: str, comm: MPI.Intracomm) -> None:
        self._per_call = library == "mpich"
        self.cost = PER_CALL if self._per_call else 0.0
        self._comm = comm
        self._variables = _variables()
        self._made: dict[tuple[tuple[str, int | str], ...], MPI.Intracomm] = {}

    def communicator(
        self, settings: Settings, check: Callable[[str], object] | None = None
    ) -> MPI.Intracomm:
        """Return the communicator whose collectives obey `settings`; made once, then reused.

        check       raises an error on all ranks where it is given an objection on one of them; the
                    only way in which ranks hear of one another's failures

        Collective. Raises InputError naming the variable and the value when the library refuses
        one.
        """
        if self._per_call:
            return self._comm
        made = {name: value for name, value in settings.items() if name not in AT_CALL}
        key = tuple(sorted(made.items()))
        if key not in self._made:
            self._made[key] = self._duplicate(made, check or _raise)
        return self._made[key]

    def _duplicate(self, settings: Settings, check: Callable[[str], object]) -> MPI.Intracomm:
        """A duplicate that is made while the variables have these values."""
        check("")  # all ranks have come that far: `alone` is collective
        with alone(self._comm):
            before, objection = attempt(self._write, _complete(settings))
            try:
                check(objection)
                duplicate, objection = attempt(_duplicate, self._comm, settings)
            finally:
                self._write(before or {})
        try:
            check(objection)
        except Exception:
            if duplicate is not None:
                duplicate.Free()
            raise
        assert duplicate is not None
        return duplicate

    def around(self, settings: Settings) -> Around:
        """What to do right before and right after each call under `settings`, or `NOTHING`.

        Only what differs from the present values is written: every write is paid for at each call.
        """
        read = [name for name in settings if self._per_call or name in AT_CALL]
        usual = {name: self._variables.read(name) for name in read}
        changed = [name for name in usual if usual[name] != settings[name]]
        if not changed:
            return NOTHING
        before = [self._variables.writer(name, settings[name]) for name in changed]
        after = [self._variables.writer(name, usual[name]) for name in changed]
        return partial(_all, before), partial(_all, after)

    def try_out(self, settings: Settings) -> None:
        """Raises InputError when the library lacks a variable or refuses a value.

        Local; to be called with the lock on `VARIABLES`.
        """
        self._write(self._write(settings if self._per_call else _complete(settings)))

    def release(self) -> None:
        """Free the communicators made so far; collective over each of them."""
        for comm in self._made.values():
            comm.Free()
        self._made.clear()

    def read(self, name: str) -> int | str:
        """The value of one variable of the library."""
        return self._variables.read(name)

    def _write(self, settings: Settings) -> dict[str, int | str]:
        """Write all; returns what was there before. Writes nothing when one is refused.

        What has the value already is not written: the environment may have set what nothing else
        can set.
        """
        before: dict[str, int | str] = {}
        try:
            for name, value in settings.items():
                usual = self._variables.read(name)
                if usual != value:
                    self._variables.write(name, value)
                    before[name] = usual
        except Exception:
            for name, value in before.items():
                self._variables.write(name, value)
            raise
        return before


@cache
def _variables() -> ControlVariables:
    """The library's, which are the whole process's."""
    return ControlVariables()


def _raise(objection: str) -> None:
    if objection:
        raise InputError(objection)


def _complete(settings: Settings) -> Settings:
    return {DYNAMIC_RULES: 1, **settings} if settings else settings


def _duplicate(comm: MPI.Intracomm, settings: Settings) -> MPI.Intracomm:
    """Duplicate a communicator; the library's own choice keeps its hierarchical component."""
    if not any(value for name, value in settings.items() if name.endswith("_algorithm")):
        return comm.Dup()
    hints = info_of(NOT_HIERARCHICAL)
    try:
        return comm.Dup(hints)
    finally:
        hints.Free()


def _all(writes: list[Callable[[], int]]) -> None:
    for write in writes:
        write()


def _nothing() -> None:
    return None


NOTHING = (_nothing, _nothing)
