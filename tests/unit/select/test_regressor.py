"""The estimator keeps scikit-learn's conventions and the promises of its own."""

import warnings

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from tuner.base.arrays import FloatArray
from tuner.select.regressor import ResidualGP


def predicted(regressor: ResidualGP, features: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Expected values and their deviations."""
    expected, covariance = regressor.predict_joint(features)
    return expected, np.sqrt(np.diag(covariance))


def test_it_passes_the_checks_for_estimators() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(ResidualGP())


def test_measured_points_are_met_and_the_middle_is_the_interpolation() -> None:
    size = np.log(4.0) * np.arange(6)
    simulated = -12 + size / 2
    residual = np.array([0.1, 0.3, 0.2, -0.4, -0.5, 0.0])
    features = np.column_stack([np.zeros(6), size, simulated])
    regressor = ResidualGP().fit(features, simulated + residual)
    expected, deviation = predicted(regressor, features)
    np.testing.assert_allclose(expected, simulated + residual, atol=2e-3)
    assert deviation.max() < 0.011  # the noise of one observation
    middle = (features[1:] + features[:-1]) / 2
    expected, between = predicted(regressor, middle)
    np.testing.assert_allclose(
        expected - middle[:, -1], (residual[1:] + residual[:-1]) / 2, atol=0.01
    )
    assert between.min() > deviation.max()


def test_an_uncertain_measurement_yields_to_its_neighbours() -> None:
    features = np.column_stack([np.zeros(5), np.arange(5.0), np.zeros(5)])
    target = np.array([0.0, 0.0, 1.0, 0.0, 0.0])
    weight = np.array([1.0, 1.0, 1e-4, 1.0, 1.0])
    sure = ResidualGP().fit(features, target).predict(features)
    unsure = ResidualGP().fit(features, target, weight).predict(features)
    assert sure[2] == pytest.approx(1.0, abs=0.01)
    assert unsure[2] < 0.2
