"""The posterior covariance between points: how much measuring one point tells about the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dger
from scipy.spatial.distance import cdist

from tuner.base.arrays import FloatArray
from tuner.select.dataset import CallPoint

_MEASUREMENT_VARIANCE = 1e-4  # remaining variance of a measured point; the prior one is 1
_LENGTH_SCALE = 16.0  # L1 distance of logarithms of sizes and counts
_CONSTANT_VARIANCE = 0.05  # additional prior variance that points of one kind share


class PosteriorCovariance:
    """The posterior covariance of one choice's residual over points, given the measured points.

    It is that of the regressor's kernel for a single choice; which choices were measured is
    ignored. Only points of the same kind are correlated.
    """

    def __init__(self, points: Sequence[CallPoint], measured: Iterable[int]) -> None:
        kinds = dict.fromkeys(p.kind for p in points)
        self._groups = [
            np.array([n for n, p in enumerate(points) if p.kind == kind]) for kind in kinds
        ]
        self._positions = {
            int(number): (group, row)
            for group, fellows in enumerate(self._groups)
            for row, number in enumerate(fellows)
        }
        self._covariances = [_prior_covariance([points[n] for n in own]) for own in self._groups]
        for number in measured:
            self.condition_on(number)

    def condition_on(self, index: int) -> None:
        """Update the covariance as if the point of this index were measured."""
        group, row = self._positions[index]
        covariance = self._covariances[group]
        column = covariance[:, row].copy()
        dger(
            -1 / (column[row] + _MEASUREMENT_VARIANCE), column, column, a=covariance, overwrite_a=1
        )

    def copy(self) -> PosteriorCovariance:
        return deepcopy(self)

    def correlated_points(self, index: int) -> NDArray[np.intp]:
        """Return the indices of the points correlated with this one, including itself."""
        return self._groups[self._positions[index][0]]

    def variance_of_sum(self, sds: FloatArray) -> float:
        """Return the variance of the sum over points with these standard deviations."""
        total = 0.0
        for fellows, covariance in zip(self._groups, self._covariances, strict=True):
            scaled = sds[fellows] / np.sqrt(_variances(covariance))
            total += float(scaled @ covariance @ scaled)
        return total

    def variance_explained(self, index: int) -> FloatArray:
        """Return the fraction of each correlated point's variance that this point explains.

        It is 1 for the point itself.
        """
        group, row = self._positions[index]
        covariance = self._covariances[group]
        variances = _variances(covariance)
        shares = np.square(covariance[:, row]) / (variances * variances[row])
        shares *= covariance[row, row] > 2 * _MEASUREMENT_VARIANCE
        shares[row] = 1.0
        return np.asarray(shares)

    def value_explained(self, index: int, values: FloatArray) -> FloatArray:
        """Return for each correlated point how much of all their `values` measuring it explains.

        A point that is already known explains only its own value.
        """
        covariance = self._covariances[self._positions[index][0]]
        own, variances = values[self.correlated_points(index)], _variances(covariance)
        told = np.einsum("ji,ji,j->i", covariance, covariance, own / variances) / variances
        unknown = np.diag(covariance) > 2 * _MEASUREMENT_VARIANCE
        return np.asarray(np.where(unknown, told, own))


def _prior_covariance(points: Sequence[CallPoint]) -> FloatArray:
    """Return the prior covariance in column-major order, so that BLAS can update it in place."""
    places = np.array([point.log_coordinates for point in points])
    correlation = np.exp(cdist(places, places, "cityblock") / -_LENGTH_SCALE)
    return np.asfortranarray(correlation + _CONSTANT_VARIANCE)


def _variances(covariance: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(np.diag(covariance), 1e-12))
