"""The regret that the truly fastest choices have, since they are judged by noisy times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.select.cases import EvaluationCase
from tuner.select.dataset import Observation
from tuner.select.evaluate import RegretSummary, summarise_regret

# How far the true logarithms of the times of a call may be apart: not at all, or 0.1 % to a factor.
_SPREADS = np.array([0.0, *2.0 ** np.arange(-10, 3)])
_NOISES = 2.0 ** np.arange(-13, 0.25, 0.25)  # standard deviations of noise: 0.01 % to a factor
_MANY = 1000  # degrees of freedom of noise that is taken as known
_N_STEPS = 200  # of expectation and maximisation; ten times as many change results by < 10 %
_N_DRAWS = 1000  # of the fastest choice of each call
_SEED = 1


def noise_floor(cases: Sequence[EvaluationCase]) -> RegretSummary:
    """Summarise the regret that the truly fastest choice of each call is expected to have.

    Which choice that is, is drawn from what the times of the call say of it (empirical Bayes, as in
    Stephens, Biostatistics 18(2), 2017). The true logarithms of a call are normal with one of
    _SPREADS, the measured ones around them with one of _NOISES; how frequent each pair is, all
    calls say together. The default counts once with the algorithm whose time it has. Where choices
    differ by less than ten times the noise, the result is low, in simulations by up to 40 %.
    """
    calls, random = [_CallTimes.of(case) for case in cases], np.random.default_rng(_SEED)
    likelihoods = np.array([call.likelihoods() for call in calls])
    shares = _shares(likelihoods.reshape(len(calls), len(_SPREADS) * len(_NOISES)))
    return summarise_regret(
        [call.regret_of_fastest(own, random) for call, own in zip(calls, shares, strict=True)]
    )


def _shares(likelihoods: FloatArray) -> FloatArray:
    """Return the probabilities of each pair of spread and noise in each call.

    likelihoods     of these, (calls, pairs)
    """
    shares = likelihoods
    for _ in range(_N_STEPS):
        shares = shares / shares.sum(axis=1, keepdims=True)
        shares = likelihoods * shares.mean(axis=0)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class _CallTimes:
    """The logarithms of the times of a call's choices, and the standard deviation of their noise.

    logs        (choices,)
    freedom     degrees of freedom of the noise
    """

    logs: FloatArray
    noise: float
    freedom: int

    @classmethod
    def of(cls, case: EvaluationCase) -> _CallTimes:
        rows = _separate_rows(case)
        noise = math.sqrt(np.mean([row.log_sd**2 for row in rows]))
        freedom = sum(max(len(row.samples) - 1, 0) for row in rows) or _MANY
        return cls(np.log([row.seconds for row in rows]), noise, freedom)

    def likelihoods(self) -> FloatArray:
        """Return the likelihood of each spread and noise over the greatest, (spreads, noises).

        The mean of the logarithms may be anything, and the variance of the noise that was seen has
        a chi-squared distribution.
        """
        variances = _SPREADS[:, None] ** 2 + _NOISES**2
        squares = float(((self.logs - self.logs.mean()) ** 2).sum())
        found = -((len(self.logs) - 1) * np.log(variances) + squares / variances) / 2
        found -= self.freedom * (np.log(_NOISES) + (self.noise / _NOISES) ** 2 / 2)
        return np.asarray(np.exp(found - found.max()))

    def regret_of_fastest(self, shares: FloatArray, random: np.random.Generator) -> float:
        """Return the mean regret of the truly fastest choice.

        With a spread of t and noise of s, true logarithms are around B times the measured ones with
        a variance of B s^2, where B = t^2 / (t^2 + s^2), but for what they have in common.

        shares      probability of each pair of spread and noise, (pairs,)
        """
        drawn = random.choice(len(shares), _N_DRAWS, p=shares)[:, None]
        spread, noise = _SPREADS[drawn // len(_NOISES)], _NOISES[drawn % len(_NOISES)]
        kept = spread / np.hypot(spread, noise)
        normal = random.standard_normal((_N_DRAWS, len(self.logs)))
        fastest = np.argmin(kept * self.logs + noise * normal, axis=1)
        return float(np.expm1(self.logs - self.logs.min())[fastest].mean())


def _separate_rows(case: EvaluationCase) -> list[Observation]:
    """Return the observations, without the default's where it is that of what it runs."""

    def time(row: Observation) -> tuple[object, ...]:
        return row.seconds, row.low, row.high, row.samples

    default = case.default
    rows = [row for row in case.observations.values() if row is not default]
    if default is None or time(default) in map(time, rows):
        return rows
    return [default, *rows]
