"""The regressor interpolates between measured times, as far as they are sure."""

import numpy as np
from numpy.typing import ArrayLike

from tuner.base.arrays import FloatArray
from tuner.select.regressor import ResidualGP
from tuner.select.structured_cost import TERMS

SURE = 1e-4  # variance of the logarithm of a time that is known to 1 %


def rows_at(size: FloatArray, expected: ArrayLike) -> FloatArray:
    """Return features of one choice on one machine, (n, columns), whose costs are certain."""
    columns = np.zeros((len(size), 6 + len(TERMS) + 2))
    columns[:, 2], columns[:, -1] = size, expected
    return columns


def regressor_of(
    features: FloatArray, log_seconds: FloatArray, variances: ArrayLike = SURE
) -> ResidualGP:
    """Return the regressor of times whose errors have nothing in common."""
    count = len(features)
    return ResidualGP(
        features, log_seconds, np.broadcast_to(variances, count), np.zeros((count, count))
    )


def predicted(regressor: ResidualGP, features: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return expected values and their deviations."""
    expected, covariance = regressor.predict_joint(features)
    return expected, np.sqrt(np.diag(covariance))


def test_measured_points_are_met_and_the_middle_is_the_interpolation() -> None:
    size = np.log(4.0) * np.arange(6)
    simulated = -12 + size / 2
    residual = np.array([0.1, 0.3, 0.2, -0.4, -0.5, 0.0])
    features = rows_at(size, simulated)
    regressor = regressor_of(features, simulated + residual)
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
    features = rows_at(np.arange(5.0), 0.0)
    target = np.array([0.0, 0.0, 1.0, 0.0, 0.0])
    variances = np.array([SURE, SURE, 1.0, SURE, SURE])
    sure, _ = predicted(regressor_of(features, target), features)
    unsure, _ = predicted(regressor_of(features, target, variances), features)
    np.testing.assert_allclose(sure[2], 1.0, atol=0.01)
    assert unsure[2] < 0.2


def test_two_measurements_of_a_call_count_by_their_certainty() -> None:
    features = rows_at(np.array([1.0, 1.0]), 0.0)
    times, variances = np.array([0.0, 1.0]), np.array([SURE, 4 * SURE])
    expected, _ = predicted(regressor_of(features, times, variances), features[:1])
    np.testing.assert_allclose(expected, 0.2, atol=0.01)
