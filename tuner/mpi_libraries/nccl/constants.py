"""The constants of NCCL's tuning tables, by version, in seconds and bytes per second.

Source: `src/graph/tuning.cc` (from 2.31 on `src/tuning/`), `search.cc` and `topo.h` of NVIDIA/nccl
(which write microseconds and GB/s). Latencies are of the releases named and those after them, caps
of 2.30.7 and of others from 2.18 on but for what `releases.py` says; the caps of 2.8.4 and the
speeds that the search tries from 2.27 on were read in copies of these files next to those releases.
Every row lists LL, LL128 and Simple; a row of one number is for an algorithm that has Simple alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

Row = TypeVar("Row")  # of a table by compute capability

RING, TREE, PAT = "ring", "tree", "pat"
COLLNET_DIRECT, COLLNET_CHAIN = "collnet_direct", "collnet_chain"
NVLS, NVLS_TREE = "nvls", "nvls_tree"
PAIRWISE = "pairwise"  # a send and a receive of every pair of ranks: an all-to-all
LL, LL128, SIMPLE = PROTOCOLS = ("LL", "LL128", "Simple")
NCCL_CHANNELS = "nccl"  # the bound that NCCL's own speeds and caps of channels set
US = 1e-6  # seconds
GB = 1e9  # bytes

# Compute capabilities that begin a table row.
VOLTA = 70
AMPERE = 80
ADA = 89  # L40S, without NVLink
HOPPER = 90
BLACKWELL = 100
BLACKWELL_PCIE = 120  # RTX PRO 6000, without NVLink
AMD, INTEL, POWER, ARM = "amd", "intel", "power", "arm"
X86 = (AMD, INTEL)


@dataclass(frozen=True)
class AlgoProto:
    """An algorithm with a protocol, the pair that NCCL chooses."""

    algorithm: str
    protocol: str

    def __str__(self) -> str:
        return f"{self.algorithm} {self.protocol}"


Latencies = Mapping[AlgoProto, float]


def numbers(text: str) -> tuple[float, ...]:
    """Return the numbers of a text that spaces separate."""
    return tuple(map(float, text.split()))


Rows = Mapping[str, tuple[float, ...]]  # microseconds by algorithm


def _latencies(rows: Rows) -> Latencies:
    return {
        AlgoProto(algorithm, protocol): number * US
        for algorithm, numbers in rows.items()
        for protocol, number in zip(PROTOCOLS[-len(numbers) :], numbers, strict=True)
    }


@dataclass(frozen=True)
class LatencyTable:
    """Latencies of one version: the base of a call, and one hop on NVLink, PCIe and the network."""

    base: Latencies
    nvlink: Latencies
    pci: Latencies
    net: Latencies

    def but(self, **changed: Rows) -> LatencyTable:
        """Return the table with some rows replaced, by what has them."""
        return replace(
            self,
            **{name: {**getattr(self, name), **_latencies(rows)} for name, rows in changed.items()},
        )


LATENCY_TABLES = {
    "2.5.6": LatencyTable(
        base=_latencies({TREE: (4.4, 4.4, 0), RING: (3.6, 3.6, 8.4)}),
        nvlink=_latencies({TREE: (0.5, 1.9, 28), RING: (0.4, 2.5, 5.7)}),
        pci=_latencies({TREE: (1.0, 1.9, 28), RING: (1.0, 2.5, 5.7)}),
        net=_latencies({TREE: (5.0, 7.5, 50), RING: (0.9, 2.5, 6.6)}),
    ),
    "2.8.4": LatencyTable(
        base=_latencies({TREE: (4.4, 4.4, 0), RING: (3.6, 10.0, 8.4)}),
        nvlink=_latencies({TREE: (0.52, 1.25, 28), RING: (0.47, 1.9, 3.4)}),
        pci=_latencies({TREE: (1.0, 1.9, 28), RING: (1.0, 2.5, 5.7)}),
        net=_latencies({TREE: (5.0, 8.5, 28), RING: (2.7, 4.0, 9.6)}),
    ),
    "2.30.7": LatencyTable(
        base=_latencies(
            {
                TREE: (6.8, 14.0, 8.4),
                RING: (6.6, 14.0, 8.4),
                PAT: (8.0,),
                COLLNET_DIRECT: (0,),
                COLLNET_CHAIN: (0,),
                NVLS: (0,),
                NVLS_TREE: (0,),
            }
        ),
        nvlink=_latencies(
            {
                TREE: (0.6, 1.25, 4.0),
                RING: (0.6, 1.9, 3.4),
                PAT: (4.0,),
                COLLNET_DIRECT: (3.7,),
                COLLNET_CHAIN: (2.8,),
                NVLS: (25,),
                NVLS_TREE: (25,),
            }
        ),
        pci=_latencies(
            {
                TREE: (1.0, 1.9, 4.0),
                RING: (1.0, 2.5, 5.7),
                PAT: (4.0,),
                COLLNET_DIRECT: (3.7,),
                COLLNET_CHAIN: (2.8,),
                NVLS: (0,),
                NVLS_TREE: (0,),
            }
        ),
        net=_latencies(
            {
                TREE: (5.0, 8.5, 14),
                RING: (2.7, 4.0, 14.0),
                PAT: (14,),
                COLLNET_DIRECT: (31,),
                COLLNET_CHAIN: (30,),
                NVLS: (18,),
            }
        ),
    ),
}
# v2.21.5-1 (the same in v2.22.3-1; those of 2.30.7 hold from v2.23.4-1 on), v2.19.1-1 (and
# v2.20.3-1), v2.18.1-1, v2.18.3-1 (to v2.18.6-1): src/graph/tuning.cc, where Simple of a tree is
# the time of a hop or that of a chunk of 256 KiB, 28 us
LATENCY_TABLES["2.21.5"] = LATENCY_TABLES["2.30.7"].but(
    base={TREE: (6.8, 14.0, 0)},
    nvlink={TREE: (0.6, 1.25, 28)},
    pci={TREE: (1.0, 1.9, 28)},
    net={TREE: (5.0, 8.5, 28)},
)
LATENCY_TABLES["2.19.1"] = LATENCY_TABLES["2.21.5"].but(nvlink={NVLS: (23,), NVLS_TREE: (23,)})
LATENCY_TABLES["2.18.1"] = LATENCY_TABLES["2.19.1"].but(
    base={NVLS: (23,), NVLS_TREE: (23,)},
    nvlink={COLLNET_DIRECT: (8,), COLLNET_CHAIN: (4.75,), NVLS: (0,), NVLS_TREE: (0,)},
    pci={COLLNET_DIRECT: (8,), COLLNET_CHAIN: (8,)},
    net={COLLNET_DIRECT: (10.7,), COLLNET_CHAIN: (14,)},
)
LATENCY_TABLES["2.18.3"] = LATENCY_TABLES["2.18.1"].but(
    nvlink={TREE: (0.6, 1.25, 4)}, pci={TREE: (1.0, 1.9, 6)}, net={TREE: (5.0, 8.5, 14)}
)

Caps = tuple[float, float, float]  # GB/s on one, two and more nodes; per channel except for LL

# v2.30.7; those of Blackwell and exceptions of Hopper are in releases.py
RING_LL128_CAP = {VOLTA: (20.0, 20.0, 20.0), AMPERE: (20.0, 20.0, 20.0), HOPPER: (36.7, 36.7, 36.7)}
TREE_LL128_CAP = {VOLTA: (20.0, 20.0, 20.0), AMPERE: (20.0, 20.0, 20.0), HOPPER: (36.7, 36.7, 29.0)}
TREE_CAP = {VOLTA: (26.5, 18.5, 10.0), AMPERE: (24.0, 23.6, 17.8), HOPPER: (38.7, 41.4, 36.0)}
NVLS_TREE_CAP = {VOLTA: (26.5, 18.5, 10.0), AMPERE: (24.0, 23.6, 17.8), HOPPER: (0.0, 57.7, 45.5)}
LL_CAP = {
    VOLTA: (39.0, 39.0, 20.4),
    AMPERE: (87.7, 22.5, 19.0),
    HOPPER: (141.0, 45.0, 35.0),
    BLACKWELL: (282.0, 90.0, 70.0),
}
# In predictions GB/s of a channel in LL, the cap of Blackwell for each of its 32. NCCL's caps of
# Ampere and Hopper are below half of what their links carry, 120 and 180 GB/s, which is what was
# measured there.
LL_CHANNEL = LL_CAP[BLACKWELL][0] / 32
LL_CAP_ROW_OF_CPU = {AMD: AMPERE}  # row by the CPU's vendor on several nodes; Volta's for others
NVLS_EFFICIENCY = {VOLTA: 0.0, AMPERE: 0.0, HOPPER: 0.85, BLACKWELL: 0.74}
NET_OVERHEAD_S = {AMD: 2 * US}  # to post one message; 1 us for others; three times for Simple
MAX_NVLS_RANKS = 32  # in one NVSwitch domain, for allgather and reduce-scatter
LL_THREADS = 512  # of a channel at most: NCCL_LL_MAX_NTHREADS in src/include/device.h
LL_THREAD_BYTES = 8  # of a rank, for each: NCCL_LL_THREAD_THRESHOLD in src/include/comm.h

# The plateau of rings in Simple: factor of their latency once messages fill the channels.
PLATEAU = 1.4
PLATEAU_BEFORE_AMPERE = 1.9
# On one node of Blackwell from 2.32 on: by how much the factor falls once a rank has 512 KiB for
# each channel, from 256 KiB on, and what a hop leaves of the way to it is this over (PLATEAU - 1).
PLATEAU_FALL = 0.1
PLATEAU_BYTES = 256 << 10

# Caps of LL128 rings in GB/s: per channel in v2.8.4, of all channels together in v2.5.6
RING_LL128_284 = {
    "bcast": 18.8,
    "reduce": 12.0,
    "allgather": 18.3,
    "reduce_scatter": 15.2,
    "allreduce": 16.7,
}
RING_LL128_256 = {
    "bcast": 113.0,
    "reduce": 72.0,
    "allgather": 110.0,
    "reduce_scatter": 91.0,
    "allreduce": 100.0,
}

# Fraction of a tree's bandwidth that a message of 64 B, 128 B, 256 B, ... reaches: powers of two.
TREE_CORRECTION_2307 = {
    LL: numbers("1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1"),
    LL128: numbers("1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1"),
    SIMPLE: numbers(".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9"),
}
NVLS_TREE_CORRECTION = (*TREE_CORRECTION_2307[SIMPLE], 0.9)
TREE_CORRECTION_284 = {
    LL: numbers("1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1"),
    LL128: numbers("1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .5 .6 .6 .7 .7 .8 .9 .9 1"),
    SIMPLE: numbers(".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .5 .5 .6 .6 .7 .8 .9"),
}

# topo.h; its values for NVLink and PCIe are in tuner.topology.readers.node_builder
NIC_BANDWIDTH_SHARE = 12 / 12.5  # of a NIC's nominal bandwidth: a 100 Gb/s NIC has 12 GB/s
NIC_RATES_GBIT_S = (10, 25, 40, 56, 100, 200, 400, 800)  # line rates of ports on the market
INTEL_PEER_SHARE = 5 / 6  # fraction of the path's bandwidth for GPUs behind an Intel CPU
# Between two CPUs, by a part of the product's name, else by vendor; that E5 is Broadwell or older,
# which NCCL does not distinguish, is our reading of Intel's names.
SOCKET_BANDWIDTH_GB_S = {
    "E5-": 6.0,
    "Broadwell": 6.0,
    "Sapphire Rapids": 22.0,
    "Platinum 84": 22.0,
    INTEL: 10.0,
    AMD: 16.0,
    ARM: 6.0,
    POWER: 32.0,
}

# search.cc: GB/s per channel that the search tries, from the first compute capability on
INTRA_NODE_SPEEDS_GB_S = {
    0: (40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0),
    HOPPER: (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0),
    BLACKWELL: (90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0),
}
INTER_NODE_SPEEDS_GB_S = {
    0: numbers(
        "48.0 30.0 28.0 24.0 20.0 18.0 15.0 12.0 10.0 9.0 7.0 6.0 5.0 4.0 3.0 2.4 1.2 .24 .12"
    ),
    HOPPER: numbers(
        "48.0 45.0 42.0 40.0 30.0 24.0 22.0 20.0 17.5 15.0 12.0 6.0 3.0 2.4 1.2 .24 .12"
    ),
    BLACKWELL: numbers(
        "96.0 48.0 45.1 42.0 40.0 30.0 24.0 22.0 20.0 17.5 15.0 12.0 6.0 3.0 2.4 1.2 .24 .12"
    ),
}
MAX_SEARCH_CHANNELS = 32  # largest number of channels searched; each is doubled afterwards


def table_row(table: Mapping[int, Row], compute_capability: int) -> Row:
    """Return the row of a table for a compute capability: the last that begins at or below it."""
    fitting = [first for first in table if first <= compute_capability]
    return table[max(fitting) if fitting else min(table)]
