"""NCCL's rings and trees: several channels, each with its part of the buffer and its own order.

Ranks are GPUs, `group` consecutive ones per node. Channel c enters a node at its GPU c, so that
with as many channels as NICs every NIC serves one of them. Rings traverse every second node in the
opposite direction: a channel then goes from node to node between GPUs of the same number (its
rail). Inside a node a ring takes the GPUs in order, which is possible behind an NVSwitch; where
NVLinks join only some of them, `tuner.mpi_libraries.nccl.find_rings` finds the possible orders.

Source of all: NCCL, src/graph/connect.cc and src/device/*.h; arXiv 2507.04786.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from tuner.algorithms import alltoall, trees
from tuner.algorithms.hierarchy import Hierarchy
from tuner.algorithms.registry import algorithm, count_segments
from tuner.algorithms.round_columns import RotatedColumn, column
from tuner.algorithms.trees import Hops, concat_hops, pipelined_schedule
from tuner.base.arrays import IntArray
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.schedule import (
    ARRIVING_OP_DST,
    DST_OP_ARRIVING,
    NO_REDUCTION,
    Round,
    Schedule,
    concat,
)

BCAST, REDUCE, ALLREDUCE = Collective.BCAST, Collective.REDUCE, Collective.ALLREDUCE
ALLGATHER, REDUCE_SCATTER = Collective.ALLGATHER, Collective.REDUCE_SCATTER
ALLTOALL, ALLTOALLV = Collective.ALLTOALL, Collective.ALLTOALLV
MAX_MESSAGES = 1 << 22
SLOT_BYTES = 1 << 19  # what one slot of NCCL's buffers holds in protocol Simple


def ring_order(levels: Hierarchy, channel: int) -> IntArray:
    """Return the ranks in the order of a channel's ring."""
    start, size = levels.leader_roles, levels.group_sizes
    node = np.repeat(np.arange(len(start)), size)
    place = np.arange(levels.p) - start[node]
    local = np.where(node % 2, channel - 1 - place, channel + place) % size[node]
    order: IntArray = start[node] + local
    return order


def _ring_orders(p: int, group: int, channels: int) -> IntArray:
    """Return one ring per channel, shape (channels, p)."""
    levels = Hierarchy.of(p, group)
    return np.stack([ring_order(levels, channel) for channel in range(channels)])


def _check_message_count(p: int, channels: int) -> None:
    """Raise InputError for more messages of several channels than an engine can hold.

    The messages of a single channel repeat and are not limited.
    """
    if channels > 1 and p * p * channels > MAX_MESSAGES:
        raise InputError(
            f"{channels} rings of {p} ranks are {p * p * channels} messages: use one channel"
        )


def _ring_rounds(p: int, group: int, channels: int, begin: int, reduce: int) -> Iterator[Round]:
    """Yield p - 1 rounds; in round t place i of a ring sends what place i + begin - t owns."""
    orders = _ring_orders(p, group, channels)
    src, dst = column(orders.ravel()), column(np.roll(orders, -1, axis=1).ravel())
    count, kind = column(1, len(src)), column(reduce, len(src))
    owned = [RotatedColumn(order * channels + channel) for channel, order in enumerate(orders)]
    for t in range(p - 1):  # all ports serve the channels in one order
        parts = [chunk.at(begin - t) for chunk in owned]
        # a single part is not copied
        first = column(np.concatenate(parts)) if len(parts) > 1 else parts[0]
        yield Round(src, dst, first, first, count, kind)


@algorithm(ALLGATHER, "nccl_ring", requires="gpu")
def ring_allgather(p: int, group: int = 8, channels: int = 1) -> Schedule:
    """Pass on what was received last, round NCCL's rings, with the shares cut over several rings.

    Cost: (p-1) alpha + (p-1)/p m beta, m the whole buffer
    Source: NCCL, src/device/all_gather.h
    """
    _check_message_count(p, channels)
    make = partial(_ring_rounds, p, group, channels, 0, NO_REDUCTION)
    return Schedule(ALLGATHER, p, p * channels, make)


@algorithm(REDUCE_SCATTER, "nccl_ring", requires="gpu")
def ring_reduce_scatter(p: int, group: int = 8, channels: int = 1) -> Schedule:
    """Pass shares, cut over several rings, round NCCL's rings and reduce them at each rank.

    Cost: (p-1) alpha + (p-1)/p m (beta + gamma), m the whole vector
    Source: NCCL, src/device/reduce_scatter.h
    """
    _check_message_count(p, channels)
    make = partial(_ring_rounds, p, group, channels, -1, ARRIVING_OP_DST)
    return Schedule(REDUCE_SCATTER, p, p * channels, make)


@algorithm(ALLREDUCE, "nccl_ring", requires="gpu")
def ring_allreduce(p: int, group: int = 8, channels: int = 1) -> Schedule:
    """Reduce-scatter, then allgather, over NCCL's rings, with the buffer cut over several rings.

    Cost: 2 (p-1) alpha + (p-1)/p m (2 beta + gamma)
    Source: NCCL, src/device/all_reduce.h
    """
    return concat(
        ALLREDUCE, ring_reduce_scatter(p, group, channels), ring_allgather(p, group, channels)
    )


def single_chunk_hops(
    src: IntArray, dst: IntArray, delay: IntArray | int, reduce: int = NO_REDUCTION
) -> Hops:
    """Return hops of chunk 0."""
    none = np.zeros(len(src), dtype=np.int64)
    return Hops(src, dst, none + reduce, none + delay, none)


def _chain_hops(orders: IntArray, number: int, reduce: int) -> Hops:
    """Return hops along each order from its first rank to its last, `number` chunks per order."""
    channels, length = len(orders), orders.shape[1] - 1
    delay = np.tile(np.arange(length), channels)
    first = np.repeat(np.arange(channels) * number, length)
    src, dst = orders[:, :-1].ravel(), orders[:, 1:].ravel()
    return single_chunk_hops(src, dst, delay, reduce)._replace(first_chunk=first)


def _rotated_to(orders: IntArray, rank: int) -> IntArray:
    """Return the same rings, each beginning at one rank."""
    return np.stack([np.roll(order, -int(np.flatnonzero(order == rank)[0])) for order in orders])


@algorithm(BCAST, "nccl_ring", requires="gpu")
def ring_broadcast(
    p: int, root: int, nbytes: int, group: int = 8, channels: int = 2, segment: int = SLOT_BYTES
) -> Schedule:
    """Pass segments from the root round several of NCCL's rings.

    Cost: (S + p - 2) (alpha + m/S beta) in one node, where all channels go round alike, S segments
    per channel
    Source: NCCL, src/device/broadcast.h
    """
    number = count_segments(-(-nbytes // channels), segment)
    lines = _chain_hops(_rotated_to(_ring_orders(p, group, channels), root), number, NO_REDUCTION)
    return replace(pipelined_schedule(BCAST, p, channels * number, lines, number), root=root)


@algorithm(REDUCE, "nccl_ring", requires="gpu")
def ring_reduce(
    p: int, root: int, nbytes: int, group: int = 8, channels: int = 2, segment: int = SLOT_BYTES
) -> Schedule:
    """Pass segments round several of NCCL's rings to the root and reduce them at each rank.

    Cost: (S + p - 2) (alpha + m/S (beta + gamma)) in one node, where all channels go round alike,
    S segments per channel
    Source: NCCL, src/device/reduce.h
    """
    number = count_segments(-(-nbytes // channels), segment)
    to_root = np.roll(_rotated_to(_ring_orders(p, group, channels), root), -1, axis=1)
    lines = _chain_hops(to_root, number, DST_OP_ARRIVING)
    return replace(pipelined_schedule(REDUCE, p, channels * number, lines, number), root=root)


@algorithm(ALLTOALL, "nccl_pairwise", requires="gpu")
@algorithm(ALLTOALLV, "nccl_pairwise", requires="gpu")
def pairwise_alltoall(p: int) -> Schedule:
    """Send to a rank and receive from another one in each step, as NCCL orders a group of them.

    NCCL goes from node to node, and begins a message as soon as a channel is free; this schedule
    goes from rank to rank and waits for each step.

    Cost: (p-1) alpha + (p-1)/p m beta
    Source: NCCL, p2pSchedule in src/init.cc
    """
    return alltoall.pairwise(p)


@algorithm(ALLREDUCE, "nccl_tree", requires="gpu")
def tree_allreduce(
    p: int, nbytes: int, group: int = 8, channels: int = 2, segment: int = SLOT_BYTES
) -> Schedule:
    """Reduce up NCCL's double binary tree of nodes and broadcast down, with a chain inside nodes.

    Even channels use one of the two trees, odd ones the other: inner nodes of one are leaves of the
    other. Segments on their way down share the links with later ones on their way up.

    Cost: at most (S + 2 D) (2 alpha + 2 m/S (2 beta + gamma)), S segments per channel, D hops from
    the root to the farthest rank, floor(log2 G) + g for G nodes of g ranks
    Source: P. Sanders, J. Speck, J. L. Traeff, Parallel Computing 35(12), 2009; NCCL,
    src/graph/trees.cc and src/device/all_reduce.h
    """
    levels, number = Hierarchy.of(p, group), count_segments(-(-nbytes // channels), segment)
    ways = []
    for channel in range(channels):
        between = trees.in_order_tree(len(levels.leader_roles), channel % 2)
        whole = levels.tree(between, lambda size: trees.chain(size, 1))
        rank_of = rank_of_role_on_channel(levels, channel)
        up = trees.reduction_hops(whole)
        both = concat_hops(up, trees.broadcast_hops(whole).delayed(up.n_rounds))
        ways.append(
            both._replace(
                src=rank_of[both.src],
                dst=rank_of[both.dst],
                first_chunk=both.first_chunk + channel * number,
            )
        )
    return pipelined_schedule(ALLREDUCE, p, channels * number, concat_hops(*ways), number)


def rank_of_role_on_channel(levels: Hierarchy, channel: int) -> IntArray:
    """Return the rank of each role when GPU number `channel` of each node leads it."""
    start, size = (
        np.repeat(part, levels.group_sizes) for part in (levels.leader_roles, levels.group_sizes)
    )
    rank: IntArray = start + (np.arange(levels.p) - start + channel) % size
    return rank
