"""The estimator behind the selector: what a simulation leaves unexplained, learned."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data


class ResidualRegressor(RegressorMixin, BaseEstimator):
    """Predicts y as the last column of X plus a learned residual over all columns.

    Here the last column is the logarithm of the simulated time and y that of the measured one, so
    the residual is the logarithm of how wrong the simulation is: it varies slowly with the size
    even where the time itself does not.

    The residual is a Gaussian process with the exponential (Matern 1/2) kernel (Rasmussen and
    Williams, Gaussian Processes for Machine Learning, 2006, section 4.2.1). With a length scale
    of many ladder gaps its mean is, between neighbouring measurements, their linear
    interpolation, and at a well measured point the measurement itself; its deviation is the
    measurement's own there and grows with the distance from it. That is piecewise linear
    interpolation that knows its uncertainty, in one piece; nothing needs to be optimised.

    length_scale   in units of the columns (here natural logarithms: 16 is many ladder gaps)
    amplitude      prior deviation of the residual around its weighted mean
    noise          variance of an observation of weight 1 (1e-4: a time known to 1 %)
    """

    def __init__(
        self, length_scale: float = 16.0, amplitude: float = 1.0, noise: float = 1e-4
    ) -> None:
        self.length_scale = length_scale
        self.amplitude = amplitude
        self.noise = noise

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> ResidualRegressor:
        """X (n, columns), y (n,), weights (n,): noise / variance of each y; 0 leaves it out."""
        features, target = validate_data(self, X, y, y_numeric=True)
        weight = _check_sample_weight(sample_weight, features, ensure_non_negative=True)
        used = weight > 0
        features, weight = features[used], weight[used]
        residual = target[used] - features[:, -1]
        self.mean_ = float(np.average(residual, weights=weight))
        kernel = ConstantKernel(self.amplitude**2) * Matern(self.length_scale, nu=0.5)
        self.process_ = GaussianProcessRegressor(
            kernel, alpha=self.noise / weight, optimizer=None
        ).fit(features, residual - self.mean_)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Expected y, (n,)."""
        return self.predict_interval(X)[0]

    def predict_interval(self, X: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Expected y and its standard deviation, (n,) each."""
        check_is_fitted(self)
        features = validate_data(self, X, reset=False)
        residual, deviation = self.process_.predict(features, return_std=True)
        return features[:, -1] + self.mean_ + residual, deviation
