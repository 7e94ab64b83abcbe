"""Reductions in switches: NVSwitches inside nodes (NVLink SHARP), network switches (SHARP).

The buffer is cut into one part per GPU of a node; part i is led by GPU i of every node, which gets
it reduced from its node, combines it with the other nodes' over its own NIC, and spreads it.
Segments follow one another through these steps.

Schedules are `in_network`: what reaches one slot in one round arrives as one message, and what one
rank sends to several ranks in one round leaves as one. A round therefore only contains what the
switches in question do combine or replicate; everything else is one round apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tuner.algorithms import trees
from tuner.algorithms.hierarchy import Hierarchy
from tuner.algorithms.nccl import rank_of_role_on_channel, single_chunk_hops
from tuner.algorithms.registry import algorithm, count_segments
from tuner.algorithms.trees import Hops, concat_hops, pipelined_schedule
from tuner.base.arrays import IntArray
from tuner.core.collective import Collective
from tuner.core.schedule import DST_OP_ARRIVING, Round, Schedule, make_schedule

ALLREDUCE = Collective.ALLREDUCE
CHUNK_BYTES = 1 << 17  # NCCL's chunk for NVLS
ONE_GROUP = 0  # stands for all ranks


def group_multicast(levels: Hierarchy) -> Hops:
    """Return hops from each leader to its whole group: one message that the NVSwitch replicates."""
    others = np.setdiff1d(np.arange(levels.p), levels.leader_roles)
    return single_chunk_hops(levels.leader_roles[levels.group_of(others)], others, 0)


def group_sequential(levels: Hierarchy) -> Hops:
    """Return hops from each leader to its group, one rank after the other."""
    found = group_multicast(levels)
    return found._replace(delay=found.dst - found.src - 1)


def group_chain(levels: Hierarchy) -> Hops:
    """Return hops from each leader along the chain of its group."""
    found = group_multicast(levels)
    return found._replace(src=found.dst - 1, delay=found.dst - found.src - 1)


def leader_double_tree(levels: Hierarchy, part: int) -> Hops:
    """Return hops between leaders down one of two binary trees, one child after the other.

    part    number of the part; its parity selects the tree
    """
    between = trees.in_order_tree(len(levels.leader_roles), part % 2)
    ready, edges = {0: 0}, []
    for node in _root_first_order(between):
        for turn, child in enumerate(between[node]):
            edges.append((node, child, ready[node] + turn))
            ready[child] = ready[node] + turn + 1
    above, below, delay = np.array(edges, dtype=int).reshape(-1, 3).T
    return single_chunk_hops(levels.leader_roles[above], levels.leader_roles[below], delay)


def _root_first_order(tree: trees.Tree) -> list[int]:
    """Return the vertices of a tree, each after its parent."""
    order = [0]
    for vertex in order:
        order.extend(tree[vertex])
    return order


def leader_multicast(levels: Hierarchy, part: int) -> Hops:
    """Return hops from one leader to all others: one message that the network replicates."""
    root = part % len(levels.leader_roles)
    others = np.delete(levels.leader_roles, root)
    return single_chunk_hops(np.full_like(others, levels.leader_roles[root]), others, 0)


def _reduce_then_broadcast(
    p: int,
    nbytes: int,
    group: int,
    segment: int,
    inside: Callable[[Hierarchy], Hops],
    between_leaders: Callable[[Hierarchy, int], Hops],
) -> Schedule:
    """Return an allreduce inside the nodes, between them, and back, with all parts at once.

    segment             bytes of a segment; 0 for unsegmented
    inside              returns the hops from leaders to their groups
    between_leaders     returns the hops of one part between leaders

    Hops are used backwards for the reduction.
    """
    levels = Hierarchy.of(p, group)
    levels.check_round_size(levels.max_group_size)
    number = count_segments(-(-nbytes // levels.max_group_size), segment)
    parts = []
    for part in range(levels.max_group_size):
        local, across = inside(levels), between_leaders(levels, part)
        up, over = local.time_reversed(DST_OP_ARRIVING), across.time_reversed(DST_OP_ARRIVING)
        after = up.n_rounds + over.n_rounds
        way = concat_hops(
            up,
            over.delayed(up.n_rounds),
            across.delayed(after),
            local.delayed(after + across.n_rounds),
        )
        rank_of = rank_of_role_on_channel(levels, part)
        parts.append(
            way._replace(
                src=rank_of[way.src],
                dst=rank_of[way.dst],
                first_chunk=way.first_chunk + part * number,
            )
        )
    made = pipelined_schedule(
        ALLREDUCE, p, levels.max_group_size * number, concat_hops(*parts), number
    )
    return replace(made, in_network=True)


@algorithm(ALLREDUCE, "nvls", requires="gpu nvswitch_reduction joined_by_switches")
def nvls_allreduce(
    p: int, nbytes: int, group: int = ONE_GROUP, segment: int = CHUNK_BYTES
) -> Schedule:
    """Reduce each rank's part in NVSwitches and multicast the result (NCCL's NVLS).

    Network switches reduce between nodes, if there are several. Results of a segment are multicast
    while the next one is reduced.

    Cost: (S + 1) (alpha + m/S (beta + gamma/p)), S segments per part, on one node; on several at
    most (S + 4) (2 alpha + 2 m/S (beta + gamma))
    Source: NCCL, src/device/all_reduce.h (NVLS)
    """
    ranks = group or p
    return _reduce_then_broadcast(p, nbytes, ranks, segment, group_multicast, leader_multicast)


def _all_pairs(p: int) -> tuple[IntArray, IntArray]:
    """Return all ordered pairs of different ranks; raise InputError for too many."""
    Hierarchy.of(p, p).check_round_size(p)
    src, dst = np.nonzero(~np.eye(p, dtype=bool))
    return src, dst


@algorithm(Collective.ALLGATHER, "nvls", requires="gpu nvswitch_reduction one_node")
def nvls_allgather(p: int) -> Schedule:
    """Multicast each rank's share through the NVSwitch (NCCL's NVLS).

    Cost: alpha + (p-1)/p m beta, m the whole buffer
    Source: NCCL, src/device/all_gather.h (NVLS)
    """
    src, dst = _all_pairs(p)
    made = make_schedule(Collective.ALLGATHER, p, p, [Round.of(src, dst, src)])
    return replace(made, in_network=True)


@algorithm(Collective.REDUCE_SCATTER, "nvls", requires="gpu nvswitch_reduction one_node")
def nvls_reduce_scatter(p: int) -> Schedule:
    """Reduce each rank's share in the NVSwitch (NCCL's NVLS).

    Cost: alpha + (p-1)/p m beta + m/p gamma, m the whole vector
    Source: NCCL, src/device/reduce_scatter.h (NVLS)
    """
    src, dst = _all_pairs(p)
    rows = Round.of(src, dst, dst, reduce=DST_OP_ARRIVING)
    return replace(make_schedule(Collective.REDUCE_SCATTER, p, p, [rows]), in_network=True)


@algorithm(ALLREDUCE, "nvls_tree", requires="gpu nvswitch_reduction two_levels")
def nvls_tree(p: int, nbytes: int, group: int = 8, segment: int = CHUNK_BYTES) -> Schedule:
    """Reduce and multicast in NVSwitches, with a double tree between nodes (NCCL's NVLSTree).

    Cost: at most (S + 4 log2 G + 1) (2 alpha + (1 + 3/g) m/S (beta + gamma)), S segments per part,
    G nodes of g ranks
    Source: NCCL, src/device/all_reduce.h (NVLS_TREE)
    """
    return _reduce_then_broadcast(p, nbytes, group, segment, group_multicast, leader_double_tree)


@algorithm(ALLREDUCE, "collnet_direct", requires="gpu switch_reduction two_levels")
def collnet_direct(p: int, nbytes: int, group: int = 8, segment: int = CHUNK_BYTES) -> Schedule:
    """Send parts directly to their leaders and reduce in network switches (NCCL's CollNetDirect).

    Cost: at most (S + 2 g) (2 alpha + 2 m/S (beta + gamma)), S segments per part, nodes of g ranks
    Source: NCCL, src/device/all_reduce.h (COLLNET_DIRECT)
    """
    return _reduce_then_broadcast(p, nbytes, group, segment, group_sequential, leader_multicast)


@algorithm(ALLREDUCE, "collnet_chain", requires="gpu switch_reduction two_levels")
def collnet_chain(p: int, nbytes: int, group: int = 8, segment: int = CHUNK_BYTES) -> Schedule:
    """Reduce up a chain inside each node, then in network switches, and back (NCCL's CollNetChain).

    Cost: at most (S + 2 g) (2 alpha + 2 m/S (beta + gamma)), S segments per part, nodes of g ranks
    Source: NCCL, src/device/all_reduce.h (COLLNET_CHAIN)
    """
    return _reduce_then_broadcast(p, nbytes, group, segment, group_chain, leader_multicast)
