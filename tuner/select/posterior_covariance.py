"""How much measuring one point tells about the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dger

from tuner.base.arrays import FloatArray
from tuner.select.dataset import CallPoint
from tuner.select.regressor import AlgorithmKernel

_MEASUREMENT_VARIANCE = (
    1e-4  # variance that is left where a point was measured, of a prior one of 1
)
_CONSTANT_VARIANCE = 0.05  # prior variance beside it that is the same everywhere among fellows


class PosteriorCovariance:
    """The covariance of what is not known of one arm, over points, given those measured.

    It is that of the regressor's kernel, for an arm as such: which arms were measured is left out.
    A point tells something about its fellows alone, those of its kind.
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
        """Take the point of this number as measured."""
        group, row = self._positions[index]
        covariance = self._covariances[group]
        column = covariance[:, row].copy()
        dger(
            -1 / (column[row] + _MEASUREMENT_VARIANCE), column, column, a=covariance, overwrite_a=1
        )

    def copy(self) -> PosteriorCovariance:
        """Another one, which `add` changes alone."""
        return deepcopy(self)

    def correlated_points(self, index: int) -> NDArray[np.intp]:
        """The numbers of the points that this one tells something about, itself among them."""
        return self._groups[self._positions[index][0]]

    def variance_of_sum(self, sds: FloatArray) -> float:
        """Variance of the sum of what is not known of the points, each of such a deviation."""
        total = 0.0
        for fellows, covariance in zip(self._groups, self._covariances, strict=True):
            scaled = sds[fellows] / np.sqrt(_variances(covariance))
            total += float(scaled @ covariance @ scaled)
        return total

    def variance_explained(self, index: int) -> FloatArray:
        """Which fraction of what is not known of each of its fellows measuring this point would
        tell; all of itself.
        """
        group, row = self._positions[index]
        covariance = self._covariances[group]
        variances = _variances(covariance)
        shares = np.square(covariance[:, row]) / (variances * variances[row])
        shares *= covariance[row, row] > 2 * _MEASUREMENT_VARIANCE
        shares[row] = 1.0
        return np.asarray(shares)

    def value_explained(self, index: int, values: FloatArray) -> FloatArray:
        """Of each of its fellows: what it tells of the `values` of all of them, `shares` @ values.

        A known point tells of itself alone.
        """
        covariance = self._covariances[self._positions[index][0]]
        own, variances = values[self.correlated_points(index)], _variances(covariance)
        told = np.einsum("ji,ji,j->i", covariance, covariance, own / variances) / variances
        unknown = np.diag(covariance) > 2 * _MEASUREMENT_VARIANCE
        return np.asarray(np.where(unknown, told, own))


def _prior_covariance(points: Sequence[CallPoint]) -> FloatArray:
    """In columns, so that it can be updated where it is."""
    places = np.array(
        [(0.0, math.log(max(p.nbytes, 1)), math.log(p.nodes), math.log(p.ppn)) for p in points]
    )
    return np.asfortranarray(AlgorithmKernel(shared_sd=0.0)(places) + _CONSTANT_VARIANCE)


def _variances(covariance: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(np.diag(covariance), 1e-12))
