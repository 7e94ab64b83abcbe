"""Predict NCCL's all-to-all, which it makes of a send and a receive for each pair of ranks.

NCCL expects no time of these and has no algorithm to choose, only a protocol by the bytes for each
receiver. All messages are under way at once: a call takes its launch, a hop for each doubling of
the GPUs of a node, and the time in which what carries most passes its bytes: the links between the
GPUs of a node, its NICs, the links between switches, or the channels of a rank, which copy its own
block, too. In LL a message has one channel, half of whose threads send while the others receive;
releases that spread messages in LL send only the first part so. In Simple a call waits for the
first part of a message. On one node buffers have to fill, but for messages of one channel. Ranks of
other nodes cost a hop of the network and the posting of a message for each, as NCCL counts them.

What is not NCCL's is fitted to times of nccl-tests on one node, from 512 bytes to 512 MiB on 2, 4
and 8 GPUs (docs/experiments/0002-nccl-predictions.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.mpi_libraries.nccl.constants import (
    AMPERE,
    BLACKWELL,
    HOPPER,
    LL,
    PAIRWISE,
    SIMPLE,
    TREE,
    AlgoProto,
    table_row,
)
from tuner.mpi_libraries.nccl.fabric import WIRE_BYTES
from tuner.mpi_libraries.nccl.model_v2_30 import ll_cap, post_seconds
from tuner.mpi_libraries.nccl.releases import CURRENT, Release
from tuner.mpi_libraries.nccl.system import NcclSystem

EXCHANGE_WAYS = (AlgoProto(PAIRWISE, LL), AlgoProto(PAIRWISE, SIMPLE))
LL_BYTES = 16 << 10  # of a channel to each receiver: NCCL_P2P_LL_THRESHOLD in src/enqueue.cc
LL_PART_BYTES = 8 << 10  # smallest part of a message in LL on one node: addP2pToPlan, there
SENDING_THREADS = 0.5  # of a channel
# Fitted, as are all that follow: of the rate that NCCL counts for all links of a GPU in a node.
SHARE_OF_LINKS = 0.88
PART_BYTES = 40 << 10  # of the first part of a message in Simple
PART_SHARE = 0.195  # of the rate of a channel, at which that passes
MAX_EXCHANGE_FILL = 0.21  # of the time in which all bytes pass
EXCHANGE_FILL_BYTES = 5.4 * (1 << 20)  # of a buffer of equal blocks, in whose time buffers fill
# By compute capability: bytes per second that all channels of a rank pass, its own block included.
CHANNEL_RATES = {0: 330e9, AMPERE: 330e9, HOPPER: 580e9, BLACKWELL: 680e9}


class ExchangeLoad(NamedTuple):
    """The bytes of the busiest rank of an exchange, relative to blocks that are equally long.

    whole       bytes that it sends or receives in all, the larger ones
    inside      bytes that it sends to or receives from the others of its node, the larger ones
    between     the same for ranks of other nodes
    """

    whole: float = 1.0
    inside: float = 1.0
    between: float = 1.0


EVEN = ExchangeLoad()


def exchange_load(shares: FloatArray, node_of: IntArray) -> ExchangeLoad:
    """Return the load of blocks that are not equally long.

    shares      of the block for each rank (column) from each rank (row) in the mean row, (p, p)
    node_of     number of the node of each rank, (p,)
    """
    p, own = len(shares), np.diagonal(shares)
    inside = np.zeros((2, p))  # sent, received
    for node in np.unique(node_of):
        members = np.flatnonzero(node_of == node)
        block = shares[np.ix_(members, members)]
        inside[:, members] = block.sum(axis=1), block.sum(axis=0)
    between = np.array([shares.sum(axis=1), shares.sum(axis=0)]) - inside
    ppn = int(np.unique(node_of, return_counts=True)[1].max())
    return ExchangeLoad(
        float(max(shares.sum(axis=0).max(), shares.sum(axis=1).max())),
        p * float((inside - own).max()) / max(1, ppn - 1),
        p * float(between.max()) / max(1, p - ppn),
    )


def exchange_way(system: NcclSystem, nbytes: int, release: Release) -> AlgoProto:
    """Return the protocol in which a release exchanges `nbytes` of the whole buffer."""
    channels = _pair_channels(system) if release.spreads_ll else 1
    return AlgoProto(PAIRWISE, LL if nbytes <= system.p * channels * LL_BYTES else SIMPLE)


def _pair_channels(system: NcclSystem) -> int:
    """Return the most channels of a pair of ranks: ncclTopoGetNchannels in src/graph/paths.cc.

    Behind NVSwitches they are all that a rank opens, as a power of two, since NVLinks are more.
    Elsewhere they are two, or one where so many ranks of several nodes would have more than four
    messages in a channel. Several direct NVLinks between all GPUs of a node, as on Alps, and
    several NICs for each GPU give more, which is not counted.
    """
    if system.nodes == 1:
        behind_nvswitch = system.rings_on_nvlink and system.same_ring_order
        return 1 << (system.opened_channels - 1).bit_length() if behind_nvswitch else 2
    return 2 if system.p <= 2 * system.opened_channels else 1


def is_spread(system: NcclSystem, protocol: str, nbytes: int, release: Release) -> bool:
    """Return whether a message has several channels: in LL only where a pair of ranks has many.

    Between nodes the smallest part of a message in LL is as large as messages in LL are.
    """
    if protocol == SIMPLE:
        return True
    has_many = release.spreads_ll and _pair_channels(system) > 2
    return has_many and nbytes > system.p * LL_PART_BYTES


def exchange_hops(system: NcclSystem) -> float:
    """Return how many hops inside a node a call takes as long as."""
    return math.log2(system.ppn)


def channel_bandwidth(
    system: NcclSystem, protocol: str, spread: bool, load: ExchangeLoad = EVEN
) -> float:
    """Return the bytes of the buffer per second that the channels of the busiest rank let through.

    spread  whether a message has several channels, else one
    """
    if not spread:
        return system.p * _ll_rate(system)
    rate = table_row(CHANNEL_RATES, system.compute_capability) / WIRE_BYTES[protocol]
    return rate / load.whole if load.whole else math.inf


def _ll_rate(system: NcclSystem) -> float:
    """Return the bytes per second of a message in LL with one channel."""
    return SENDING_THREADS * ll_cap(system) / system.ring.channels


def exchange_latency(system: NcclSystem, protocol: str, spread: bool, nbytes: int) -> float:
    """Return the seconds that a call takes besides launch, hops inside a node and bytes."""
    if protocol == SIMPLE:
        of_part = min(PART_BYTES, nbytes / system.p) / (PART_SHARE * system.ring.bw_intra)
    else:
        of_part = LL_PART_BYTES / _ll_rate(system) if spread else 0.0
    if system.nodes == 1:
        return of_part
    between = CURRENT.latencies.net[AlgoProto(TREE, protocol)]
    return of_part + between + (system.p - system.ppn) * post_seconds(system, protocol)


def exchange_fill(transfer: float, even_bandwidth: float) -> float:
    """Return the seconds that filling the buffers takes on one node.

    transfer        seconds in which all bytes pass
    even_bandwidth  bytes of the buffer per second, of blocks that are equally long
    """
    return min(MAX_EXCHANGE_FILL * transfer, EXCHANGE_FILL_BYTES / even_bandwidth)
