"""Which of many possible measurements is worth most per second, after others were chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.core.table import Choice
from tuner.select.dataset import Point
from tuner.select.posterior_covariance import Influence


@dataclass(frozen=True)
class Task:
    """One point of a batch and what to measure there, the default first; about `seconds`."""

    point: Point
    choices: tuple[Choice, ...]
    seconds: float


@dataclass(frozen=True)
class Option:
    """A task, the number of its point and the fraction of that point's regret that it saves."""

    number: int
    task: Task
    fraction: float


class Offers:
    """The options that are left; `take` tells that one of them will be measured.

    regrets     expected at every point, weighted
    influence   of the points on one another; it is changed
    """

    def __init__(
        self, options: Sequence[Option], regrets: FloatArray, influence: Influence
    ) -> None:
        self._options, self._regrets, self._influence = options, regrets, influence
        self._numbers = np.array([option.number for option in options], dtype=int)
        self._seconds = np.array([option.task.seconds for option in options])
        self._rates = np.array([option.fraction for option in options]) / self._seconds
        self._reached = np.zeros(len(regrets))  # regret that measuring each point tells of
        for number in np.unique(self._numbers):
            if not self._reached[number]:
                self._tell(number)

    def best(self, seconds: float) -> Option | None:
        """Of most regret saved per second, of those that take no longer; None if none saves any."""
        values = self._rates * self._reached[self._numbers]
        values[self._seconds > seconds] = 0.0
        best = int(values.argmax()) if len(values) else 0
        return self._options[best] if len(values) and values[best] > 0 else None

    def take(self, option: Option) -> None:
        """Its point has no other options any more, and less of the regret around it is left."""
        number, fellows = option.number, self._influence.fellows(option.number)
        self._regrets[fellows] *= 1 - option.fraction * self._influence.shares(number)
        self._influence.add(number)
        self._rates[self._numbers == number] = 0.0
        self._tell(number)

    def _tell(self, number: int) -> None:
        fellows = self._influence.fellows(number)
        self._reached[fellows] = self._influence.reached(number, self._regrets)
