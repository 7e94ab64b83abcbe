"""Reductions on the way: NVSwitches inside nodes (NVLink SHARP), switches of the network (SHARP).

The buffer is cut into one part per GPU of a node; part i is led by the node's GPU i, which gets it
reduced from its node, combines it with the other nodes' over its own NIC, and spreads it. Segments
follow one another through all of this.

Schedules are `in_network`: what reaches one slot in one round arrives as one message, and what one
rank sends to several in one round leaves as one. So a round holds together only what the switches
in question do combine or replicate; everything else is one round apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tuner.algorithms import trees
from tuner.algorithms.hierarchy import Levels
from tuner.algorithms.nccl import entered_at, hops
from tuner.algorithms.registry import algorithm, segments
from tuner.algorithms.trees import Hops, join, pipelined
from tuner.base.arrays import IntArray
from tuner.core.collective import Collective
from tuner.core.schedule import DST_OP_ARRIVING, Round, Schedule, schedule

ALLREDUCE = Collective.ALLREDUCE
PART = 1 << 17  # bytes: NCCL's chunk for NVLS


def at_once(levels: Levels) -> Hops:
    """From each leader to its whole group: one message that the NVSwitch replicates."""
    others = np.setdiff1d(np.arange(levels.p), levels.start)
    return hops(levels.start[levels.group_of(others)], others, 0)


def one_by_one(levels: Levels) -> Hops:
    """From each leader to its group, one rank after the other."""
    found = at_once(levels)
    return found._replace(delay=found.dst - found.src - 1)


def along(levels: Levels) -> Hops:
    """From each leader along the chain of its group."""
    found = at_once(levels)
    return found._replace(src=found.dst - 1, delay=found.dst - found.src - 1)


def double_tree(levels: Levels, part: int) -> Hops:
    """Between leaders down one of two binary trees, one child after the other."""
    between = trees.in_order(len(levels.start), part % 2)
    ready, edges = {0: 0}, []
    for node in _from_the_root(between):
        for turn, child in enumerate(between[node]):
            edges.append((node, child, ready[node] + turn))
            ready[child] = ready[node] + turn + 1
    above, below, delay = np.array(edges, dtype=int).reshape(-1, 3).T
    return hops(levels.start[above], levels.start[below], delay)


def _from_the_root(tree: trees.Tree) -> list[int]:
    """The vertices, each after its parent."""
    order = [0]
    for vertex in order:
        order.extend(tree[vertex])
    return order


def through_switches(levels: Levels, part: int) -> Hops:
    """From one leader to all others: one message that the network replicates."""
    root = part % len(levels.start)
    others = np.delete(levels.start, root)
    return hops(np.full_like(others, levels.start[root]), others, 0)


def _there_and_back(
    p: int,
    nbytes: int,
    group: int,
    segment: int,
    inside: Callable[[Levels], Hops],
    between: Callable[[Levels, int], Hops],
) -> Schedule:
    """Reduced inside the nodes, between them, and given back the same ways; all parts at once."""
    levels = Levels.of(p, group)
    levels.require_few(levels.largest)
    number = segments(-(-nbytes // levels.largest), segment)
    parts = []
    for part in range(levels.largest):
        local, across = inside(levels), between(levels, part)
        up, over = local.backwards(DST_OP_ARRIVING), across.backwards(DST_OP_ARRIVING)
        after = up.rounds + over.rounds
        way = join(
            up, over.later(up.rounds), across.later(after), local.later(after + across.rounds)
        )
        rank_of = entered_at(levels, part)
        parts.append(
            way._replace(
                src=rank_of[way.src], dst=rank_of[way.dst], first=way.first + part * number
            )
        )
    made = pipelined(ALLREDUCE, p, levels.largest * number, join(*parts), number)
    return replace(made, in_network=True)


@algorithm(ALLREDUCE, "nvls", needs="gpu nvswitch_reduction one_node")
def nvls(p: int, nbytes: int, segment: int = PART) -> Schedule:
    """NCCL's NVLS: each rank gets its part reduced by the NVSwitch and multicasts the result.

    For ranks behind one NVSwitch. Segments on their way out overlap with the next ones' way in.

    Cost: (S + 1) (alpha + m/S (beta + gamma/p)), S segments per part
    Source: NCCL, src/device/all_reduce.h (NVLS)
    """
    return _there_and_back(p, nbytes, p, segment, at_once, double_tree)


def _pairs(p: int) -> tuple[IntArray, IntArray]:
    """Everybody with everybody else."""
    Levels.of(p, p).require_few(p)
    src, dst = np.nonzero(~np.eye(p, dtype=bool))
    return src, dst


@algorithm(Collective.ALLGATHER, "nvls", needs="gpu nvswitch_reduction one_node")
def gathered(p: int) -> Schedule:
    """NCCL's NVLS: each rank multicasts its share through the NVSwitch.

    Cost: alpha + (p-1)/p m beta, m the whole buffer
    Source: NCCL, src/device/all_gather.h (NVLS)
    """
    src, dst = _pairs(p)
    made = schedule(Collective.ALLGATHER, p, p, [Round.of(src, dst, src)])
    return replace(made, in_network=True)


@algorithm(Collective.REDUCE_SCATTER, "nvls", needs="gpu nvswitch_reduction one_node")
def scattered(p: int) -> Schedule:
    """NCCL's NVLS: each rank gets its share from the NVSwitch, reduced on the way.

    Cost: alpha + (p-1)/p m beta + m/p gamma, m the whole vector
    Source: NCCL, src/device/reduce_scatter.h (NVLS)
    """
    src, dst = _pairs(p)
    rows = Round.of(src, dst, dst, reduce=DST_OP_ARRIVING)
    return replace(schedule(Collective.REDUCE_SCATTER, p, p, [rows]), in_network=True)


@algorithm(ALLREDUCE, "nvls_tree", needs="gpu nvswitch_reduction two_levels")
def nvls_tree(p: int, nbytes: int, group: int = 8, segment: int = PART) -> Schedule:
    """NCCL's NVLSTree: NVSwitches reduce and spread inside nodes, a double binary tree between.

    Cost: at most (S + 4 log2 G + 1) (2 alpha + (1 + 3/g) m/S (beta + gamma)), S segments per part,
    G nodes of g ranks
    Source: NCCL, src/device/all_reduce.h (NVLS_TREE)
    """
    return _there_and_back(p, nbytes, group, segment, at_once, double_tree)


@algorithm(ALLREDUCE, "collnet_direct", needs="gpu switch_reduction two_levels")
def collnet_direct(p: int, nbytes: int, group: int = 8, segment: int = PART) -> Schedule:
    """NCCL's CollNetDirect: parts go straight to their leaders, the network's switches reduce them.

    Cost: at most (S + 2 g) (2 alpha + 2 m/S (beta + gamma)), S segments per part, nodes of g ranks
    Source: NCCL, src/device/all_reduce.h (COLLNET_DIRECT)
    """
    return _there_and_back(p, nbytes, group, segment, one_by_one, through_switches)


@algorithm(ALLREDUCE, "collnet_chain", needs="gpu switch_reduction two_levels")
def collnet_chain(p: int, nbytes: int, group: int = 8, segment: int = PART) -> Schedule:
    """NCCL's CollNetChain: up a chain inside each node, the network's switches reduce, and back.

    Cost: at most (S + 2 g) (2 alpha + 2 m/S (beta + gamma)), S segments per part, nodes of g ranks
    Source: NCCL, src/device/all_reduce.h (COLLNET_CHAIN)
    """
    return _there_and_back(p, nbytes, group, segment, along, through_switches)
