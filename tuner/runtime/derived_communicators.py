"""The calls of a communicator that a program has derived, until tuning it pays.

Tuning a communicator takes messages between its ranks and communicators of our own, which costs
more than a few calls gain. So the library makes the calls first, and each call that a rule would
change counts with the time that the table states for the library's algorithm. All ranks make the
same calls, so they count alike without a message. When the calls have taken many times what tuning
costs, all ranks tune the communicator in the same call.

Programs derive communicators by the thousand for one call each, so the first call is not counted,
and nothing is built before the second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, TuningTable
from tuner.runtime.backend import Backend
from tuner.runtime.comm_types import CommAlias
from tuner.runtime.cuda_support import is_cuda_aware
from tuner.runtime.dispatch import Dispatch
from tuner.runtime.dispatch_table import Action, DispatchTable, RecordingDispatchTable
from tuner.runtime.feedback import CallRing
from tuner.runtime.table_binding import AgreedRules, SizeRules
from tuner.runtime.tally import CallTally


class DerivedComm(CommAlias):
    """A mixin for a communicator whose calls the library makes, until it becomes a tuned one.

    It has the terms of the communicator that it was derived from.
    """

    _terms: Any
    _tuned_class: type[Any]
    _called = False  # whether a collective call was made

    @property
    def table(self) -> TuningTable | None:
        """The table that is followed where that pays; None when the library makes every call."""
        table: TuningTable | None = self._terms.agreement.table
        return table

    def become_tuned(self) -> Any:
        """Become a tuned communicator, whose calls are counted, and return it. Local."""
        self.__class__ = self._tuned_class
        return self

    def follow(self) -> Any:
        """Tune the communicator and prepare for calls; collective."""
        return self.become_tuned().follow()

    def refresh(self) -> None:
        """Get the table again and follow its present version; collective."""
        self.become_tuned().refresh()

    def finalize(self) -> None:
        """Leave all further calls to the library; collective."""
        self.become_tuned().finalize()

    def report(self) -> None:
        """Do nothing: calls are not counted."""


def first_call_method(kind: type[MPI.Intracomm], name: str) -> Callable[..., None]:
    """Return a method that leaves the first call to the library, and becomes tuned in the next.

    kind    class of the program's communicator
    name    name of a collective method of it
    """
    library = getattr(kind, name)

    def call(self: Any, *arguments: Any, **named: Any) -> None:
        if not isinstance(self, DerivedComm):  # a method that the program has kept
            getattr(self, name)(*arguments, **named)
        elif self._called:
            getattr(self.become_tuned(), name)(*arguments, **named)
        else:
            library(self, *arguments, **named)
            self._called = True  # a call that a rank was refused is repeated as its first

    call.__name__, call.__doc__ = name, library.__doc__
    return call


class TrialDispatch(Dispatch):
    """The dispatch of a communicator whose calls are made by the library and counted.

    candidates  the rules that the communicator would follow if no rank objects
    limit_s     seconds of calls that rules would change, after which the communicator is tuned
    tune        tunes the communicator; collective
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        candidates: AgreedRules,
        ring: CallRing | None,
        tally: CallTally | None,
        limit_s: float,
        tune: Callable[[], Any],
    ) -> None:
        super().__init__(comm, candidates, Backend(comm, tally), ring, tally)
        self._limit_s, self._tune, self._spent_s = limit_s, tune, 0.0

    def leaves_to_library(self, table: DispatchTable, nbytes: int, method: str) -> bool:
        """Return True: until the communicator is tuned, the library makes all calls."""
        return True

    def _recording(self, table: DispatchTable, rules: SizeRules, ring: CallRing) -> DispatchTable:
        library = self.library_method(rules.rules[0].key.collective.spec.mpi)
        return _TrialRecordingTable(table, rules.rules, ring, library, self._tunes_now)

    def _build_table(self, collective: Collective, rules: SizeRules) -> Any:
        built = super()._build_table(collective, rules.left_to_library if rules.rules else rules)
        actions, device_actions = built.table.actions, built.table.device_actions
        for place, seconds in enumerate(rules.library_seconds):
            if seconds:
                actions[place] = self._counted(collective, seconds)
                device_actions[place] = actions[place] if is_cuda_aware() else None
        return built

    def _tunes_now(self) -> bool:
        """Return whether the next call that a rule would change tunes the communicator."""
        return self._spent_s >= self._limit_s

    def _counted(self, collective: Collective, seconds: float) -> Action:
        """Return an action that makes a call with the library, or tunes the communicator first."""
        method = collective.spec.mpi
        library: Action = getattr(self._comm, method)

        def call(*arguments: Any) -> None:
            if self._tunes_now():
                if self._tally is not None:  # the call is counted again
                    self._tally.counter(collective, AlgorithmChoice())[0] -= 1
                getattr(self._tune(), method)(*arguments)
                return
            try:
                library(*arguments)
            except MPI.Exception as failure:
                if failure.Get_error_class() == MPI.ERR_TRUNCATE:
                    self._spent_s += seconds  # the other ranks may have completed the call
                raise  # a call that a rank was refused counts when it is repeated
            self._spent_s += seconds

        return call


class _TrialRecordingTable(RecordingDispatchTable):
    """A table that leaves it to the tuned communicator to record the call that tunes it."""

    def __init__(
        self,
        table: DispatchTable,
        rules: Sequence[Rule],
        ring: CallRing,
        library: Action,
        tunes_now: Callable[[], bool],
    ) -> None:
        super().__init__(table, rules, ring)
        self._library, self._tunes_now = library, tunes_now

    def _timed(self, nbytes: int, act: Action) -> Action:
        is_tuning_call = act != self._library and self._tunes_now()
        return act if is_tuning_call else super()._timed(nbytes, act)
