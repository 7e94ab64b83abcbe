"""The lookup of the action for a call by its size in bytes.

A `DispatchTable` holds the rules of one key as bounds and actions; an action takes the arguments
of the communicator's method and makes the call. The rules that can be followed are determined
once, and all ranks follow the same ones: a rule that one rank cannot follow is left to the library
by all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from time import perf_counter

from tuner.core.table import AlgorithmChoice, Rule, RuleKey
from tuner.runtime.call_summaries import CallKind
from tuner.runtime.feedback import UNRECORDED, CallRing

Action = Callable[..., None]


class DispatchTable:
    """The actions for the rules of one key, by size.

    bounds          first size of each rule, bytes, ascending from 0
    actions         action of each rule for host buffers
    device_actions  action of each rule for device buffers; None where it takes host buffers only.
                    Where it is the same as in `actions`, it takes host and device buffers in one
                    call

    The lists may change while the table is in use, and other tables may share them.
    """

    def __init__(
        self, bounds: list[int], actions: list[Action], device_actions: list[Action | None]
    ) -> None:
        self.bounds, self.actions, self.device_actions = bounds, actions, device_actions

    def action(self, nbytes: int) -> Action:
        """Return the action for a call of `nbytes`, by bisection."""
        return self.actions[bisect_right(self.bounds, nbytes) - 1]

    def uses_library(self, nbytes: int, library: Action) -> bool:
        """Return whether a call of `nbytes` is left to the library's own method."""
        return self.actions[bisect_right(self.bounds, nbytes) - 1] == library

    def device_action(self, nbytes: int, *, mixed: bool) -> Action | None:
        """Return the action for device buffers; None where they must go through the host.

        mixed       whether some of the buffers are on the host
        """
        place = bisect_right(self.bounds, nbytes) - 1
        act = self.device_actions[place]
        return None if mixed and act is not self.actions[place] else act

    def detach(self, library: Action, device_library: Action | None) -> None:
        """Call the library from now on, for a program that has kept a method."""
        self.bounds[:], self.actions[:], self.device_actions[:] = [0], [library], [device_library]


class CountingDispatchTable(DispatchTable):
    """A dispatch table that counts every call.

    counters    counters of the rules in a `CallTally`; they may be replaced
    """

    def __init__(self, table: DispatchTable, counters: list[list[int]]) -> None:
        super().__init__(table.bounds, table.actions, table.device_actions)
        self.counters = counters

    def action(self, nbytes: int) -> Action:
        place = bisect_right(self.bounds, nbytes) - 1
        self.counters[place][0] += 1
        return self.actions[place]

    def device_action(self, nbytes: int, *, mixed: bool) -> Action | None:
        """Return the action for device buffers and count the call if there is one.

        A call that must go through the host is counted by `action`.
        """
        act = super().device_action(nbytes, mixed=mixed)
        if act is not None:
            self.counters[bisect_right(self.bounds, nbytes) - 1][0] += 1
        return act


class RecordingDispatchTable(DispatchTable):
    """A dispatch table that records the time of every call in a ring."""

    def __init__(self, table: DispatchTable, rules: Sequence[Rule], ring: CallRing) -> None:
        super().__init__(table.bounds, table.actions, table.device_actions)
        self._table, self._ring = table, ring
        self._keys = [(rule.key, rule.choice) for rule in rules]
        self._kind_numbers: dict[int, int] = {}

    def action(self, nbytes: int) -> Action:
        """Return the action for a call of `nbytes`, which records how long it takes."""
        return self._timed(nbytes, self._table.action(nbytes))

    def device_action(self, nbytes: int, *, mixed: bool) -> Action | None:
        """Return the action for device buffers, which records how long it takes, or None."""
        act = self._table.device_action(nbytes, mixed=mixed)
        return None if act is None else self._timed(nbytes, act)

    def _timed(self, nbytes: int, act: Action) -> Action:
        number = self._kind_numbers.get(nbytes)
        if number is None:
            number = self._ring.kind_number(self._call_kind(nbytes))
            if number == UNRECORDED:
                return act
            self._kind_numbers[nbytes] = number
        record = self._ring.record

        def timed(*arguments: object) -> None:
            begin = perf_counter()
            act(*arguments)
            record(number, perf_counter() - begin)

        return timed

    def _call_kind(self, nbytes: int) -> CallKind:
        key, choice = self._keys[bisect_right(self.bounds, nbytes) - 1]
        return _call_kind(key, choice, nbytes)


def _call_kind(key: RuleKey, choice: AlgorithmChoice, nbytes: int) -> CallKind:
    return CallKind(
        key.collective.value,
        key.nodes,
        key.ppn,
        key.memory,
        key.operators,
        choice.algorithm,
        nbytes,
        key.placement,
    )
