"""The regressor of the selector: a Gaussian process for the residuals of a simulation."""

from __future__ import annotations

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


class AlgorithmKernel:
    """The covariance of residuals, a sum of three parts.

    One part is shared by all choices at the same coordinates, one belongs to each choice at its
    coordinates, and one, the offset, belongs to each choice everywhere.

    X has the number of the choice in its first column and the coordinates in the others. The first
    two parts decay with exp(-L1 distance / length_scale), the product of exponential kernels of the
    coordinates. So on a grid the mean depends only on the nearest values along each axis: it
    interpolates between them and fades into the overall mean beyond them. With a sum of squares
    instead, other sizes of another shape would blur what was measured at this size.

    shared_sd       prior standard deviation of the shared part
    offset_sd       prior standard deviation of the offset
    algorithm_sd    prior standard deviation of the choices' own part: first that of choices that
                    are not in `algorithms`, then one for each of these
    algorithms      numbers of choices, ascending
    """

    def __init__(
        self,
        length_scale: float = 16.0,
        shared_sd: float = 1.0,
        offset_sd: float = 0.0,
        algorithm_sd: ArrayLike = (1.0,),
        algorithms: ArrayLike = (),
    ) -> None:
        self.length_scale = length_scale
        self.shared_sd = shared_sd
        self.offset_sd = offset_sd
        self.algorithm_sd = algorithm_sd
        self.algorithms = algorithms

    def __call__(self, X: FloatArray, others: FloatArray | None = None) -> FloatArray:
        """Return the covariance of the rows, (n, n), or with other rows, (n, m)."""
        other = X if others is None else others
        return self.covariance(
            X, self.correlation(_distance(X, other)), _is_same_algorithm(X, other)
        )

    def correlation(self, distance: FloatArray) -> FloatArray:
        """Return the correlation at an L1 distance."""
        return np.asarray(np.exp(distance / -self.length_scale))

    def covariance(self, X: FloatArray, correlation: FloatArray, same: FloatArray) -> FloatArray:
        """Return the covariance, given the correlation and which rows are of the same choice."""
        own = np.square(self._algorithm_sds(X))[:, None] * correlation + self.offset_sd**2
        return np.asarray(self.shared_sd**2 * correlation + same * own)

    def _algorithm_sds(self, X: FloatArray) -> FloatArray:
        algorithms, own = np.asarray(self.algorithms, float), np.asarray(self.algorithm_sd, float)
        at = np.searchsorted(algorithms, X[:, 0])
        known = np.append(algorithms, np.nan)[at] == X[:, 0]
        return np.asarray(own[np.where(known, at + 1, 0)])


class ResidualGP(RegressorMixin, BaseEstimator):
    """A regressor that predicts y as the last column of X plus a learned residual.

    The first column is the number of the choice, the columns in between are the coordinates. Here
    the last column is the logarithm of the simulated time and y that of the measured one, so the
    residual is the logarithm of the simulation's error: it varies slowly with the size even where
    the time itself does not.

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
    where it changes its algorithm and is steady elsewhere.

    length_scale    in units of the columns (natural logarithms here: 16 is many steps of sizes)
    algorithm_sd    prior deviation of a choice's residual at given coordinates; the shared part has
                    that of a typical choice
    offset_sd       prior deviation of a choice's residual everywhere
    noise_variance  variance of an observation of weight 1 (1e-4: a time known to 1 %)
    """

    def __init__(
        self,
        length_scale: float = 16.0,
        algorithm_sd: float = 1.0,
        offset_sd: float = 0.3,
        noise_variance: float = 1e-4,
    ) -> None:
        self.length_scale = length_scale
        self.algorithm_sd = algorithm_sd
        self.offset_sd = offset_sd
        self.noise_variance = noise_variance

    @single_threaded_blas
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> ResidualGP:
        """Fit to X (n, columns), y (n,) and weights (n,).

        sample_weight   noise_variance / variance of each y; 0 leaves it out
        """
        features, target = validate_data(self, X, y, y_numeric=True)
        weight = _check_sample_weight(sample_weight, features, ensure_non_negative=True)
        features, target, weight = _merge_duplicates(features, target, weight)
        residual = target - features[:, -1]
        self.mean_ = float(np.average(residual, weights=weight))
        self.coordinates_, variances = _coordinates(features), self.noise_variance / weight
        algorithms, which = np.unique(features[:, 0], return_inverse=True)
        scales = np.ones(len(algorithms))
        near = AlgorithmKernel(self.length_scale).correlation(
            _distance(self.coordinates_, self.coordinates_)
        )
        same = _is_same_algorithm(self.coordinates_, self.coordinates_)
        for _ in range(_N_FIT_ITERATIONS):
            own = self.algorithm_sd * np.concatenate([[np.median(scales)], scales])
            self.kernel_ = AlgorithmKernel(
                self.length_scale, float(own[0]), self.offset_sd, own, algorithms
            )
            covariance = self.kernel_.covariance(self.coordinates_, near, same)
            self.cholesky_ = cholesky(covariance + np.diag(variances), lower=True)
            self.alpha_ = cho_solve((self.cholesky_, True), residual - self.mean_)
            self.loo_squared_errors_ = _loo_squared_errors(self.cholesky_, self.alpha_)
            scales = np.clip(
                _update_scales(scales, self.loo_squared_errors_, which), *_SCALE_BOUNDS
            )
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        return self.predict_joint(X)[0]

    @single_threaded_blas
    def predict_joint(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the expected y, (n,), and its covariance, (n, n)."""
        check_is_fitted(self)
        features = validate_data(self, X, reset=False)
        places = _coordinates(features)
        distance = _distance(self.coordinates_, places)
        same = _is_same_algorithm(self.coordinates_, places)
        against = self.kernel_.covariance(
            self.coordinates_, self.kernel_.correlation(distance), same
        )
        told = solve_triangular(self.cholesky_, against, lower=True)
        covariance = self.kernel_(places) - told.T @ told
        own = self.noise_variance / np.maximum(
            np.diag(covariance), self.noise_variance
        )  # 1 at measurements
        scale = own + (1 - own) * self._nearby_error_scale(distance, same)
        expected = features[:, -1] + self.mean_ + self.alpha_ @ against
        return expected, covariance * np.outer(scale, scale)

    def _nearby_error_scale(self, distance: FloatArray, same: FloatArray) -> FloatArray:
        """Return the typical standardised error of the same choice near each row; 1 without any."""
        weight = same * np.exp(distance / -_ERROR_LENGTH_SCALE)
        squares = (self.loo_squared_errors_ @ weight + 1) / (weight.sum(axis=0) + 1)
        return np.asarray(np.sqrt(squares))


def _merge_duplicates(
    features: FloatArray, target: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Merge rows with equal features into one with their weighted mean and total weight."""
    used = weight > 0
    rows, which = np.unique(features[used], axis=0, return_inverse=True)
    total = np.bincount(which.ravel(), weight[used]).astype(float)
    means = np.bincount(which.ravel(), (weight * target)[used]) / total
    return rows, means, total


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


def _is_same_algorithm(some: FloatArray, others: FloatArray) -> FloatArray:
    """Return 1.0 for rows of the same choice, else 0.0, (n, m)."""
    return np.asarray(some[:, :1] == others[:, 0], float)


def _distance(some: FloatArray, others: FloatArray) -> FloatArray:
    """Return the L1 distances of coordinates, (n, m)."""
    if some.shape[1] == 1:
        return np.zeros((len(some), len(others)))
    return np.asarray(cdist(some[:, 1:], others[:, 1:], "cityblock"))


def _coordinates(features: FloatArray) -> FloatArray:
    """Return the features without the last column, if more than one column exists."""
    return features[:, :-1] if features.shape[1] > 1 else features
