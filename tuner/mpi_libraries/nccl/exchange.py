"""Predict NCCL's all-to-all, which it makes of a send and a receive for each pair of ranks.

NCCL expects no time of these and has no algorithm to choose, only a protocol by the bytes for each
receiver. All messages are under way at once: a call takes its launch, a hop for each doubling of
the GPUs of a node, and the time in which what carries most passes its bytes: the links between the
GPUs of a node, its NICs, the links between switches, or the channels of a rank, which copy its own
block, too. In LL a small message has one channel, half of whose threads send while the others
receive. In Simple a call waits for the first part of a message, and on one node for its buffers to
fill. Ranks of other nodes cost a hop of the network and the posting of a message for each, as NCCL
counts them.

What is not NCCL's is fitted to times of nccl-tests on one node, from 512 bytes to 512 MiB on 2, 4
and 8 GPUs (docs/experiments/0002-nccl-predictions.md).
"""

from __future__ import annotations

from math import log2
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
# Channels of a pair of ranks: ncclTopoGetNchannels in src/graph/paths.cc. Over NVLink they are two
# for each link, as a power of two, and no more than a rank has.
NVLINK_CHANNELS = 32
OTHER_CHANNELS = 2
SENDING_THREADS = 0.5  # of a channel
# Fitted, as are all that follow: of the rate that NCCL counts for all links of a GPU in a node.
SHARE_OF_LINKS = 0.88
PART_BYTES = 40 << 10  # of the first part of a message
PART_SHARE = 0.195  # of the rate of a channel, at which that passes
MAX_FILL = 0.21  # of the time in which all bytes pass
FILL_BYTES = 5.4 * (1 << 20)  # of a buffer whose blocks are equally long, in whose time they fill
# By compute capability: bytes per second that all channels of a rank pass, its own block included.
CHANNEL_RATES = {0: 330e9, AMPERE: 330e9, HOPPER: 580e9, BLACKWELL: 680e9}


class ExchangeLoad(NamedTuple):
    """The bytes of the busiest rank of an exchange, relative to blocks that are equally long.

    own         bytes of its block for itself
    inside      bytes that it sends to or receives from the others of its node, the larger ones
    between     the same for ranks of other nodes
    """

    own: float = 1.0
    inside: float = 1.0
    between: float = 1.0

    def in_blocks(self, system: NcclSystem) -> float:
        """Return all bytes, in blocks that are equally long."""
        others = self.inside * (system.ppn - 1) + self.between * (system.p - system.ppn)
        return self.own + others


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
        p * float(own.max()),
        p * float((inside - own).max()) / max(1, ppn - 1),
        p * float(between.max()) / max(1, p - ppn),
    )


def exchange_way(system: NcclSystem, nbytes: int, release: Release) -> AlgoProto:
    """Return the protocol in which a release exchanges `nbytes` of the whole buffer."""
    near = system.nodes == 1 and system.rings_on_nvlink
    channels = (NVLINK_CHANNELS if near else OTHER_CHANNELS) if release.spreads_ll else 1
    return AlgoProto(PAIRWISE, LL if nbytes <= system.p * channels * LL_BYTES else SIMPLE)


def exchange_hops(system: NcclSystem) -> float:
    """Return how many hops inside a node a call takes as long as."""
    return log2(system.ppn)


def channel_bandwidth(
    system: NcclSystem, protocol: str, nbytes: int, load: ExchangeLoad = EVEN
) -> float:
    """Return the bytes of the buffer per second that the channels of the busiest rank let through.

    Small messages in LL have one channel each, others all that the rank has.
    """
    if protocol == LL and nbytes <= system.p * LL_BYTES:
        return system.p * SENDING_THREADS * ll_cap(system) / system.ring.channels
    rate = table_row(CHANNEL_RATES, system.compute_capability)
    return rate * system.p / load.in_blocks(system) / WIRE_BYTES[protocol]


def exchange_latency(system: NcclSystem, protocol: str, nbytes: int) -> float:
    """Return the seconds that a call takes besides launch, hops inside a node and bytes."""
    part = min(PART_BYTES, nbytes / system.p) if protocol == SIMPLE else 0.0
    of_part = part / (PART_SHARE * system.ring.bw_intra)
    if system.nodes == 1:
        return of_part
    between = CURRENT.latencies.net[AlgoProto(TREE, protocol)]
    return of_part + between + (system.p - system.ppn) * post_seconds(system, protocol)


def exchange_fill(
    system: NcclSystem, protocol: str, transfer: float, even_bandwidth: float
) -> float:
    """Return the seconds that filling the buffers takes.

    transfer        seconds in which all bytes pass
    even_bandwidth  bytes of the buffer per second, of blocks that are equally long
    """
    is_filled = protocol == SIMPLE and system.nodes == 1
    return min(MAX_FILL * transfer, FILL_BYTES / even_bandwidth) if is_filled else 0.0
