"""Broadcast over a network that replicates a message for many receivers.

The root sends once, however many nodes there are; the ranks of a node pass the message on among
themselves. Formulas leave out the cost of lost messages: multicast is unreliable, and libraries
send again.
"""

from __future__ import annotations

from dataclasses import replace

from tuner.algorithms import bcast
from tuner.algorithms.hierarchy import Hierarchy
from tuner.algorithms.registry import algorithm, count_segments
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, concat, make_schedule, relabel

BCAST = Collective.BCAST


@algorithm(BCAST, "multicast", requires="multicast")
def multicast(p: int, root: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Multicast one message to the leaders of all groups, then broadcast binomially inside groups.

    With segments, a segment spreads inside the groups while the next one is multicast.

    Cost: (1 + ceil(log2 g)) (alpha + m beta) unsegmented, at most
    (S + ceil(log2 g)) (alpha + (1 + ceil(log2 g)) m/S beta) segmented, with groups of g ranks
    Source: C.-H. Chu et al., TPDS 30(3) 2019; formula derived in docs/reference/cost-formulas.md
    """
    levels = Hierarchy.of(p, group, root)
    sent = Round.of(0, levels.leader_roles[1:], 0)
    return _multicast_then_binomial(levels, [sent], count_segments(nbytes, segment))


@algorithm(BCAST, "multicast_staged", requires="multicast")
def multicast_staged(p: int, root: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Copy to the host, multicast to the leaders' hosts, copy to devices, broadcast inside groups.

    This is for networks that cannot read or write device memory. h is the time of one copy of the
    whole message between device and host.

    Cost: 2 h + (1 + ceil(log2 g)) (alpha + m beta) unsegmented, with groups of g ranks
    Source: C.-H. Chu et al., TPDS 30(3) 2019; formula derived in docs/reference/cost-formulas.md
    """
    levels = Hierarchy.of(p, group, root)
    others = levels.leader_roles[1:]
    sent = [Round.of(0, 0, 0, 1), Round.of(0, others, 1), Round.of(others, others, 1, 0)]
    return _multicast_then_binomial(
        levels, sent if len(others) else [], count_segments(nbytes, segment)
    )


def _multicast_then_binomial(levels: Hierarchy, sent: list[Round], number: int) -> Schedule:
    """Return a broadcast of `number` segments: multicast, then binomial inside the groups.

    sent    rounds that bring one chunk from the root to all leaders
    """
    staged = any(r.src_chunk.max(initial=0) > 0 for r in sent)
    to_leaders = replace(make_schedule(BCAST, levels.p, 1, sent), staged=staged, in_network=True)
    inside = levels.in_each_group(bcast.binomial(levels.max_group_size, 0, 0))
    whole = levels.pipeline_segments(concat(BCAST, to_leaders, inside), number)
    return relabel(whole, levels.rank_of_role, root=int(levels.rank_of_role[0]))
