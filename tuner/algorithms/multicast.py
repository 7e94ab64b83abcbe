"""Broadcast over a network that replicates a message on its way to many receivers.

The root sends once, however many nodes there are; a node's ranks hand it on among themselves.
Formulas leave out what lost messages cost: multicast is unreliable, and libraries send again.
"""

from __future__ import annotations

from dataclasses import replace

from tuner.algorithms import bcast
from tuner.algorithms.hierarchy import Levels
from tuner.algorithms.registry import algorithm, segments
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, concat, relabel, schedule

BCAST = Collective.BCAST


@algorithm(BCAST, "multicast", needs="multicast")
def multicast(p: int, root: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """One message to the leaders of all groups, then a binomial tree inside each group.

    Segmented, a segment spreads inside the groups while the next one is multicast.

    Cost: (1 + ceil(log2 g)) (alpha + m beta) unsegmented, at most
    (S + ceil(log2 g)) (alpha + (1 + ceil(log2 g)) m/S beta) segmented, with groups of g ranks
    Source: C.-H. Chu et al., TPDS 30(3) 2019; formula derived in docs/cost-formulas.md
    """
    levels = Levels.of(p, group, root)
    sent = Round.of(0, levels.start[1:], 0)
    return _spread(levels, [sent], segments(nbytes, segment))


@algorithm(BCAST, "multicast_staged", needs="multicast")
def multicast_staged(p: int, root: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Copied to the host, multicast to the leaders' hosts, copied to devices, on inside the groups.

    Where the network cannot read or write device memory. h is the time of one copy of the whole
    message between device and host.

    Cost: 2 h + (1 + ceil(log2 g)) (alpha + m beta) unsegmented, with groups of g ranks
    Source: C.-H. Chu et al., TPDS 30(3) 2019; formula derived in docs/cost-formulas.md
    """
    levels = Levels.of(p, group, root)
    others = levels.start[1:]
    sent = [Round.of(0, 0, 0, 1), Round.of(0, others, 1), Round.of(others, others, 1, 0)]
    return _spread(levels, sent if len(others) else [], segments(nbytes, segment))


def _spread(levels: Levels, sent: list[Round], number: int) -> Schedule:
    """`sent`, which brings one chunk to all leaders, then on inside the groups."""
    staged = any(r.first.max(initial=0) > 0 for r in sent)
    to_leaders = replace(schedule(BCAST, levels.p, 1, sent), staged=staged, in_network=True)
    inside = levels.in_each(bcast.binomial(levels.largest, 0, 0))
    whole = levels.overlapped(concat(BCAST, to_leaders, inside), number)
    return relabel(whole, levels.rank_of, root=int(levels.rank_of[0]))
