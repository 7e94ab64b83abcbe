"""The guard of predicted gains: which of them may replace the library default."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtr, stdtrit

from tuner.base.arrays import FloatArray
from tuner.select.dataset import MIN_GAIN

MAX_SLOWDOWN_PROBABILITY = 0.1  # of a choice to be slower than the default by over `MIN_GAIN`
DEGREES_OF_FREEDOM = 5.0  # of Student's t: its heavy tails allow for variances that are too small
_SMALLEST_SD = 1e-9


def guarded_spread(log_gains: FloatArray, n_measured: int = 1) -> FloatArray:
    """Return the standard deviation below which predicted gains may replace the default.

    These are above `MIN_GAIN`, and losses above it have a probability of
    `MAX_SLOWDOWN_PROBABILITY` at most, over the number of candidates that were measured at the
    call: the luckiest of many noisy ones is not as fast as it seems (Bonferroni's correction).
    Elsewhere the posterior of each is drawn towards what all have in common.
    """
    quantile = stdtrit(DEGREES_OF_FREEDOM, 1 - MAX_SLOWDOWN_PROBABILITY / max(n_measured, 1))
    bound = (log_gains + math.log1p(MIN_GAIN)) / quantile
    return np.asarray(np.where(log_gains > math.log1p(MIN_GAIN), bound, 0.0))


def slowdown_probability(log_gain: float, sd: float) -> float:
    """Return the probability of a loss above `MIN_GAIN`, given a gain's logarithm and deviation."""
    certain = (log_gain + math.log1p(MIN_GAIN)) / max(sd, _SMALLEST_SD)
    return float(stdtr(DEGREES_OF_FREEDOM, -certain))
