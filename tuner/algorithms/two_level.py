"""Two-level algorithms in which several ranks of a node exchange with other nodes at once."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.algorithms import allreduce, bcast, trees
from tuner.algorithms.hierarchy import Hierarchy
from tuner.algorithms.multi_leader import MultiLeader
from tuner.algorithms.registry import algorithm, count_segments
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, relabel

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE


@algorithm(ALLREDUCE, "two_level_ring")
def ring(p: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Reduce-scatter over a ring inside groups, run a ring per share between groups, allgather.

    Ranks of the same place in their groups combine their share. With segments, a segment is reduced
    inside the groups while the one before it is on the network.

    Cost: 2 (g+G-2) alpha + (1 - 1/p) m (2 beta + gamma) unsegmented, p = g G, groups of g ranks
    Source: derived in docs/reference/cost-formulas.md; two levels: Horovod's hierarchical allreduce
    """
    levels = Hierarchy.of(p, group)
    shares = MultiLeader(levels, levels.max_group_size, levels.n_groups)

    def make() -> Iterator[Round]:
        yield from shares.ring_reduce_scatter()
        yield from shares.among_leaders(allreduce.ring(levels.n_groups))
        yield from shares.ring_allgather()

    whole = Schedule(ALLREDUCE, p, shares.n_chunks, make)
    return levels.pipeline_segments(whole, count_segments(nbytes, segment))


@algorithm(ALLREDUCE, "two_level_recursive_doubling")
def recursive_doubling(p: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Reduce-scatter directly inside groups, double recursively per share, allgather directly.

    Inside a group all ranks send to all others at once, as an NVSwitch allows.

    Cost: (2 + log2 G) alpha + (g-1)/g m (2 beta + gamma) + log2 G m/g (beta + gamma), unsegmented,
    G groups of g ranks, G a power of two
    Source: derived in docs/reference/cost-formulas.md
    """
    levels = Hierarchy.of(p, group)
    return _multi_leader_allreduce(
        levels,
        levels.max_group_size,
        allreduce.recursive_doubling(levels.n_groups),
        count_segments(nbytes, segment),
    )


@algorithm(ALLREDUCE, "two_level_rabenseifner")
def rabenseifner(p: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Reduce-scatter directly inside groups, halve and double per share, allgather directly.

    Cost: 2 (1 + log2 G) alpha + (1 - 1/p) m (2 beta + gamma) unsegmented, p = g G, groups of g
    ranks, G a power of two
    Source: derived in docs/reference/cost-formulas.md
    """
    levels = Hierarchy.of(p, group)
    return _multi_leader_allreduce(
        levels,
        levels.max_group_size,
        allreduce.rabenseifner(levels.n_groups),
        count_segments(nbytes, segment),
    )


@algorithm(BCAST, "two_level_chain")
def chain(p: int, root: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Scatter the message in the root's group, send shares from group to group, allgather.

    Ranks of the same place in their groups pass on their share, so that all network ports of a node
    carry a part of the message. Whole shares go down a binomial tree of the groups; segments flow
    down a chain, and a ring inside each group exchanges their shares while later ones arrive.

    Cost: (g + ceil(log2 G)) alpha + (2 (g-1) + ceil(log2 G)) m/g beta unsegmented, at most
    (S + G + g - 2) (alpha + 2 m/S beta) segmented, G > 1 groups of g > 1 ranks
    Source: derived in docs/reference/cost-formulas.md; NCCL's broadcast over several rings likewise
    cuts the message over the network ports of a node
    """
    levels, number = Hierarchy.of(p, group, root), count_segments(nbytes, segment)
    shares = MultiLeader(levels, levels.max_group_size)
    scattered = shares.scatter_to_leaders()
    between = (
        trees.broadcast(trees.chain(levels.n_groups, 1), 1)
        if number > 1
        else bcast.binomial(levels.n_groups, 0, 0)
    )

    def make() -> Iterator[Round]:
        yield scattered.select(scattered.src == 0)
        yield from shares.among_leaders(between)
        yield from (r.select(r.dst != 0) for r in shares.ring_allgather())  # the root has it all

    whole = Schedule(BCAST, p, shares.n_chunks, make)
    return relabel(levels.pipeline_segments(whole, number), levels.rank_of_role, root=root)


@algorithm(ALLREDUCE, "multi_leader")
def multi_leader(
    p: int, nbytes: int, group: int = 4, leaders: int = 2, segment: int = 1 << 18
) -> Schedule:
    """Reduce a segment at several leaders of each group while the one before it is on the network.

    Each leader has its part of a segment, reduces it with the leaders of the same part by
    halving and doubling, and gives it to its group.

    Cost: 2 (1 + log2 G) alpha + (g - 1/G) m/l (2 beta + gamma) unsegmented, at most
    (S + 2 log2 G + 1) (alpha + (1 + (g+1)/l) m/S (beta + gamma)) segmented, G groups of g ranks,
    l leaders, G a power of two
    Source: SALaR (CLUSTER 2018); formulas derived in docs/reference/cost-formulas.md
    """
    levels = Hierarchy.of(p, group)
    between = allreduce.rabenseifner(levels.n_groups)
    return _multi_leader_allreduce(
        levels, min(leaders, levels.max_group_size), between, count_segments(nbytes, segment)
    )


def _multi_leader_allreduce(
    levels: Hierarchy, n_parts: int, between: Schedule, n_segments: int
) -> Schedule:
    """Return an allreduce of `n_segments` segments of `n_parts` parts.

    between     allreduce of one part between the groups
    """
    shares = MultiLeader(levels, n_parts, between.n_chunks)
    reduced, given_back = shares.reduce_to_leaders(), shares.broadcast_from_leaders()

    def make() -> Iterator[Round]:
        yield reduced
        yield from shares.among_leaders(between)
        yield given_back

    whole = Schedule(ALLREDUCE, levels.p, shares.n_chunks, make)
    return levels.pipeline_segments(whole, n_segments)
