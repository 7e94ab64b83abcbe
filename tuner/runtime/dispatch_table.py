"""A table turned into what one communicator does with its calls.

A `Ladder` holds the rules of one key as bounds and actions; an action takes the arguments of the
communicator's method and makes the call. Which rules can be followed here is found out once, and
all ranks follow the same ones: a rule that one rank cannot follow is left to the library by all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from time import perf_counter

from tuner.core.collective import Collective
from tuner.core.table import Choice, Key, Rule
from tuner.runtime.feedback import UNRECORDED, Ring, Shape

Action = Callable[..., None]
METHODS = {
    Collective.BCAST: "Bcast",
    Collective.REDUCE: "Reduce",
    Collective.ALLREDUCE: "Allreduce",
    Collective.REDUCE_SCATTER: "Reduce_scatter_block",
    Collective.ALLGATHER: "Allgather",
    Collective.GATHER: "Gather",
    Collective.SCATTER: "Scatter",
}


class Ladder:
    """Rules of one key, ready to be followed.

    bounds      where each rule begins, bytes, ascending from 0
    actions     what each rule does
    on_device   what it does with buffers on a device; None where it takes the host's alone. Where
                both are the same action, it takes host and device buffers in one call

    The lists may change while the ladder is in use, and others may look at the same lists.
    """

    def __init__(
        self, bounds: list[int], actions: list[Action], on_device: list[Action | None]
    ) -> None:
        self.bounds, self.actions, self.on_device = bounds, actions, on_device

    def action(self, nbytes: int) -> Action:
        """What to do with a call of `nbytes`, by bisection."""
        return self.actions[bisect_right(self.bounds, nbytes) - 1]

    def leaves(self, nbytes: int, library: Action) -> bool:
        """Return whether a call of `nbytes` is left to the library's own method."""
        return self.actions[bisect_right(self.bounds, nbytes) - 1] == library

    def device_action(self, nbytes: int, *, mixed: bool) -> Action | None:
        """The same for buffers on a device; None where they must go through the host.

        mixed       some of the buffers are the host's
        """
        place = bisect_right(self.bounds, nbytes) - 1
        act = self.on_device[place]
        return None if mixed and act is not self.actions[place] else act

    def leave(self, library: Action, on_device: Action | None) -> None:
        """The library decides from now on, for a program that has kept a method and calls it."""
        self.bounds[:], self.actions[:], self.on_device[:] = [0], [library], [on_device]


class CountingLadder(Ladder):
    """The same, with every call counted.

    entries     of the rules in a `Tally`; they may be replaced
    """

    def __init__(self, ladder: Ladder, entries: list[list[int]]) -> None:
        super().__init__(ladder.bounds, ladder.actions, ladder.on_device)
        self.entries = entries

    def action(self, nbytes: int) -> Action:
        """What to do with a call of `nbytes`, which is counted."""
        place = bisect_right(self.bounds, nbytes) - 1
        self.entries[place][0] += 1
        return self.actions[place]

    def device_action(self, nbytes: int, *, mixed: bool) -> Action | None:
        """The same for buffers on a device; what goes through the host is counted there."""
        act = super().device_action(nbytes, mixed=mixed)
        if act is not None:
            self.entries[bisect_right(self.bounds, nbytes) - 1][0] += 1
        return act


class RecordingLadder(Ladder):
    """The same, with the time of every call kept in a ring."""

    def __init__(self, ladder: Ladder, rules: Sequence[Rule], ring: Ring) -> None:
        super().__init__(ladder.bounds, ladder.actions, ladder.on_device)
        self._ladder, self._ring = ladder, ring
        self._keys = [(rule.key, rule.choice) for rule in rules]
        self._shapes: dict[int, int] = {}

    def action(self, nbytes: int) -> Action:
        """What to do with a call of `nbytes`, and note how long it takes."""
        return self._timed(nbytes, self._ladder.action(nbytes))

    def device_action(self, nbytes: int, *, mixed: bool) -> Action | None:
        """The same for buffers on a device."""
        act = self._ladder.device_action(nbytes, mixed=mixed)
        return None if act is None else self._timed(nbytes, act)

    def _timed(self, nbytes: int, act: Action) -> Action:
        number = self._shapes.get(nbytes)
        if number is None:
            number = self._ring.shape(self._shape(nbytes))
            if number == UNRECORDED:
                return act
            self._shapes[nbytes] = number
        record = self._ring.record

        def timed(*arguments: object) -> None:
            begin = perf_counter()
            act(*arguments)
            record(number, perf_counter() - begin)

        return timed

    def _shape(self, nbytes: int) -> Shape:
        key, choice = self._keys[bisect_right(self.bounds, nbytes) - 1]
        return _shape(key, choice, nbytes)


def _shape(key: Key, choice: Choice, nbytes: int) -> Shape:
    return Shape(
        key.collective.value,
        key.nodes,
        key.ppn,
        key.memory,
        key.operators,
        choice.algorithm,
        nbytes,
        key.placement,
    )
