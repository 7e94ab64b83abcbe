"""What a belief is worth: the regret of acting on it, and what measuring some more would save.

Both are means over draws from the belief. Deciding is what a table does: the default stays unless
another choice is surely faster by more than noise.
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
_MEASURED = 1e-4  # variance of what will be measured: 1 %


@dataclass(frozen=True)
class Decision:
    """Who wins where so much is known, and what it costs: expected regret and its deviation."""

    choice: Choice
    regret: float
    spread: float


def sure(belief: Belief, noise: float) -> frozenset[Choice]:
    """The choices whose gain over the default exceeds `noise` at its lower bound, too."""
    default = belief.choices.index(Choice())
    ahead = _ahead(belief.mean[None], _spreads(belief.covariance, default), default, noise)[0]
    return frozenset(belief.choices[n] for n in np.flatnonzero(ahead > 0))


def decide(belief: Belief, noise: float, normal: Array) -> Decision:
    """`normal` are standard normal draws, one row each, a column for every choice at least."""
    default = belief.choices.index(Choice())
    spreads = _spreads(belief.covariance, default)
    chosen = _decided(belief.mean[None], spreads, default, noise)[0]
    regrets = _regrets(_draws(belief, normal), np.full(len(normal), chosen))
    return Decision(belief.choices[chosen], float(regrets.mean()), float(regrets.std()))


def likely(belief: Belief, normal: Array) -> Array:
    """The probability of each choice to be the fastest, (k,)."""
    fastest = _draws(belief, normal).argmin(axis=1)
    return np.bincount(fastest, minlength=len(belief.choices)) / len(normal)


def saved(belief: Belief, measured: Sequence[int], noise: float, normal: Array) -> float:
    """By how much the expected regret is less once the choices of these numbers are measured."""
    default = belief.choices.index(Choice())
    draws, c = _draws(belief, normal), belief.covariance
    now = _decided(belief.mean[None], _spreads(c, default), default, noise)
    seen = list(measured)
    weights = np.linalg.solve(c[np.ix_(seen, seen)] + _MEASURED * np.eye(len(seen)), c[seen])
    means = belief.mean + (draws[:, seen] - belief.mean[seen]) @ weights
    left = _spreads(c - c[:, seen] @ weights, default)
    then = _decided(means, left, default, noise)
    before = _regrets(draws, np.broadcast_to(now, len(draws)))
    return float(np.mean(before - _regrets(draws, then)))


def _draws(belief: Belief, normal: Array) -> Array:
    """Logarithms of seconds, (draws, k)."""
    values, vectors = np.linalg.eigh(belief.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(belief.mean + normal[:, : len(values)] @ root.T)


def _spreads(covariance: Array, default: int) -> Array:
    """The deviation of every choice's gain over the default, (k,)."""
    variance = np.diag(covariance)
    gain = variance + variance[default] - 2 * covariance[default]
    return np.asarray(np.sqrt(np.maximum(gain, 0.0)))


def _ahead(means: Array, spreads: Array, default: int, noise: float) -> Array:
    """How far the lower bound of each gain, a logarithm, exceeds the noise, (draws, k)."""
    gains = means[:, default, None] - means
    return np.asarray(gains - NORMAL_95 * spreads - math.log1p(noise))


def _decided(means: Array, spreads: Array, default: int, noise: float) -> Array:
    """The number of the choice taken, for every row of means."""
    ahead = _ahead(means, spreads, default, noise) > 0
    ahead[:, default] = True
    gains = np.where(ahead, means[:, default, None] - means, -np.inf)
    return np.asarray(gains.argmax(axis=1))


def _regrets(draws: Array, chosen: Array) -> Array:
    times = np.take_along_axis(draws, chosen[:, None].astype(int), axis=1)[:, 0]
    return np.asarray(np.minimum(np.expm1(np.minimum(times - draws.min(axis=1), 50.0)), _MOST))
