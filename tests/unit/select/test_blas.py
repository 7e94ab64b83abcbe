"""A belief is computed on one thread, and intervals of gains as if each was resampled anew."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm, t
from threadpoolctl import threadpool_info

from tuner.base.arrays import FloatArray
from tuner.base.statistics import midmean
from tuner.core.speedup import LAUNCH_RELATIVE_SD, RESAMPLES, SEED, paired_speedup
from tuner.select import regressor
from tuner.select.blas import single_threaded_blas
from tuner.select.regressor import ResidualGP


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_blas_has_one_thread_meanwhile() -> None:
    before = threads()
    assert single_threaded_blas()(threads)() == {1}
    assert threads() == before


def test_fitting_and_predicting_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def watched(rows: FloatArray, others: FloatArray) -> FloatArray:
        seen.append(threads())
        return correlation(rows, others)

    correlation = regressor._correlation
    monkeypatch.setattr(regressor, "_correlation", watched)
    features = np.random.default_rng(0).normal(size=(20, 13))
    known = ResidualGP(features, features[:, -1], np.ones(20), np.zeros((20, 20)))
    assert seen == [{1}]
    known.predict_joint(features)
    assert {1} == set.union(*seen)
    assert len(seen) > 1


@pytest.mark.parametrize("seed", range(10))
def test_intervals_are_those_of_a_bootstrap_of_both_series(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 60))
    default, chosen = rng.lognormal(size=(2, size))
    draws = np.random.default_rng(SEED).integers(0, size, (RESAMPLES, size))
    gain = float(midmean(default) / midmean(chosen))
    drawn = np.log(midmean(default[draws]) / midmean(chosen[draws]) / gain)
    degrees = max(size - 1, 1)
    wider = t.ppf(0.975, degrees) / norm.ppf(0.975) * math.sqrt(size / degrees)
    low, high = gain * np.exp(np.quantile(drawn, [0.025, 0.975]) * wider)
    apart = norm.ppf(0.975) * LAUNCH_RELATIVE_SD
    found = paired_speedup([default.tolist()], [chosen.tolist()])
    wanted = (
        gain,
        gain * math.exp(-math.hypot(math.log(gain / low), apart)),
        gain * math.exp(math.hypot(math.log(high / gain), apart)),
    )
    assert found == pytest.approx(wanted, rel=1e-12)
