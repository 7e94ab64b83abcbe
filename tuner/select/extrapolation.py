"""How calls that were not measured are guessed: at other sizes of a measured shape always in one
way, at other shapes in the one that guesses the measured node counts best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from tuner.base.arrays import FloatArray
from tuner.base.statistics import CONFIDENCE
from tuner.core.table import AlgorithmConfig
from tuner.select.dataset import CallPoint, Observation, group_by_point

_MAX_REGRET = 1.0  # a call that is slower than the best by more counts as by so much
_MAX_FOLDS = 5  # node counts that are left out in turn


@dataclass(frozen=True)
class ExtrapolationMode:
    """How calls compare, and whether what is believed of them is followed.

    per_node    sizes of different node counts are compared by what a node has of them
    powers      numbers of ranks that are powers of two are told from others: these are as far
                apart as twice the nodes
    trusted     the belief is followed; else the default is kept
    lines       where nothing is simulated each choice has a line of its own; else all share one
    """

    size_per_node: bool = False
    distinguish_powers_of_two: bool = False
    follow_posterior: bool = True
    per_algorithm_baseline: bool = False


BASE_MODE = ExtrapolationMode()
SAME_SHAPE_MODE = ExtrapolationMode(per_algorithm_baseline=True)  # on a measured shape

SelectFunction = Callable[
    [CallPoint, Collection[AlgorithmConfig]], AlgorithmConfig
]  # one of those, or the default
TrainFunction = Callable[[Sequence[Observation], ExtrapolationMode], SelectFunction]


def is_power_of_two(p: int) -> bool:
    """Of two."""
    return p & (p - 1) == 0


def choose_mode_by_cross_validation(
    observations: Sequence[Observation], train: TrainFunction
) -> ExtrapolationMode:
    """Each is tried on the measured node counts, every one guessed from the others.

    Where algorithms change places goes with the size on some machines, on others with what a node
    has of it; and algorithms that pair ranks have more to do where their number is no power of two.
    Beliefs are followed unless keeping the default loses less, with 95 % confidence over the calls
    by Student's t: what wins at one node count and loses at the next says so itself. With one node
    count alone there is nothing to try on.
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
    """The ways to compare calls that are not the same for such rows."""
    both = len({is_power_of_two(row.point.p) for row in observations}) > 1
    powers = (False, True) if both else (False,)
    return [ExtrapolationMode(per_node, told) for told in powers for per_node in (False, True)]


def _held_out_regrets(
    observations: Sequence[Observation], train: TrainFunction, mode: ExtrapolationMode, nodes: int
) -> FloatArray:
    """Regrets at the calls on so many nodes of what is learned from the others."""
    choose = train([row for row in observations if row.point.nodes != nodes], mode)
    losses = []
    for point, own in group_by_point(
        row for row in observations if row.point.nodes == nodes
    ).items():
        times = {row.config: row.seconds for row in own}
        taken = times.get(choose(point, times), math.inf)
        losses.append(min(taken / min(times.values()) - 1, _MAX_REGRET))
    return np.array(losses)


def _is_significantly_less(losses: FloatArray, than: FloatArray) -> bool:
    saved = than - losses
    if len(saved) < 2:
        return False
    error = saved.std(ddof=1) / math.sqrt(len(saved))
    return bool(saved.mean() > stdtrit(len(saved) - 1, CONFIDENCE) * error)
