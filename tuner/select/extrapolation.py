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
from tuner.base.statistics import LEVEL
from tuner.core.table import Choice
from tuner.select.dataset import Point, Row, by_point

_MOST = 1.0  # a call that is slower than the best by more counts as by so much
_FOLDS = 5  # node counts that are left out in turn


@dataclass(frozen=True)
class Way:
    """How calls compare, and whether what is believed of them is followed.

    per_node    sizes of different node counts are compared by what a node has of them
    powers      numbers of ranks that are powers of two are told from others: these are as far
                apart as twice the nodes
    trusted     the belief is followed; else the default is kept
    lines       where nothing is simulated each choice has a line of its own; else all share one
    """

    per_node: bool = False
    powers: bool = False
    trusted: bool = True
    lines: bool = False


PLAIN = Way()
OTHER_SIZES = Way(lines=True)  # on a measured shape

Choose = Callable[[Point, Collection[Choice]], Choice]  # one of those, or the default
Learn = Callable[[Sequence[Row], Way], Choose]


def is_power(p: int) -> bool:
    """Of two."""
    return p & (p - 1) == 0


def best_way(rows: Sequence[Row], learn: Learn) -> Way:
    """Each is tried on the measured node counts, every one guessed from the others.

    Where algorithms change places goes with the size on some machines, on others with what a node
    has of it; and algorithms that pair ranks have more to do where their number is no power of two.
    Beliefs are followed unless keeping the default loses less, with 95 % confidence over the calls
    by Student's t: what wins at one node count and loses at the next says so itself. With one node
    count alone there is nothing to try on.
    """
    counts = sorted({row.point.nodes for row in rows})
    if len(counts) < 2:
        return PLAIN
    tested = {counts[n] for n in np.linspace(0, len(counts) - 1, _FOLDS).round().astype(int)}

    def losses(way: Way) -> FloatArray:
        return np.concatenate([_losses(rows, learn, way, nodes) for nodes in sorted(tested)])

    compared = {way: losses(way) for way in _compared(rows)}
    best = min(compared, key=lambda way: float(compared[way].sum()))
    kept = replace(best, trusted=False)
    return kept if _surely_less(losses(kept), compared[best]) else best


def _compared(rows: Sequence[Row]) -> list[Way]:
    """The ways to compare calls that are not the same for such rows."""
    both = len({is_power(row.point.p) for row in rows}) > 1
    powers = (False, True) if both else (False,)
    return [Way(per_node, told) for told in powers for per_node in (False, True)]


def _losses(rows: Sequence[Row], learn: Learn, way: Way, nodes: int) -> FloatArray:
    """Regrets at the calls on so many nodes of what is learned from the others."""
    choose = learn([row for row in rows if row.point.nodes != nodes], way)
    losses = []
    for point, own in by_point(row for row in rows if row.point.nodes == nodes).items():
        times = {row.choice: row.typical for row in own}
        taken = times.get(choose(point, times), math.inf)
        losses.append(min(taken / min(times.values()) - 1, _MOST))
    return np.array(losses)


def _surely_less(losses: FloatArray, than: FloatArray) -> bool:
    saved = than - losses
    if len(saved) < 2:
        return False
    error = saved.std(ddof=1) / math.sqrt(len(saved))
    return bool(saved.mean() > stdtrit(len(saved) - 1, LEVEL) * error)
