"""Times of the schedules of a study that is answered in steps, and the best calls among them.

The service's own process reads them: nothing of the simulation is imported here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tuner.prediction.ordering import rounded_seconds

BestTimedCall = tuple[int, int, float]  # task, index of the call in it, seconds


@dataclass(frozen=True)
class PricedTask:
    """The times of one schedule.

    number          of its task in the plan
    label           what asks for this schedule to be priced first
    calls           indices of the calls in the task
    sizes           indices of their sizes
    candidates      the candidate at each of them
    seconds         at each of them, None where it is too large to be simulated
    """

    number: int
    label: str
    algorithm: str
    predicted_by: str
    calls: tuple[int, ...]
    sizes: tuple[int, ...]
    candidates: tuple[str, ...]
    seconds: tuple[float | None, ...]

    def record(self) -> dict[str, Any]:
        """Return what clients are sent, as JSON data."""
        return {name: value for name, value in vars(self).items() if name != "calls"}


@dataclass
class BestCalls:
    """The best calls at each size of those that were priced so far.

    found   task, index of the call in it, and seconds, by algorithm and index of the size
    """

    found: dict[tuple[str, int], BestTimedCall] = field(default_factory=dict)

    def copy(self) -> BestCalls:
        """Return the same calls, to which others may be added."""
        return BestCalls(self.found.copy())

    def add(self, one: PricedTask) -> None:
        """Take the times of a task into account."""
        for call, index, seconds in zip(one.calls, one.sizes, one.seconds, strict=True):
            known = self.found.get((one.algorithm, index))
            if seconds and (known is None or _order((one.number, call, seconds)) < _order(known)):
                self.found[one.algorithm, index] = one.number, call, seconds

    def seconds(self, algorithm: str, index: int) -> float:
        """Return the seconds of an algorithm at a size, infinite if none are known."""
        known = self.found.get((algorithm, index))
        return known[2] if known else math.inf

    def of_all(self) -> dict[int, BestTimedCall]:
        """Return the best call of all algorithms, by index of the size."""
        fastest: dict[int, BestTimedCall] = {}
        for (_, index), call in self.found.items():
            if index not in fastest or _order(call) < _order(fastest[index]):
                fastest[index] = call
        return fastest


def _order(call: BestTimedCall) -> tuple[float, int]:
    """Return a sort key: of equally fast calls the first in the order of candidates is best."""
    return rounded_seconds(call[2]), call[0]
