"""Selection of the choice that is expected to be the fastest at a call."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.core.table import AlgorithmChoice
from tuner.select.coverage import Coverage
from tuner.select.dataset import MIN_GAIN, CallPoint, Observation, group_by_point
from tuner.select.posterior import PosteriorModel, coordinates
from tuner.select.regressor import LENGTH_SCALE

FOREIGN_DISTANCE = LENGTH_SCALE  # to calls of other machines
_UNSUPPORTED_MIN_GAIN = 0.5  # gain required if a choice was not measured on all neighbouring shapes


class Recommender:
    """A recommender for one collective in one kind of memory.

    The winner at the nearest measured call is kept unless another choice is expected to be faster
    by more than noise: far from all measurements posteriors hardly differ. A choice that was not
    measured on all neighbouring shapes must win by a larger margin, since the reason is unknown.
    Among winners tied within noise, one measured on all of them is preferred. A choice that loses
    to the nearest winner at both neighbouring sizes does not replace it.
    """

    def __init__(
        self, model: PosteriorModel, observations: Sequence[Observation], coverage: Coverage
    ) -> None:
        self._model, self._coverage = model, coverage
        own = [row for row in observations if not row.machine]
        self._log_seconds = {(row.point, row.choice): math.log(row.seconds) for row in own}
        groups = [
            (machine, point, _winners(rows))
            for machine in sorted({row.machine for row in observations})
            for point, rows in group_by_point(
                row for row in observations if row.machine == machine
            ).items()
        ]
        self._winner_coordinates = np.array(
            [
                [*coordinates(point), FOREIGN_DISTANCE * bool(machine)]
                for machine, point, _ in groups
            ]
        )
        self._winners = [fastest for _, _, fastest in groups]

    def choose(self, point: CallPoint, candidates: Sequence[AlgorithmChoice]) -> AlgorithmChoice:
        found = self._model.posterior(point, candidates)
        nearest = self._nearest_winner(point, candidates)
        if nearest is None:
            return found.fastest
        gains = {choice: found.log_gain(choice, nearest)[0] for choice in candidates}
        ahead = [
            choice
            for choice in candidates
            if gains[choice] > self._required_gain(point, choice)
            and not self._is_dominated(point, choice, nearest)
        ]
        return max(ahead, key=gains.__getitem__, default=nearest)

    def _is_dominated(
        self, point: CallPoint, choice: AlgorithmChoice, other: AlgorithmChoice
    ) -> bool:
        """Return whether `choice` loses to `other` by more than noise at both neighbouring sizes.

        Times of two algorithms seldom cross twice in between, however uncertain the posterior is.
        """
        beside = [
            self._log_seconds[near, choice] - self._log_seconds[near, other]
            for near in self._coverage.size_neighbours(point)
            if (near, choice) in self._log_seconds and (near, other) in self._log_seconds
        ]
        return len(beside) == 2 and min(beside) > math.log1p(MIN_GAIN)

    def _required_gain(self, point: CallPoint, choice: AlgorithmChoice) -> float:
        """Return the log gain from which a choice replaces the nearest winner."""
        return math.log1p(
            MIN_GAIN if self._coverage.covers_on_all_sides(point, choice) else _UNSUPPORTED_MIN_GAIN
        )

    def _nearest_winner(
        self, point: CallPoint, candidates: Collection[AlgorithmChoice]
    ) -> AlgorithmChoice | None:
        far = np.square(self._winner_coordinates - self._coordinates(point)).sum(axis=1).round(9)
        order = np.argsort(far, kind="stable")
        ties = next((self._winners[n] for n in order if self._winners[n][0] in candidates), ())
        known = (
            choice
            for choice in ties
            if choice in candidates and self._coverage.covers_on_all_sides(point, choice)
        )
        return next(known, ties[0] if ties else None)

    def _coordinates(self, point: CallPoint) -> FloatArray:
        return np.array([*coordinates(point), 0.0])


def _winners(observations: Sequence[Observation]) -> tuple[AlgorithmChoice, ...]:
    """Return the fastest choice of a call, then those that tie with it within noise."""
    ordered = sorted(observations, key=lambda row: row.seconds)
    within = ordered[0].seconds * (1 + MIN_GAIN)
    return tuple(row.choice for row in ordered if row.seconds <= within)
