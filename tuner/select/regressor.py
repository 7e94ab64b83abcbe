"""The regressor of the posterior: a Gaussian process for the errors of expected times."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dtrtri
from scipy.spatial.distance import cdist

from tuner.base.arrays import FloatArray
from tuner.select.blas import single_threaded_blas
from tuner.select.structured_cost import COST_CORRELATION, TERMS

_NOISE_VARIANCE = 1e-4  # of the logarithm of a time: known to 1 % at best
_MAX_STANDARDISED_ERROR = 4.0  # cap on standardised errors
_TYPICAL_PSEUDO_COUNT = 3.0  # weight of the typical scale in that of each choice, in errors
_PRIOR_PSEUDO_COUNT = 8.0  # weight of the prior in the typical scale, in errors
_N_FIT_ITERATIONS = 4  # alternating with updates of the scales, which have then nearly converged
_SCALE_BOUNDS = (1e-3, 10.0)  # limits of the scales
_ERROR_LENGTH_SCALE = 0.5  # L1 distance over which the sizes of errors are correlated
_MACHINE_CORRELATION = math.exp(-1)  # of residuals of two machines at the same coordinates

LENGTH_SCALE = 6.0  # in units of the coordinates: natural logarithms of sizes and counts
TYPICAL_SD = 0.3  # of a choice's residual at given coordinates, and of what all choices share
OFFSET_SD = 0.2  # of a choice's residual everywhere

# Columns of the rows that `AlgorithmKernel` describes.
_COORDINATES = slice(2, -len(TERMS) - 1)
_COSTS = slice(-len(TERMS) - 1, -1)


@dataclass(frozen=True)
class AlgorithmKernel:
    """The covariance of residuals, a sum of five parts.

    One part is shared by all choices at the same coordinates, one belongs to each choice at its
    coordinates, and one, the offset, belongs to each choice everywhere. The others are errors of
    costs, by the shares of these in the times of two rows: of the machine's, and of each choice's
    deviations from them (`tuner.select.structured_cost`).

    A row has the number of the choice in its first column, that of the machine in its second, then
    the coordinates, then the shares of the costs, each times the standard deviation of its cost,
    and in the last that of the choice's deviations, in the same units. The first two parts decay
    with exp(-L1 distance / LENGTH_SCALE), the product of exponential kernels of the coordinates. So
    on a grid the mean depends only on the nearest values along each axis: it interpolates between
    them and fades into the overall mean beyond them. With a sum of squares instead, other sizes of
    another shape would blur what was measured at this size.

    Of two machines the first two parts are correlated less, by `_MACHINE_CORRELATION`, and so are
    costs, by `COST_CORRELATION`.

    algorithm_sd    prior standard deviation of the choices' own part: first that of choices that
                    are not in `algorithms`, then one for each of these
    algorithms      numbers of choices, ascending
    """

    algorithm_sd: ArrayLike = (TYPICAL_SD,)
    algorithms: ArrayLike = ()

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Return the covariance of the rows, (n, n)."""
        return self.covariance(rows, rows, _correlation(rows, rows))

    def covariance(
        self, rows: FloatArray, others: FloatArray, correlation: FloatArray
    ) -> FloatArray:
        """Return the covariance of rows and others, (n, m), given their `_correlation`."""
        sds = np.outer(self._algorithm_sds(rows), self._algorithm_sds(others))
        alike = rows[:, _COSTS] @ others[:, _COSTS].T
        shared = TYPICAL_SD**2 * correlation
        shared += alike * COST_CORRELATION ** (1 - _is_same_machine(rows, others))
        own = sds * correlation + OFFSET_SD**2
        own += np.outer(rows[:, -1], others[:, -1]) * alike
        return np.asarray(shared + _is_equal(rows, others, 0) * own)

    def _algorithm_sds(self, rows: FloatArray) -> FloatArray:
        algorithms, own = np.asarray(self.algorithms, float), np.asarray(self.algorithm_sd, float)
        at = np.searchsorted(algorithms, rows[:, 0])
        known = np.append(algorithms, np.nan)[at] == rows[:, 0]
        return np.asarray(own[np.where(known, at + 1, 0)])


class ResidualGP:
    """A regressor that predicts the logarithm of a time as the last column plus a learned residual.

    The other columns are those of `AlgorithmKernel`. The last column is the logarithm of the
    expected time, simulated or from fitted costs, so the residual is the logarithm of the
    expectation's error: it varies slowly with the size even where the time itself does not.

    The residual is a Gaussian process (Rasmussen and Williams, Gaussian Processes for Machine
    Learning, 2006, chapter 2) over all choices together, with `AlgorithmKernel`. What all choices
    share at the same coordinates (the size's cost, a slow launch) is learned from all of them and
    cancels when two are compared. With a length scale of many steps of the probed sizes the mean
    is, between neighbouring measurements, their linear interpolation; the standard deviation is the
    measurement's own at a measurement and grows with the distance from it.

    The scale of the residuals is learned for each choice, for some are simulated well and others
    are made of several algorithms: each residual is predicted from all others (ibid., section
    5.4.2), and a choice's prior deviation is scaled until these errors have unit variance. A choice
    with little data is taken to be like the others. Where a choice's errors are smaller or larger
    than usual for it, the deviations predicted around there are, too: a library's default jumps
    where it changes its algorithm and is steady elsewhere. What noise in common adds to the
    covariance is left as it is, so that it cancels in differences.

    features        (n, columns)
    log_seconds     logarithms of measured times, (n,)
    variances       of these, (n,)
    shared_noise    covariance of noise that several of them have in common, besides, (n, n)
    """

    @single_threaded_blas()
    def __init__(
        self,
        features: FloatArray,
        log_seconds: FloatArray,
        variances: FloatArray,
        shared_noise: FloatArray,
    ) -> None:
        weight = _NOISE_VARIANCE / np.maximum(variances, _NOISE_VARIANCE)
        features, shares, weight = _merge_duplicates(features, weight)
        residual = shares @ log_seconds - features[:, -1]
        own_noise = np.diag(_NOISE_VARIANCE / weight)
        noise = own_noise + shares @ shared_noise @ shares.T
        self._rows = features[:, :-1]
        algorithms, which = np.unique(features[:, 0], return_inverse=True)
        scales = np.ones(len(algorithms))
        near = _correlation(self._rows, self._rows)
        for _ in range(_N_FIT_ITERATIONS):
            own = TYPICAL_SD * np.concatenate([[np.median(scales)], scales])
            self._kernel = AlgorithmKernel(own, algorithms)
            covariance = self._kernel.covariance(self._rows, self._rows, near)
            self._cholesky = cholesky(covariance + noise, lower=True)
            self._alpha = cho_solve((self._cholesky, True), residual)
            self._loo_squared_errors = _loo_squared_errors(self._cholesky, self._alpha)
            scales = np.clip(
                _update_scales(scales, self._loo_squared_errors, which), *_SCALE_BOUNDS
            )
        self._own_noise_cholesky = cholesky(covariance + own_noise, lower=True)

    @single_threaded_blas()
    def predict_joint(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the expected logarithms of times, (n,), and their covariance, (n, n)."""
        rows = features[:, :-1]
        against = self._kernel.covariance(self._rows, rows, _correlation(self._rows, rows))
        told, known = (
            solve_triangular(factor, against, lower=True)
            for factor in (self._cholesky, self._own_noise_cholesky)
        )
        covariance = self._kernel(rows) - known.T @ known
        own = _NOISE_VARIANCE / np.maximum(
            np.diag(covariance), _NOISE_VARIANCE
        )  # 1 at measurements
        scale = own + (1 - own) * self._nearby_error_scale(rows)
        covariance = covariance * np.outer(scale, scale) + known.T @ known - told.T @ told
        return features[:, -1] + self._alpha @ against, covariance

    def _nearby_error_scale(self, rows: FloatArray) -> FloatArray:
        """Return the typical standardised error of the same choice near each row; 1 without any."""
        weight = _is_equal(self._rows, rows, 0) * _is_same_machine(self._rows, rows)
        weight *= np.exp(_distance(self._rows, rows) / -_ERROR_LENGTH_SCALE)
        squares = (self._loo_squared_errors @ weight + 1) / (weight.sum(axis=0) + 1)
        return np.asarray(np.sqrt(squares))


def _merge_duplicates(
    features: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the rows without repetitions, the shares of all rows in them and their weights."""
    merged, which = np.unique(features, axis=0, return_inverse=True)
    shares = np.zeros((len(merged), len(features)))
    shares[which.ravel(), np.arange(len(features))] = weight
    total = shares.sum(axis=1)
    return merged, shares / total[:, None], total


def _loo_squared_errors(lower: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the squared leave-one-out errors over their variances, capped.

    lower       Cholesky factor of the covariance
    weights     inverse covariance times the values
    """
    inverse, _ = dtrtri(lower, lower=True)
    diagonal = np.einsum("ij,ij->j", inverse, inverse)  # diagonal of the inverse covariance
    return np.asarray(np.minimum(np.square(weights) / diagonal, _MAX_STANDARDISED_ERROR**2))


def _update_scales(previous: FloatArray, errors: FloatArray, which: NDArray[np.intp]) -> FloatArray:
    """Return the scale of each choice, (choices,): the previous one corrected by its errors.

    Geometric means are used, so that one jump does not hide how steady a choice is elsewhere. Few
    errors are outweighed by those of a typical choice, and if these are few, too, by the prior.
    """
    count = np.bincount(which)
    logs = np.log(np.maximum(np.bincount(which, errors) / count, 1e-4)) + 2 * np.log(previous)
    typical = len(errors) * np.median(logs) / (len(errors) + _PRIOR_PSEUDO_COUNT)
    return np.asarray(
        np.exp(
            (count * logs + _TYPICAL_PSEUDO_COUNT * typical) / (count + _TYPICAL_PSEUDO_COUNT) / 2
        )
    )


def _correlation(rows: FloatArray, others: FloatArray) -> FloatArray:
    """Return the correlation of residuals at the L1 distance of their coordinates, (n, m)."""
    apart = _MACHINE_CORRELATION ** (1 - _is_same_machine(rows, others))
    return np.asarray(np.exp(_distance(rows, others) / -LENGTH_SCALE) * apart)


def _distance(rows: FloatArray, others: FloatArray) -> FloatArray:
    """Return the L1 distances of coordinates, (n, m)."""
    return np.asarray(cdist(rows[:, _COORDINATES], others[:, _COORDINATES], "cityblock"))


def _is_same_machine(rows: FloatArray, others: FloatArray) -> FloatArray:
    """Return 1.0 for rows of the same machine, else 0.0, (n, m)."""
    return _is_equal(rows, others, 1)


def _is_equal(rows: FloatArray, others: FloatArray, column: int) -> FloatArray:
    """Return 1.0 for rows whose `column` is equal, else 0.0, (n, m)."""
    return np.asarray(rows[:, column, None] == others[:, column], float)
