"""Extrapolation modes: how calls that were not measured are predicted.

Other sizes of a measured shape are always predicted in one mode, other shapes in the mode that
predicts the measured node counts best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from tuner.base.arrays import FloatArray
from tuner.base.statistics import CONFIDENCE
from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint, Observation, group_by_point

_MAX_REGRET = 1.0  # cap on the regret of one call
_MAX_FOLDS = 5  # node counts that are held out in turn


@dataclass(frozen=True)
class ExtrapolationMode:
    """A way to compare calls, and whether the posterior is used.

    size_per_node               compare sizes of different node counts by bytes / nodes
    distinguish_powers_of_two   separate numbers of ranks that are powers of two from others, by the
                                distance of a factor 2 in nodes
    follow_posterior            use the posterior; otherwise keep the default
    per_algorithm_baseline      where nothing is simulated, fit a line for each choice; otherwise
                                one for all
    """

    size_per_node: bool = False
    distinguish_powers_of_two: bool = False
    follow_posterior: bool = True
    per_algorithm_baseline: bool = False


BASE_MODE = ExtrapolationMode()
SAME_SHAPE_MODE = ExtrapolationMode(per_algorithm_baseline=True)  # for measured shapes

SelectFunction = Callable[
    [CallPoint, Collection[AlgorithmChoice]], AlgorithmChoice
]  # returns one of the choices, or the default
TrainFunction = Callable[[Sequence[Observation], ExtrapolationMode], SelectFunction]


def is_power_of_two(p: int) -> bool:
    """Return whether p is a power of two."""
    return p & (p - 1) == 0


def choose_mode_by_cross_validation(
    observations: Sequence[Observation], train: TrainFunction
) -> ExtrapolationMode:
    """Choose the extrapolation mode by leave-one-node-count-out cross-validation.

    On some machines crossovers follow the size, on others the size per node; and algorithms that
    pair ranks have more work if the number of ranks is not a power of two. The posterior is used
    unless keeping the default loses less, with 95 % confidence over the calls by Student's t: this
    detects choices that win at one node count and lose at the next. With a single node count the
    result is `BASE_MODE`.
    """
    counts = sorted({row.point.nodes for row in observations})
    if len(counts) < 2:
        return BASE_MODE
    tested = {counts[n] for n in np.linspace(0, len(counts) - 1, _MAX_FOLDS).round().astype(int)}

    def losses(way: ExtrapolationMode) -> FloatArray:
        return np.concatenate(
            [_held_out_regrets(observations, train, way, nodes) for nodes in sorted(tested)]
        )

    compared = {way: losses(way) for way in _candidate_modes(observations)}
    best = min(compared, key=lambda way: float(compared[way].sum()))
    kept = replace(best, follow_posterior=False)
    return kept if _is_significantly_less(losses(kept), compared[best]) else best


def _candidate_modes(observations: Sequence[Observation]) -> list[ExtrapolationMode]:
    """Return the modes that differ for these observations."""
    both = len({is_power_of_two(row.point.p) for row in observations}) > 1
    powers = (False, True) if both else (False,)
    return [ExtrapolationMode(per_node, told) for told in powers for per_node in (False, True)]


def _held_out_regrets(
    observations: Sequence[Observation], train: TrainFunction, mode: ExtrapolationMode, nodes: int
) -> FloatArray:
    """Return the regrets at the calls on `nodes` nodes of a selector trained on the others."""
    choose = train([row for row in observations if row.point.nodes != nodes], mode)
    losses = []
    for point, own in group_by_point(
        row for row in observations if row.point.nodes == nodes
    ).items():
        times = {row.choice: row.seconds for row in own}
        taken = times.get(choose(point, times), math.inf)
        losses.append(min(taken / min(times.values()) - 1, _MAX_REGRET))
    return np.array(losses)


def _is_significantly_less(losses: FloatArray, than: FloatArray) -> bool:
    saved = than - losses
    if len(saved) < 2:
        return False
    error = saved.std(ddof=1) / math.sqrt(len(saved))
    return bool(saved.mean() > stdtrit(len(saved) - 1, CONFIDENCE) * error)
