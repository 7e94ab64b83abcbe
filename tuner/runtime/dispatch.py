"""The dispatch of one communicator's collective calls by the rules that its ranks follow."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from tuner.algorithms import build
from tuner.base.errors import TunerError
from tuner.core.collective import Collective
from tuner.core.table import NCCL, SCHEDULE, AlgorithmChoice
from tuner.runtime.backend import AlgorithmActions, Backend
from tuner.runtime.consensus import (
    AbandonedError,
    Consensus,
    ObjectionError,
    error_message,
    run_together,
)
from tuner.runtime.cuda_support import has_cuda_messages, is_cuda_aware
from tuner.runtime.dispatch_table import (
    Action,
    CountingDispatchTable,
    DispatchTable,
    RecordingDispatchTable,
)
from tuner.runtime.feedback import CallRing
from tuner.runtime.log import warn_once
from tuner.runtime.staging import Staging
from tuner.runtime.table_binding import AgreedRules, SizeRules
from tuner.runtime.tally import CallTally

DEFAULT_RULES = SizeRules([0], [AlgorithmChoice()], [0], ())


class Dispatch:
    """The dispatch tables of one communicator, built on first use.

    comm        the user's plain communicator, whose methods are the library's collectives
    rules       the rules that all its ranks follow
    backend     runs the algorithm choices of the rules
    ring        records the time of each call; None where times are not recorded
    tally       counts the calls; None where they are not counted
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        rules: AgreedRules,
        backend: Backend,
        ring: CallRing | None,
        tally: CallTally | None,
    ) -> None:
        self._comm, self.rules, self.backend = comm, rules, backend
        self._ring, self._tally = ring, tally
        self._tables: dict[tuple[Collective, str], _BuiltTable] = {}

    @cached_property
    def staging(self) -> Staging:
        """The staging for buffers that must go through the host."""
        return self.backend.device_memory.staging

    def table_for(self, collective: Collective, operators: str = "any") -> DispatchTable:
        """Return the dispatch table for these calls; without rules it calls the library.

        operators   `commutative` for calls with commutative operators, else `any`
        """
        key = collective, operators
        if key not in self._tables:
            steps = self.rules.rules_for(collective, operators) or DEFAULT_RULES
            self._tables[key] = self._build_table(collective, steps)
        return self._tables[key].table

    def library_method(self, method: str) -> Action:
        own: Action = getattr(self._comm, method)
        return own

    def leaves_to_library(self, table: DispatchTable, nbytes: int, method: str) -> bool:
        return table.uses_library(nbytes, self.library_method(method))

    def release(self) -> None:
        """Make all tables call the library, for programs that have kept a method."""
        for (collective, _), made in self._tables.items():
            made.table.detach(*self._library_actions(collective))

    def _build_table(self, collective: Collective, rules: SizeRules) -> _BuiltTable:
        acts = [self._actions(collective, choice) for choice in rules.choices]
        table = DispatchTable(
            rules.bounds.copy(),
            [acts[place][0] for place in rules.choice_indices],
            [acts[place][1] for place in rules.choice_indices],
        )
        entries = None
        if self._tally is not None:
            counts = [self._tally.counter(collective, choice) for choice in rules.choices]
            entries = [counts[place] for place in rules.choice_indices]
            table = CountingDispatchTable(table, entries)
        if self._ring is not None and rules.rules:
            table = self._recording(table, rules, self._ring)
        return _BuiltTable(table, rules, entries)

    def _recording(self, table: DispatchTable, rules: SizeRules, ring: CallRing) -> DispatchTable:
        """Return a table that records the times of its calls."""
        return RecordingDispatchTable(table, rules.rules, ring)

    def _actions(
        self, collective: Collective, choice: AlgorithmChoice
    ) -> tuple[Action, Action | None]:
        """Return the actions of an algorithm choice for host buffers and for device buffers."""
        if choice.is_default:
            return self._library_actions(collective)
        if (collective, choice) in self.backend.algorithm_actions:
            return self._actions_of(self.backend.algorithm_actions[collective, choice], collective)
        first = partial(self._first_call, collective, choice, 0)
        if choice.runner == NCCL:
            return first, first
        if choice.runner != SCHEDULE:
            return first, first if is_cuda_aware() else None
        if not has_cuda_messages():
            return first, None
        staged = build(collective, choice.algorithm, self._comm.size, params=choice.params).staged
        return first, None if staged else partial(self._first_call, collective, choice, 1)

    def _library_actions(self, collective: Collective) -> tuple[Action, Action | None]:
        method = self.library_method(collective.spec.mpi)
        return method, method if is_cuda_aware() else None

    def _actions_of(
        self, actions: AlgorithmActions | None, collective: Collective
    ) -> tuple[Action, Action | None]:
        if actions is None:
            return self._library_actions(collective)
        return actions.on_host, actions.on_device

    def _first_call(
        self, collective: Collective, choice: AlgorithmChoice, memory_index: int, *arguments: Any
    ) -> None:
        """Set up an algorithm choice and make its first call; collective.

        The library makes the call where some rank cannot set up the choice or run this call.

        memory_index    0 where this rank's buffers are on the host, 1 where they are on a device
        """
        backend, library = self.backend, self._library_actions(collective)[0]
        if memory_index:
            library = backend.stage_if_needed(collective, library)
        made, failure = run_together(
            self._comm,
            partial(self._set_up_and_prepare, collective, choice, memory_index, arguments),
        )
        if made is None:
            backend.discard_comms()
        backend.algorithm_actions[collective, choice] = made and made[0]
        self._install(collective, choice)
        if made is None and self._comm.rank == 0:
            warn_once(f"tuner: {self._comm.size} ranks leave calls to the library: {failure}")
        move = made and made[1]
        suited = np.array([move is not None])
        MPI.Intracomm(self._comm).Allreduce(MPI.IN_PLACE, suited, MPI.LAND)
        if move is not None and suited[0]:
            return move()
        if self._tally is not None:
            self._tally.count_as_library(collective, choice)
        return library(*arguments)

    def _set_up_and_prepare(
        self,
        collective: Collective,
        choice: AlgorithmChoice,
        memory_index: int,
        arguments: tuple[Any, ...],
        consensus: Consensus,
    ) -> tuple[AlgorithmActions, Callable[[], None] | None]:
        try:
            runner = self.backend.set_up_algorithm(consensus, collective, choice)
            return runner, runner.prepare[memory_index](*arguments)
        except (ObjectionError, AbandonedError):
            raise
        except Exception as failure:
            raise TunerError(f"{collective} {choice}: {error_message(failure)}") from failure

    def _install(self, collective: Collective, choice: AlgorithmChoice) -> None:
        """Put the final actions of an algorithm choice into all tables that use it."""
        host, device = self._actions(collective, choice)
        left = self.backend.algorithm_actions[collective, choice] is None
        for (other, _), (table, steps, entries) in self._tables.items():
            if other is not collective or choice not in steps.choices:
                continue
            number = steps.choices.index(choice)
            for place in (place for place, one in enumerate(steps.choice_indices) if one == number):
                table.actions[place], table.device_actions[place] = host, device
                if left and entries is not None and self._tally is not None:
                    entries[place] = self._tally.counter(collective, AlgorithmChoice())


class _BuiltTable(NamedTuple):
    """A dispatch table, its rules, and the counters of its calls (None if not counted)."""

    table: DispatchTable
    rules: SizeRules
    counters: list[list[int]] | None
