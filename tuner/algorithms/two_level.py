"""Allreduce in which all, or several, ranks of a node talk to other nodes at once."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.algorithms import allreduce
from tuner.algorithms.hierarchy import Levels
from tuner.algorithms.multi_leader import Shares
from tuner.algorithms.registry import algorithm, segments
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule

ALLREDUCE = Collective.ALLREDUCE


@algorithm(ALLREDUCE, "two_level_ring")
def ring(p: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Ring reduce-scatter inside groups, a ring per share between them, ring allgather inside.

    Ranks of the same place in their group combine their share. Segmented, a segment is reduced
    inside the groups while the one before it is on the network.

    Cost: 2 (g+G-2) alpha + (1 - 1/p) m (2 beta + gamma) unsegmented, p = g G, groups of g ranks
    Source: derived in docs/cost-formulas.md; the two levels: Horovod's hierarchical allreduce
    """
    levels = Levels.of(p, group)
    shares = Shares(levels, levels.largest, levels.groups)

    def make() -> Iterator[Round]:
        yield from shares.reduced_in_rings()
        yield from shares.between(allreduce.ring(levels.groups))
        yield from shares.given_back_in_rings()

    whole = Schedule(ALLREDUCE, p, shares.n_chunks, make)
    return levels.overlapped(whole, segments(nbytes, segment))


@algorithm(ALLREDUCE, "two_level_recursive_doubling")
def recursive_doubling(p: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Direct reduce-scatter inside groups, recursive doubling of shares, direct allgather inside.

    Inside a group everybody sends to everybody at once, as NVSwitch lets them.

    Cost: (2 + log2 G) alpha + (g-1)/g m (2 beta + gamma) + log2 G m/g (beta + gamma), unsegmented,
    G groups of g ranks, G a power of two
    Source: derived in docs/cost-formulas.md
    """
    levels = Levels.of(p, group)
    return _direct(
        levels,
        levels.largest,
        allreduce.recursive_doubling(levels.groups),
        segments(nbytes, segment),
    )


@algorithm(ALLREDUCE, "two_level_rabenseifner")
def rabenseifner(p: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Direct reduce-scatter inside groups, halving and doubling of shares, direct allgather inside.

    Cost: 2 (1 + log2 G) alpha + (1 - 1/p) m (2 beta + gamma) unsegmented, p = g G, groups of g
    ranks, G a power of two
    Source: derived in docs/cost-formulas.md
    """
    levels = Levels.of(p, group)
    return _direct(
        levels, levels.largest, allreduce.rabenseifner(levels.groups), segments(nbytes, segment)
    )


@algorithm(ALLREDUCE, "multi_leader")
def multi_leader(
    p: int, nbytes: int, group: int = 4, leaders: int = 2, segment: int = 1 << 18
) -> Schedule:
    """A segment is reduced at the leaders of each group while the one before it is on the network.

    Each leader has its part of a segment, reduces it with the leaders of the same part by
    halving and doubling, and gives it to its group.

    Cost: 2 (1 + log2 G) alpha + (g - 1/G) m/l (2 beta + gamma) unsegmented, at most
    (S + 2 log2 G + 1) (alpha + (1 + (g+1)/l) m/S (beta + gamma)) segmented, G groups of g ranks,
    l leaders, G a power of two
    Source: SALaR (CLUSTER 2018); formulas derived in docs/cost-formulas.md
    """
    levels = Levels.of(p, group)
    between = allreduce.rabenseifner(levels.groups)
    return _direct(levels, min(leaders, levels.largest), between, segments(nbytes, segment))


def _direct(levels: Levels, parts: int, between: Schedule, number: int) -> Schedule:
    """`number` segments of `parts` parts, which `between` combines between the groups."""
    shares = Shares(levels, parts, between.n_chunks)
    reduced, given_back = shares.reduced(), shares.given_back()

    def make() -> Iterator[Round]:
        yield reduced
        yield from shares.between(between)
        yield given_back

    whole = Schedule(ALLREDUCE, levels.p, shares.n_chunks, make)
    return levels.overlapped(whole, number)
