"""The value of information: the regret of a selection, and what further measurements would save.

Both are means over draws from the posterior. The selection is that of a table: the default stays
unless another choice is expected to be faster by more than noise, and is hardly ever slower.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cholesky

from tuner.base.arrays import FloatArray
from tuner.core.table import AlgorithmChoice
from tuner.select.guard import guarded_spread
from tuner.select.posterior import Posterior

_JITTER = 1e-9  # variance added to make covariances positive definite
# Cap on the relative regret of one call: unlikely disasters would outweigh all likely gains.
MAX_REGRET = 2.0


@dataclass(frozen=True)
class Selection:
    """The choice that a table would use, its expected regret and the regret's deviation.

    The regret is at most `MAX_REGRET`.
    """

    choice: AlgorithmChoice
    regret: float
    sd: float


def guarded_winners(posterior: Posterior, n_measured: int = 1) -> frozenset[AlgorithmChoice]:
    """Return the choices that may replace the default, see `tuner.select.guard.guarded_spread`."""
    safe = _is_guarded(posterior, posterior.mean[None], posterior.covariance, n_measured)[0]
    return frozenset(posterior.choices[n] for n in np.flatnonzero(safe))


@dataclass(frozen=True)
class RegretEstimate:
    """An estimate of the regret at one call from its posterior.

    unit_draws      draws of unit scale, (draws, at least k)
    supported       choices that a table may use
    measured        choices that were measured at this very call
    launch_variance of what all times of this call in one launch have in common, of their logarithms
    """

    posterior: Posterior
    unit_draws: FloatArray
    supported: frozenset[AlgorithmChoice]
    measured: frozenset[AlgorithmChoice] = frozenset()
    launch_variance: float = 0.0

    @cached_property
    def selection(self) -> Selection:
        """Return what a table would select now, with its regret."""
        choice = self.posterior.choices[self._selected_index]
        return Selection(choice, float(self._regrets.mean()), float(self._regrets.std()))

    @property
    def default_regret(self) -> float:
        """Return the expected regret of the default."""
        default = np.full(len(self.unit_draws), self._default_index)
        return float(_regrets(self._log_time_draws, default).mean())

    @property
    def default_seconds(self) -> float:
        """Return the most probable time of the default."""
        return float(np.exp(self.posterior.mean[self._default_index]))

    @property
    def win_probabilities(self) -> FloatArray:
        """Return the probability of each choice to be the fastest, (k,)."""
        fastest = self._log_time_draws.argmin(axis=1)
        return np.bincount(fastest, minlength=len(self.posterior.choices)) / len(self.unit_draws)

    def expected_saving(self, indices: Sequence[int], variances: Sequence[float]) -> float:
        """Return how much regret measuring the choices of these indices in a launch would save.

        variances   of the logarithms of the times that would be measured
        """
        mean, c, seen = self.posterior.mean, self.posterior.covariance, list(indices)
        noise = np.diag(variances) + self.launch_variance
        weights = np.linalg.solve(c[np.ix_(seen, seen)] + noise, c[seen])
        means = mean + (self._log_time_draws[:, seen] - mean[seen]) @ weights
        tried = {self.posterior.choices[n] for n in seen}
        then = self._select(means, c - c[:, seen] @ weights, tried)
        return float(np.mean(self._regrets - _regrets(self._log_time_draws, then)))

    @cached_property
    def _log_time_draws(self) -> FloatArray:
        """Return draws of the log-seconds, (draws, k)."""
        covariance = self.posterior.covariance + _JITTER * np.eye(len(self.posterior.choices))
        return np.asarray(
            self.posterior.mean
            + self.unit_draws[:, : len(covariance)] @ cholesky(covariance, lower=True).T
        )

    @property
    def _default_index(self) -> int:
        return self.posterior.choices.index(AlgorithmChoice())

    @cached_property
    def _selected_index(self) -> int:
        """Return the index of what a table would select now."""
        belief = self.posterior
        return int(self._select(belief.mean[None], belief.covariance, set())[0])

    def _select(
        self, means: FloatArray, covariance: FloatArray, tried: Set[AlgorithmChoice]
    ) -> FloatArray:
        """Return the index of the selected choice for every row of means.

        tried   choices that are measured at this call besides
        """
        usable = self.supported | tried
        known = [choice in usable for choice in self.posterior.choices]
        count = count_candidates(self.measured | tried)
        open_to = np.logical_and(_is_guarded(self.posterior, means, covariance, count), known)
        open_to[:, self._default_index] = True
        return np.asarray(np.where(open_to, -means, -np.inf).argmax(axis=1))

    @cached_property
    def _regrets(self) -> FloatArray:
        """Return the regret of the current selection in every draw."""
        return _regrets(self._log_time_draws, np.full(len(self.unit_draws), self._selected_index))


def count_candidates(choices: Set[AlgorithmChoice]) -> int:
    """Return the number of choices besides the default."""
    return len(choices - {AlgorithmChoice()})


def _is_guarded(
    posterior: Posterior, means: FloatArray, covariance: FloatArray, n_measured: int
) -> FloatArray:
    """Return which choices `guarded_winners` would return, (rows of means, k)."""
    default, variance = posterior.choices.index(AlgorithmChoice()), np.diag(covariance)
    spread = np.sqrt(np.maximum(variance + variance[default] - 2 * covariance[default], 0.0))
    return np.asarray(spread < guarded_spread(means[:, default, None] - means, n_measured))


def _regrets(draws: FloatArray, chosen: FloatArray) -> FloatArray:
    times = np.take_along_axis(draws, chosen[:, None].astype(int), axis=1)[:, 0]
    return np.asarray(np.minimum(np.expm1(np.minimum(times - draws.min(axis=1), 50.0)), MAX_REGRET))
