"""Selection of the measurement that is worth most per second, given those already chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.core.table import AlgorithmConfig
from tuner.select.dataset import CallPoint
from tuner.select.posterior_covariance import PosteriorCovariance


@dataclass(frozen=True)
class Experiment:
    """A point of a batch, the choices to measure there, default first, and estimated seconds."""

    point: CallPoint
    choices: tuple[AlgorithmConfig, ...]
    seconds: float


@dataclass(frozen=True)
class AcquisitionCandidate:
    """An experiment, the index of its point and the fraction of that point's regret it saves."""

    point_index: int
    experiment: Experiment
    saved_fraction: float


class AcquisitionQueue:
    """The experiments that can still be chosen; `accept` chooses one of them.

    regrets     expected regret at every point, weighted
    covariance  posterior covariance of the points; it is changed in place
    """

    def __init__(
        self,
        candidates: Sequence[AcquisitionCandidate],
        regrets: FloatArray,
        covariance: PosteriorCovariance,
    ) -> None:
        self._candidates, self._regrets, self._covariance = candidates, regrets, covariance
        self._point_indices = np.array([option.point_index for option in candidates], dtype=int)
        self._seconds = np.array([option.experiment.seconds for option in candidates])
        self._fraction_per_second = (
            np.array([option.saved_fraction for option in candidates]) / self._seconds
        )
        self._value_explained = np.zeros(len(regrets))  # regret explained by measuring each point
        for number in np.unique(self._point_indices):
            if not self._value_explained[number]:
                self._update_value_explained(number)

    def best(self, max_seconds: float) -> AcquisitionCandidate | None:
        """Return the candidate that saves most regret per second, or None if none saves any.

        max_seconds     candidates that take longer are left out
        """
        values = self._fraction_per_second * self._value_explained[self._point_indices]
        values[self._seconds > max_seconds] = 0.0
        best = int(values.argmax()) if len(values) else 0
        return self._candidates[best] if len(values) and values[best] > 0 else None

    def accept(self, candidate: AcquisitionCandidate) -> None:
        """Choose a candidate, drop the others of its point and lower the regret around it."""
        number = candidate.point_index
        fellows = self._covariance.correlated_points(candidate.point_index)
        self._regrets[fellows] *= (
            1 - candidate.saved_fraction * self._covariance.variance_explained(number)
        )
        self._covariance.condition_on(number)
        self._fraction_per_second[self._point_indices == number] = 0.0
        self._update_value_explained(number)

    def _update_value_explained(self, index: int) -> None:
        fellows = self._covariance.correlated_points(index)
        self._value_explained[fellows] = self._covariance.value_explained(index, self._regrets)
