"""Forcing the MPI library to run a given algorithm while the program runs (rank side).

Open MPI reads its forcing variables when a communicator is created, so every algorithm choice gets
a communicator of its own. Some of its variables, and all of MPICH's, are read at every call, so
they are written before the call and reset after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

from mpi4py import MPI

from tuner.base.errors import InputError
from tuner.mpi_libraries.profiles import profile_of
from tuner.runtime.collective_lock import collective_lock
from tuner.runtime.compatibility import make_info
from tuner.runtime.consensus import attempt
from tuner.runtime.control_variables import ControlVariables

Settings = Mapping[str, int | str]
CallHooks = tuple[Callable[[], object], Callable[[], object]]

HOOKS_COST_S = 2e-6  # upper bound of writing variables around a call: tests/bench/overhead.py


class AlgorithmControl:
    """The control of the library's algorithms for calls on one communicator.

    library     `openmpi`, `mpich` or `intelmpi`
    comm        communicator that is duplicated where settings are read at its creation
    """

    def __init__(self, library: str, comm: MPI.Intracomm) -> None:
        self._profile = profile_of(library)
        self._per_call = self._profile.forces_each_call
        self.call_overhead_s = HOOKS_COST_S if self._per_call else 0.0
        self._comm = comm
        self._variables = _variables()
        self._comms: dict[tuple[tuple[str, int | str], ...], MPI.Intracomm] = {}

    def communicator(
        self, settings: Settings, check: Callable[[str], object] | None = None
    ) -> MPI.Intracomm:
        """Return the communicator whose collectives obey `settings`; created once, then reused.

        check       raises an error on all ranks where one of them passes an objection; by default
                    each rank raises its own

        Collective. Raises InputError naming the variable and the value when the library refuses
        one.
        """
        if self._per_call:
            return self._comm
        at_calls = self._read_at_calls(settings)
        made = {name: value for name, value in settings.items() if name not in at_calls}
        key = tuple(sorted(made.items()))
        if key not in self._comms:
            self._comms[key] = self._duplicate(made, check or _raise_objection)
        return self._comms[key]

    def _duplicate(self, settings: Settings, check: Callable[[str], object]) -> MPI.Intracomm:
        """Return a duplicate that is created while the variables have these values."""
        check("")  # all ranks must get here: `collective_lock` is collective
        with collective_lock(self._comm):
            before, objection = attempt(self._write_variables, self._forcing(settings))
            try:
                check(objection)
                duplicate, objection = attempt(self._duplicate_now, settings)
            finally:
                self._write_variables(before or {})
        try:
            check(objection)
        except Exception:
            if duplicate is not None:
                duplicate.Free()
            raise
        assert duplicate is not None
        return duplicate

    def _forcing(self, settings: Settings) -> Settings:
        """Return settings with those without which they would have no effect."""
        return {**self._profile.forcing_settings, **settings} if settings else settings

    def _duplicate_now(self, settings: Settings) -> MPI.Intracomm:
        """Duplicate the communicator, with the library's hints if an algorithm is forced."""
        if not any(value for name, value in settings.items() if name.endswith("_algorithm")):
            return self._comm.Dup()
        hints = make_info(self._profile.duplicate_hints)
        try:
            return self._comm.Dup(hints)
        finally:
            hints.Free()

    def hooks(self, settings: Settings) -> CallHooks:
        """Return functions to call right before and right after each call, or `NO_HOOKS`.

        They write only values that differ from the present ones, since each write costs time at
        every call.
        """
        usual = {name: self._variables.read(name) for name in self._read_at_calls(settings)}
        changed = [name for name in usual if usual[name] != settings[name]]
        if not changed:
            return NO_HOOKS
        before = [self._variables.writer(name, settings[name]) for name in changed]
        after = [self._variables.writer(name, usual[name]) for name in changed]
        return partial(_call_all, before), partial(_call_all, after)

    def writes_at_calls(self, settings: Settings) -> bool:
        """Return whether `settings` have variables that are written around each call.

        These would apply to calls that other threads of the process make meanwhile.
        """
        return bool(self._read_at_calls(settings))

    def _read_at_calls(self, settings: Settings) -> list[str]:
        known = self._profile.variables_read_at_call
        return [name for name in settings if self._per_call or name in known]

    def check_settings(self, settings: Settings) -> None:
        """Raise InputError when the library lacks a variable or refuses a value.

        Local; to be called while holding `VARIABLES_LOCK`.
        """
        self._write_variables(self._write_variables(self._forcing(settings)))

    def release(self) -> None:
        """Free the communicators created so far; collective over each of them."""
        for comm in self._comms.values():
            comm.Free()
        self._comms.clear()

    def read_variable(self, name: str) -> int | str:
        return self._variables.read(name)

    def _write_variables(self, settings: Settings) -> dict[str, int | str]:
        """Write all settings and return the previous values; restore all if one is refused.

        A variable that already has the value is not written: some can only be set in the
        environment.
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
    """Return the library's variables, which exist once per process."""
    return ControlVariables()


def _raise_objection(objection: str) -> None:
    if objection:
        raise InputError(objection)


def _call_all(writes: list[Callable[[], int]]) -> None:
    for write in writes:
        write()


def _do_nothing() -> None:
    return None


NO_HOOKS = (_do_nothing, _do_nothing)
