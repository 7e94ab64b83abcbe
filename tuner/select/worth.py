"""What a belief is worth: the regret of acting on it, and what measuring some more would save.

Both are means over draws from the belief. Deciding is what a table does: the default stays unless
another choice is surely faster, and by more than noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.select.belief import NORMAL_95, Belief
from tuner.table import Choice

Array = NDArray[np.float64]

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


def decide(belief: Belief, noise: float, normal: Array) -> Decision:
    """`normal` are draws of unit scale, one row each, a column for every choice at least."""
    chosen = _decided(belief, belief.mean[None], belief.covariance, noise)[0]
    regrets = _regrets(_draws(belief, normal), np.full(len(normal), chosen))
    return Decision(belief.choices[chosen], float(regrets.mean()), float(regrets.std()))


def likely(belief: Belief, normal: Array) -> Array:
    """The probability of each choice to be the fastest, (k,)."""
    fastest = _draws(belief, normal).argmin(axis=1)
    return np.bincount(fastest, minlength=len(belief.choices)) / len(normal)


def saved(
    belief: Belief,
    measured: Sequence[int],
    noise: float,
    normal: Array,
    variances: Sequence[float],
) -> float:
    """By how much the expected regret is less once the choices of these numbers are measured, with
    these variances of the logarithms of their times.
    """
    draws, c = _draws(belief, normal), belief.covariance
    now = _decided(belief, belief.mean[None], c, noise)
    seen = list(measured)
    weights = np.linalg.solve(c[np.ix_(seen, seen)] + np.diag(variances), c[seen])
    means = belief.mean + (draws[:, seen] - belief.mean[seen]) @ weights
    then = _decided(belief, means, c - c[:, seen] @ weights, noise)
    before = _regrets(draws, np.broadcast_to(now, len(draws)))
    return float(np.mean(before - _regrets(draws, then)))


def _draws(belief: Belief, normal: Array) -> Array:
    """Logarithms of seconds, (draws, k)."""
    values, vectors = np.linalg.eigh(belief.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(belief.mean + normal[:, : len(values)] @ root.T)


def _decided(belief: Belief, means: Array, covariance: Array, noise: float) -> Array:
    """The number of the choice taken, for every row of means."""
    open_to = _safe(belief, means, covariance, noise)
    open_to[:, belief.choices.index(Choice())] = True
    return np.asarray(np.where(open_to, -means, -np.inf).argmax(axis=1))


def _safe(belief: Belief, means: Array, covariance: Array, noise: float) -> Array:
    """Which choices may replace the default, (rows of means, k)."""
    default, variance = belief.choices.index(Choice()), np.diag(covariance)
    spread = np.sqrt(np.maximum(variance + variance[default] - 2 * covariance[default], 0.0))
    gains = means[:, default, None] - means
    return np.asarray(gains > np.maximum(NORMAL_95 * spread, math.log1p(noise)))


def _regrets(draws: Array, chosen: Array) -> Array:
    times = np.take_along_axis(draws, chosen[:, None].astype(int), axis=1)[:, 0]
    return np.asarray(np.minimum(np.expm1(np.minimum(times - draws.min(axis=1), 50.0)), _MOST))
