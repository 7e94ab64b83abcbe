"""What a belief is worth: the regret of acting on it, and what measuring some more would save.

Both are means over draws from the belief. Deciding is what a table does: the default stays unless
another choice is surely faster, and by more than noise.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cholesky

from tuner.base.arrays import FloatArray
from tuner.base.statistics import NORMAL_95
from tuner.core.table import Choice
from tuner.select.posterior import Belief

_ROUNDING = 1e-9  # variance; of that covariances may fall short of being positive
_MOST = 20.0  # a call that much slower than the best one counts as so many times


@dataclass(frozen=True)
class Decision:
    """Who wins where so much is known, and what it costs: expected regret and its deviation."""

    choice: Choice
    regret: float
    spread: float


def sure(belief: Belief, noise: float) -> frozenset[Choice]:
    """The choices that may replace the default: the gain is above noise, and its 95 % interval
    above 1.
    """
    safe = _safe(belief, belief.mean[None], belief.covariance, noise)[0]
    return frozenset(belief.choices[n] for n in np.flatnonzero(safe))


@dataclass(frozen=True)
class Outlook:
    """What may come of a belief.

    normal  draws of unit scale, one row each, a column for every choice at least
    spoken  what something speaks for at this call
    tried   what was measured at this very call: a table chooses among these; none: among `spoken`
    """

    belief: Belief
    noise: float
    normal: FloatArray
    spoken: frozenset[Choice]
    tried: frozenset[Choice] = frozenset()

    @cached_property
    def decision(self) -> Decision:
        """What a table does now."""
        choice = self.belief.choices[self._chosen]
        return Decision(choice, float(self._regrets.mean()), float(self._regrets.std()))

    @property
    def chances(self) -> FloatArray:
        """The probability of each choice to be the fastest, (k,)."""
        fastest = self._draws.argmin(axis=1)
        return np.bincount(fastest, minlength=len(self.belief.choices)) / len(self.normal)

    def saved(self, measured: Sequence[int], variances: Sequence[float]) -> float:
        """By how much the expected regret is less once the choices of these numbers are measured,
        with these variances of the logarithms of their times.
        """
        mean, c, seen = self.belief.mean, self.belief.covariance, list(measured)
        weights = np.linalg.solve(c[np.ix_(seen, seen)] + np.diag(variances), c[seen])
        means = mean + (self._draws[:, seen] - mean[seen]) @ weights
        tried = self.tried.union(self.belief.choices[n] for n in seen)
        then = _decided(self.belief, means, c - c[:, seen] @ weights, self.noise, tried)
        return float(np.mean(self._regrets - _regrets(self._draws, then)))

    @cached_property
    def _draws(self) -> FloatArray:
        """Logarithms of seconds, (draws, k)."""
        covariance = self.belief.covariance + _ROUNDING * np.eye(len(self.belief.choices))
        return np.asarray(
            self.belief.mean
            + self.normal[:, : len(covariance)] @ cholesky(covariance, lower=True).T
        )

    @cached_property
    def _chosen(self) -> int:
        belief = self.belief
        among = self.tried or self.spoken
        return int(_decided(belief, belief.mean[None], belief.covariance, self.noise, among)[0])

    @cached_property
    def _regrets(self) -> FloatArray:
        """Of every draw, as things are now."""
        return _regrets(self._draws, np.full(len(self.normal), self._chosen))


def _decided(
    belief: Belief,
    means: FloatArray,
    covariance: FloatArray,
    noise: float,
    among: Collection[Choice],
) -> FloatArray:
    """The number of the choice taken, for every row of means."""
    known = [choice in among for choice in belief.choices]
    open_to = np.logical_and(_safe(belief, means, covariance, noise), known)
    open_to[:, belief.choices.index(Choice())] = True
    return np.asarray(np.where(open_to, -means, -np.inf).argmax(axis=1))


def _safe(belief: Belief, means: FloatArray, covariance: FloatArray, noise: float) -> FloatArray:
    """Which choices may replace the default, (rows of means, k)."""
    default, variance = belief.choices.index(Choice()), np.diag(covariance)
    spread = np.sqrt(np.maximum(variance + variance[default] - 2 * covariance[default], 0.0))
    gains = means[:, default, None] - means
    return np.asarray(gains > np.maximum(NORMAL_95 * spread, math.log1p(noise)))


def _regrets(draws: FloatArray, chosen: FloatArray) -> FloatArray:
    times = np.take_along_axis(draws, chosen[:, None].astype(int), axis=1)[:, 0]
    return np.asarray(np.minimum(np.expm1(np.minimum(times - draws.min(axis=1), 50.0)), _MOST))
