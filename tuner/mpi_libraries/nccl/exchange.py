"""Predict NCCL's all-to-all, which it makes of a send and a receive for each pair of ranks.

NCCL expects no time of these and has no algorithm to choose, only a protocol by the bytes for each
receiver. All messages are under way at once: a call takes its launch, a hop for each doubling of
the GPUs of a node, the copy of a rank's own part, and the time in which the links that carry most
pass their bytes: those between the GPUs of a node, its NICs, or those between switches. In LL each
message has one channel, half of whose threads send while the others receive, and in Simple one for
each part: a call takes the time of one part longer. Ranks of other nodes cost a hop of the network
and the posting of a message for each, as NCCL counts them.

What is not NCCL's is fitted to times of nccl-tests on one node of A100, H100 and B200, from 512
bytes to 512 MiB on 2, 4 and 8 GPUs (docs/experiments/0002-nccl-predictions.md).
"""

from __future__ import annotations

from math import log2
from typing import NamedTuple

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.mpi_libraries.nccl.constants import LL, NCCL_CHANNELS, PAIRWISE, SIMPLE, TREE, AlgoProto
from tuner.mpi_libraries.nccl.model_v2_30 import ll_cap, post_seconds
from tuner.mpi_libraries.nccl.releases import CURRENT
from tuner.mpi_libraries.nccl.system import NcclSystem

EXCHANGE_WAYS = (AlgoProto(PAIRWISE, LL), AlgoProto(PAIRWISE, SIMPLE))
LL_BYTES = 16 << 10  # for each receiver: NCCL_P2P_LL_THRESHOLD in src/enqueue.cc of 2.30
PART_BYTES = 64 << 10  # an eighth of a chunk, NCCL_P2P_NVL_CHUNKSIZE in src/init.cc
SENDING_THREADS = 0.5  # of a channel
# Fitted: of the rate that NCCL counts for all links of a GPU inside a node.
SHARE_OF_LINKS = 0.78
VISIBLE_COPY = 0.52  # fitted: of the copy of the own part, the rest of which the messages hide


class ExchangeLoad(NamedTuple):
    """The bytes of the busiest rank of an exchange, relative to blocks that are equally long.

    own         bytes of its block for itself
    inside      bytes that it sends to or receives from the others of its node, the larger ones
    between     the same for ranks of other nodes
    """

    own: float = 1.0
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
        p * float(own.max()),
        p * float((inside - own).max()) / max(1, ppn - 1),
        p * float(between.max()) / max(1, p - ppn),
    )


def exchange_way(p: int, nbytes: int) -> AlgoProto:
    """Return the protocol in which p ranks exchange `nbytes` of the whole buffer."""
    return AlgoProto(PAIRWISE, LL if nbytes <= p * LL_BYTES else SIMPLE)


def exchange_hops(system: NcclSystem) -> float:
    """Return how many hops inside a node a call takes as long as."""
    return log2(system.ppn)


def channel_bandwidths(system: NcclSystem, protocol: str) -> dict[str, float]:
    """Return the bytes of the buffer per second that one channel for each message lets through.

    In Simple messages have so many that they do not bound them.
    """
    if protocol == SIMPLE:
        return {}
    return {NCCL_CHANNELS: system.p * SENDING_THREADS * ll_cap(system) / system.ring.channels}


def exchange_latency(system: NcclSystem, protocol: str, nbytes: int) -> float:
    """Return the seconds that a call takes besides launch, hops inside a node, copy and bytes."""
    part = min(PART_BYTES, nbytes / system.p) if protocol == SIMPLE else 0.0
    of_part = part / (SENDING_THREADS * system.ring.bw_intra)
    if system.nodes == 1:
        return of_part
    between = CURRENT.latencies.net[AlgoProto(TREE, protocol)]
    return of_part + between + (system.p - system.ppn) * post_seconds(system, protocol)
