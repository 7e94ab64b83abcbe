"""Regret: time of the chosen algorithm over time of the best one, minus one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.base.errors import InputError


@dataclass(frozen=True)
class RegretSummary:
    """A summary of the regret over `points` calls, unweighted: 0.1 is 10 % slower than the best.

    The minimum of noisy times is a little better than the truth, so that even a perfect selection
    has some regret.
    """

    mean: float
    p95: float
    worst: float
    points: int


def summarise_regret(losses: Sequence[float]) -> RegretSummary:
    """Summarise the regrets of single calls; raise InputError if there are none."""
    if not losses:
        raise InputError("there are no points to evaluate regret on; probe three sizes or more")
    return RegretSummary(
        float(np.mean(losses)), float(np.quantile(losses, 0.95)), max(losses), len(losses)
    )
