"""The value of information: the regret of a selection, and what further measurements would save.

Both are means over draws from the posterior. The selection is that of a table: the default stays
unless another choice is surely faster, and by more than noise.
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
from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import MIN_GAIN
from tuner.select.posterior import Posterior

_JITTER = 1e-9  # variance added to make covariances positive definite
_MAX_REGRET = 20.0  # cap on the relative regret of one call
# Cap on it where measurements compete for time: unlikely disasters would outweigh all likely gains.
_MAX_ACQUISITION_REGRET = 2.0


@dataclass(frozen=True)
class Selection:
    """The choice that a table would use, its expected regret and the regret's deviation."""

    choice: AlgorithmChoice
    regret: float
    sd: float


def significant_winners(posterior: Posterior) -> frozenset[AlgorithmChoice]:
    """Return the choices that may replace the default.

    Their gain is above noise, and its 95 % interval is above 1.
    """
    safe = _is_significant(posterior, posterior.mean[None], posterior.covariance)[0]
    return frozenset(posterior.choices[n] for n in np.flatnonzero(safe))


@dataclass(frozen=True)
class RegretEstimate:
    """An estimate of the regret at one call from its posterior.

    unit_draws  draws of unit scale, (draws, at least k)
    supported   choices that may be chosen if nothing was measured at this call
    measured    choices measured at this very call; if there are any, a table chooses among these
    """

    posterior: Posterior
    unit_draws: FloatArray
    supported: frozenset[AlgorithmChoice]
    measured: frozenset[AlgorithmChoice] = frozenset()

    @cached_property
    def selection(self) -> Selection:
        """Return what a table would select now, with its regret."""
        choice = self.posterior.choices[self._selected_index]
        return Selection(choice, float(self._regrets.mean()), float(self._regrets.std()))

    @property
    def acquisition_regret(self) -> float:
        """Return the expected regret that measuring could save, capped in every draw."""
        return float(np.minimum(self._regrets, _MAX_ACQUISITION_REGRET).mean())

    @property
    def win_probabilities(self) -> FloatArray:
        """Return the probability of each choice to be the fastest, (k,)."""
        fastest = self._log_time_draws.argmin(axis=1)
        return np.bincount(fastest, minlength=len(self.posterior.choices)) / len(self.unit_draws)

    def expected_saving(self, indices: Sequence[int], variances: Sequence[float]) -> float:
        """Return how much `acquisition_regret` measuring the choices of these indices would save.

        variances   of the logarithms of the times that would be measured
        """
        mean, c, seen = self.posterior.mean, self.posterior.covariance, list(indices)
        weights = np.linalg.solve(c[np.ix_(seen, seen)] + np.diag(variances), c[seen])
        means = mean + (self._log_time_draws[:, seen] - mean[seen]) @ weights
        tried = self.measured.union(self.posterior.choices[n] for n in seen)
        then = _selected_indices(self.posterior, means, c - c[:, seen] @ weights, tried)
        left = np.minimum(_regrets(self._log_time_draws, then), _MAX_ACQUISITION_REGRET)
        return self.acquisition_regret - float(left.mean())

    @cached_property
    def _log_time_draws(self) -> FloatArray:
        """Return draws of the log-seconds, (draws, k)."""
        covariance = self.posterior.covariance + _JITTER * np.eye(len(self.posterior.choices))
        return np.asarray(
            self.posterior.mean
            + self.unit_draws[:, : len(covariance)] @ cholesky(covariance, lower=True).T
        )

    @cached_property
    def _selected_index(self) -> int:
        belief = self.posterior
        among = self.measured or self.supported
        return int(_selected_indices(belief, belief.mean[None], belief.covariance, among)[0])

    @cached_property
    def _regrets(self) -> FloatArray:
        """Return the regret of the current selection in every draw."""
        return _regrets(self._log_time_draws, np.full(len(self.unit_draws), self._selected_index))


def _selected_indices(
    posterior: Posterior,
    means: FloatArray,
    covariance: FloatArray,
    among: Collection[AlgorithmChoice],
) -> FloatArray:
    """Return the index of the selected choice for every row of means."""
    known = [choice in among for choice in posterior.choices]
    open_to = np.logical_and(_is_significant(posterior, means, covariance), known)
    open_to[:, posterior.choices.index(AlgorithmChoice())] = True
    return np.asarray(np.where(open_to, -means, -np.inf).argmax(axis=1))


def _is_significant(posterior: Posterior, means: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return which choices may replace the default, (rows of means, k)."""
    default, variance = posterior.choices.index(AlgorithmChoice()), np.diag(covariance)
    spread = np.sqrt(np.maximum(variance + variance[default] - 2 * covariance[default], 0.0))
    gains = means[:, default, None] - means
    return np.asarray(gains > np.maximum(NORMAL_95 * spread, math.log1p(MIN_GAIN)))


def _regrets(draws: FloatArray, chosen: FloatArray) -> FloatArray:
    times = np.take_along_axis(draws, chosen[:, None].astype(int), axis=1)[:, 0]
    return np.asarray(
        np.minimum(np.expm1(np.minimum(times - draws.min(axis=1), 50.0)), _MAX_REGRET)
    )
