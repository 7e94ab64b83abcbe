"""The regressor of the selector: a Gaussian process for the residuals of a simulation."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dtrtri
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from tuner.base.arrays import FloatArray
from tuner.select.blas import single_threaded_blas

_MAX_STANDARDISED_ERROR = 4.0  # cap on standardised errors
_TYPICAL_PSEUDO_COUNT = 3.0  # weight of the typical scale in that of each choice, in errors
_PRIOR_PSEUDO_COUNT = 8.0  # weight of the prior in the typical scale, in errors
_N_FIT_ITERATIONS = 4  # alternating with updates of the scales, which have then nearly converged
_SCALE_BOUNDS = (1e-3, 10.0)  # limits of the scales
_ERROR_LENGTH_SCALE = 0.5  # L1 distance over which the sizes of errors are correlated
_MACHINE_CORRELATION = math.exp(-1)  # of residuals of two machines at the same coordinates
COST_CORRELATION = 0.5  # of the logarithms of the costs of two machines

LENGTH_SCALE = 6.0  # in units of the coordinates: natural logarithms of sizes and counts
TYPICAL_SD = 0.3  # of a choice's residual at given coordinates, and of what all choices share
OFFSET_SD = 0.2  # of a choice's residual everywhere


class AlgorithmKernel:
    """The covariance of residuals, a sum of five parts.

    One part is shared by all choices at the same coordinates, one belongs to each choice at its
    coordinates, and one, the offset, belongs to each choice everywhere. The others are errors of
    costs, by the shares of these in the times of two rows: of the machine's, and of each choice's
    deviations from them (`tuner.select.structured_cost`).

    X has the number of the choice in its first column, that of the machine in its second, then the
    coordinates, and in the last columns `n_costs` shares, each times the standard deviation of its
    cost, and that of the choice's deviations, in the same units. Without costs the machine and
    these are missing. The first two parts decay with exp(-L1 distance / LENGTH_SCALE), the product
    of exponential kernels of the coordinates. So on a grid the mean depends only on the nearest
    values along each axis: it interpolates between them and fades into the overall mean beyond
    them. With a sum of squares instead, other sizes of another shape would blur what was measured
    at this size.

    Of two machines the first two parts are correlated less, by `_MACHINE_CORRELATION`, and so are
    costs, by `COST_CORRELATION`.

    algorithm_sd    prior standard deviation of the choices' own part: first that of choices that
                    are not in `algorithms`, then one for each of these
    algorithms      numbers of choices, ascending
    """

    def __init__(
        self, algorithm_sd: ArrayLike = (TYPICAL_SD,), algorithms: ArrayLike = (), n_costs: int = 0
    ) -> None:
        self.algorithm_sd = algorithm_sd
        self.algorithms = algorithms
        self.n_costs = n_costs

    def __call__(self, X: FloatArray, others: FloatArray | None = None) -> FloatArray:
        """Return the covariance of the rows, (n, n), or with other rows, (n, m)."""
        other = X if others is None else others
        return self.covariance(X, other, self.correlation(X, other))

    def correlation(self, X: FloatArray, other: FloatArray) -> FloatArray:
        """Return the correlation of rows at the L1 distance of their coordinates."""
        distance = _distance(self.places(X), self.places(other))
        apart = _MACHINE_CORRELATION ** (1 - self.is_same_machine(X, other))
        return np.asarray(np.exp(distance / -LENGTH_SCALE) * apart)

    def places(self, X: FloatArray) -> FloatArray:
        """Return the columns of the coordinates."""
        return X[:, 2 : -self.n_costs - 1] if self.n_costs else X[:, 1:]

    def is_same_machine(self, X: FloatArray, other: FloatArray) -> FloatArray:
        """Return 1.0 for rows of the same machine, else 0.0, (n, m)."""
        return _is_equal(X, other, 1) if self.n_costs else np.ones((len(X), len(other)))

    def covariance(self, X: FloatArray, other: FloatArray, correlation: FloatArray) -> FloatArray:
        """Return the covariance, given the correlation."""
        sds = np.outer(self._algorithm_sds(X), self._algorithm_sds(other))
        shared = TYPICAL_SD**2 * correlation
        own = sds * correlation + OFFSET_SD**2
        if self.n_costs:
            alike = X[:, -self.n_costs - 1 : -1] @ other[:, -self.n_costs - 1 : -1].T
            shared += alike * COST_CORRELATION ** (1 - self.is_same_machine(X, other))
            own += np.outer(X[:, -1], other[:, -1]) * alike
        return np.asarray(shared + _is_equal(X, other, 0) * own)

    def _algorithm_sds(self, X: FloatArray) -> FloatArray:
        algorithms, own = np.asarray(self.algorithms, float), np.asarray(self.algorithm_sd, float)
        at = np.searchsorted(algorithms, X[:, 0])
        known = np.append(algorithms, np.nan)[at] == X[:, 0]
        return np.asarray(own[np.where(known, at + 1, 0)])


class ResidualGP(RegressorMixin, BaseEstimator):
    """A regressor that predicts y as the last column of X plus a learned residual.

    The other columns are those of `AlgorithmKernel`. Here the last column is the logarithm of the
    expected time, simulated or from fitted costs, and y that of the measured one, so the residual
    is the logarithm of the expectation's error: it varies slowly with the size even where the time
    itself does not.

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

    noise_variance  variance of an observation of weight 1 (1e-4: a time known to 1 %)
    n_costs         number of the costs whose shares are columns, see `AlgorithmKernel`
    """

    def __init__(self, noise_variance: float = 1e-4, n_costs: int = 0) -> None:
        self.noise_variance = noise_variance
        self.n_costs = n_costs

    @single_threaded_blas
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        shared_noise: FloatArray | None = None,
    ) -> ResidualGP:
        """Fit to X (n, columns), y (n,) and weights (n,).

        sample_weight   noise_variance / variance of each y; 0 leaves it out
        shared_noise    covariance of noise that several y have in common, besides, (n, n)
        """
        features, target = validate_data(self, X, y, y_numeric=True)
        weight = _check_sample_weight(sample_weight, features, ensure_non_negative=True)
        features, shares, weight = _merge_duplicates(features, weight)
        residual = shares @ target - features[:, -1]
        own_noise = np.diag(self.noise_variance / weight)
        noise = own_noise if shared_noise is None else own_noise + shares @ shared_noise @ shares.T
        self.coordinates_ = _coordinates(features)
        algorithms, which = np.unique(features[:, 0], return_inverse=True)
        scales = np.ones(len(algorithms))
        prior = AlgorithmKernel(n_costs=self.n_costs)
        near = prior.correlation(self.coordinates_, self.coordinates_)
        for _ in range(_N_FIT_ITERATIONS):
            own = TYPICAL_SD * np.concatenate([[np.median(scales)], scales])
            self.kernel_ = AlgorithmKernel(own, algorithms, self.n_costs)
            covariance = self.kernel_.covariance(self.coordinates_, self.coordinates_, near)
            self.cholesky_ = cholesky(covariance + noise, lower=True)
            self.alpha_ = cho_solve((self.cholesky_, True), residual)
            self.loo_squared_errors_ = _loo_squared_errors(self.cholesky_, self.alpha_)
            scales = np.clip(
                _update_scales(scales, self.loo_squared_errors_, which), *_SCALE_BOUNDS
            )
        self.own_noise_cholesky_ = cholesky(covariance + own_noise, lower=True)
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        return self.predict_joint(X)[0]

    @single_threaded_blas
    def predict_joint(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the expected y, (n,), and its covariance, (n, n)."""
        check_is_fitted(self)
        features = validate_data(self, X, reset=False)
        places = _coordinates(features)
        near = self.kernel_.correlation(self.coordinates_, places)
        against = self.kernel_.covariance(self.coordinates_, places, near)
        told, known = (
            solve_triangular(factor, against, lower=True)
            for factor in (self.cholesky_, self.own_noise_cholesky_)
        )
        covariance = self.kernel_(places) - known.T @ known
        own = self.noise_variance / np.maximum(
            np.diag(covariance), self.noise_variance
        )  # 1 at measurements
        scale = own + (1 - own) * self._nearby_error_scale(places)
        covariance = covariance * np.outer(scale, scale) + known.T @ known - told.T @ told
        return features[:, -1] + self.alpha_ @ against, covariance

    def _nearby_error_scale(self, places: FloatArray) -> FloatArray:
        """Return the typical standardised error of the same choice near each row; 1 without any."""
        distance = _distance(*map(self.kernel_.places, (self.coordinates_, places)))
        weight = _is_equal(self.coordinates_, places, 0)
        weight *= self.kernel_.is_same_machine(self.coordinates_, places)
        weight *= np.exp(distance / -_ERROR_LENGTH_SCALE)
        squares = (self.loo_squared_errors_ @ weight + 1) / (weight.sum(axis=0) + 1)
        return np.asarray(np.sqrt(squares))


def _merge_duplicates(
    features: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Merge rows with equal features; return these, the shares of rows in them and their weights.

    Rows without weight have no share.
    """
    rows, which = np.unique(features[weight > 0], axis=0, return_inverse=True)
    shares = np.zeros((len(rows), len(features)))
    shares[which.ravel(), np.flatnonzero(weight > 0)] = weight[weight > 0]
    total = shares.sum(axis=1)
    return rows, shares / total[:, None], total


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


def _is_equal(some: FloatArray, others: FloatArray, column: int) -> FloatArray:
    """Return 1.0 for rows whose `column` is equal, else 0.0, (n, m)."""
    return np.asarray(some[:, column, None] == others[:, column], float)


def _distance(some: FloatArray, others: FloatArray) -> FloatArray:
    """Return the L1 distances of coordinates, (n, m)."""
    if some.shape[1] == 0:
        return np.zeros((len(some), len(others)))
    return np.asarray(cdist(some, others, "cityblock"))


def _coordinates(features: FloatArray) -> FloatArray:
    """Return the features without the last column, if more than one column exists."""
    return features[:, :-1] if features.shape[1] > 1 else features
