"""Times of the schedules of a study that is answered in steps, and the best calls among them.

The service's own process reads them: nothing of the simulation is imported here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tuner.prediction.ordering import rounded_seconds


class BestTimedCall(NamedTuple):
    """The best call at a size.

    task        number of its task in the plan
    call        index of the call in the task
    place       its place among the candidates for this size
    """

    task: int
    call: int
    seconds: float
    place: int

    @property
    def order(self) -> tuple[float, int]:
        """A sort key: of equally fast calls the first among the candidates is the best."""
        return rounded_seconds(self.seconds), self.place


@dataclass(frozen=True)
class PricedTask:
    """The times of one schedule.

    number          of its task in the plan
    label           what asks for this schedule to be priced first
    calls           indices of the calls in the task
    sizes           indices of their sizes
    candidates      the candidate at each of them
    places          their places among the candidates for these sizes
    seconds         at each of them, None where it is too large to be simulated
    """

    number: int
    label: str
    algorithm: str
    predicted_by: str
    calls: tuple[int, ...]
    sizes: tuple[int, ...]
    candidates: tuple[str, ...]
    places: tuple[int, ...]
    seconds: tuple[float | None, ...]

    def record(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "calls"}


@dataclass
class BestCalls:
    """The best calls at each size of those that were priced so far.

    found   best calls by algorithm and index of the size
    """

    found: dict[tuple[str, int], BestTimedCall] = field(default_factory=dict)

    def copy(self) -> BestCalls:
        """Return the same calls, to which others may be added."""
        return BestCalls(self.found.copy())

    def add(self, one: PricedTask) -> None:
        columns = (one.calls, one.sizes, one.places, one.seconds)
        for call, index, place, seconds in zip(*columns, strict=True):
            if not seconds:
                continue
            found = BestTimedCall(one.number, call, seconds, place)
            known = self.found.get((one.algorithm, index))
            if known is None or found.order < known.order:
                self.found[one.algorithm, index] = found

    def seconds(self, algorithm: str, index: int) -> float:
        """Return the seconds of an algorithm at a size, infinite if none are known."""
        known = self.found.get((algorithm, index))
        return known.seconds if known else math.inf

    def of_all(self) -> dict[int, BestTimedCall]:
        """Return the best call of all algorithms, by index of the size."""
        fastest: dict[int, BestTimedCall] = {}
        for (_, index), call in self.found.items():
            if index not in fastest or call.order < fastest[index].order:
                fastest[index] = call
        return fastest
