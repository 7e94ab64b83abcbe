"""The expectations of NCCL's releases from 2.18 on, where they differ: `RELEASES`.

Source: NVIDIA/nccl, by tag: `src/graph/tuning.cc` (from 2.31 on `src/tuning/`) where no other file
is named, and of 2.31.2 and 2.32.3 also their libraries. Not stated, as no time depends on it: 20.0
instead of 20.6 GB/s of an NVLink of Hopper before v2.20.3-1 and 40.0 instead of 40.1 of Blackwell
before v2.27.7-1, which leave room for the same channels; and that trees count 0.9 of their
bandwidth below 64 bytes before v2.22.3-1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl.constants import (
    AMD,
    ARM,
    BLACKWELL,
    HOPPER,
    INTEL,
    INTER_NODE_SPEEDS_GB_S,
    INTRA_NODE_SPEEDS_GB_S,
    LATENCY_TABLES,
    LL_CAP,
    MAX_SEARCH_CHANNELS,
    POWER,
    SOCKET_BANDWIDTH_GB_S,
    TREE_CAP,
    TREE_LL128_CAP,
    Caps,
    LatencyTable,
    numbers,
)


@dataclass(frozen=True, eq=False)
class ChannelSearch:
    """The search of a release for channels.

    sockets         GB/s between two CPUs, as SOCKET_BANDWIDTH_GB_S
    inside, between GB/s of a channel that it tries, as INTRA_NODE_SPEEDS_GB_S
    most            channels at most
    """

    sockets: Mapping[str, float]
    inside: Mapping[int, tuple[float, ...]]
    between: Mapping[int, tuple[float, ...]]
    most: int

    def tries(self, first: int, inside: str, between: str) -> ChannelSearch:
        """Return the search with other speeds of the GPUs from a compute capability on."""
        return replace(
            self,
            inside={**self.inside, first: numbers(inside)},
            between={**self.between, first: numbers(between)},
        )


NEWEST_SEARCH = ChannelSearch(
    SOCKET_BANDWIDTH_GB_S, INTRA_NODE_SPEEDS_GB_S, INTER_NODE_SPEEDS_GB_S, MAX_SEARCH_CHANNELS
)


@dataclass(frozen=True, eq=False)  # one record of each release, which caches know it by
class Release:
    """The expectations of a release from 2.18 on; the defaults are those of the newest.

    newest              the last compute capability of its tables; later GPUs count as that
    ll128_gpus          compute capabilities with LL128; none named: all from Volta on
    search              how it searches for channels
    c2c_is_near         whether LL128 reaches NICs of a CPU that NVLink-C2C joins to the GPU
    latencies           of a call and its hops
    closes_rings        whether rings of allreduces have two hops more of those between nodes
    exposes_hops        whether hops of rings between nodes of one GPU each take as long as a tree's
    halves_ll           whether rings in LL get half of their channels, else a quarter; a third on
                        one node where nothing is reduced, or blocks are
    ll_on_hopper        cap of LL on one node of Hopper, GB/s
    ll128_alone         share of LL128 in rings between nodes of one GPU each
    tree_alone          share of trees between such nodes
    tree_on_hopper, tree_ll128_on_hopper
                        caps of Hopper in trees of more than two nodes
    ring_ll128, tree_ll128, tree, nvls_tree
                        caps of Blackwell
    takes_slower_speed  whether trees of Blackwell get the lower of a channel's two speeds
    pat                 share of the channels that PAT gets; 0 where there is none
    collnet_heads       whether CollNetDirect has channels with a head, else those of trees
    collnet_arity       microseconds of CollNetDirect for each further GPU of a node
    spreads_ll          whether messages of an all-to-all in LL have all channels of their pair of
                        ranks, else one
    nvls_gpus           fewest GPUs of a node for NVLS
    nvls_on_several     whether NVLS and NVLSTree run on several nodes
    has_efficiency      whether NVLS gets NVLS_EFFICIENCY of its channels, else one of the next two
    nvls_share          share of the channels in an allreduce
    nvls_blocks_share   share in allgathers and reduce-scatters; 0 where NVLS has none
    nvls_spares_own     whether they move only the blocks of other ranks
    nvls_tree_hop       microseconds of a hop of NVLSTree between nodes
    chains_nvls_tree    whether these hops pass all nodes, not levels of a tree
    corrects_nvls_tree  whether NVLSTree reaches less at some sizes, on Blackwell behind x86 CPUs
    plateau             collectives of which rings in Simple wait longer on one node of Blackwell
    grades_plateau      whether that depends on the hops and bytes
    """

    newest: int = BLACKWELL
    ll128_gpus: tuple[int, ...] = ()
    search: ChannelSearch = NEWEST_SEARCH
    c2c_is_near: bool = True
    latencies: LatencyTable = LATENCY_TABLES["2.30.7"]
    closes_rings: bool = False
    exposes_hops: bool = True
    halves_ll: bool = True
    ll_on_hopper: float = LL_CAP[HOPPER][0]
    ll128_alone: float = 0.92
    tree_alone: float = 0.85
    tree_on_hopper: float = TREE_CAP[HOPPER][2]
    tree_ll128_on_hopper: float = TREE_LL128_CAP[HOPPER][2]
    ring_ll128: Caps = (40.0, 40.0, 40.0)
    tree_ll128: Caps = (55.6, 36.7, 20.0)
    tree: Caps = (70.0, 42.8, 24.0)
    nvls_tree: Caps = (0.0, 96.0, 80.0)
    takes_slower_speed: bool = True
    pat: float = 0.75
    collnet_heads: bool = True
    collnet_arity: float = 0.8
    spreads_ll: bool = False
    nvls_gpus: int = 2
    nvls_on_several: bool = True
    has_efficiency: bool = True
    nvls_share: float = 5 / 6
    nvls_blocks_share: float = 1.0
    nvls_spares_own: bool = True
    nvls_tree_hop: float = 20.9
    chains_nvls_tree: bool = False
    corrects_nvls_tree: bool = True
    plateau: tuple[Collective, ...] = (
        Collective.ALLREDUCE,
        Collective.ALLGATHER,
        Collective.REDUCE_SCATTER,
    )
    grades_plateau: bool = True


_2_31 = Release(
    tree_ll128=(55.6, 31.67, 20.0),
    plateau=(Collective.ALLGATHER, Collective.REDUCE_SCATTER),
    grades_plateau=False,
)
_2_30 = replace(_2_31, takes_slower_speed=False, plateau=())
_2_29 = replace(_2_30, nvls_tree=(0.0, 96.0, 43.8))
# v2.28.9-1: thresholdLL in src/enqueue.cc, new in v2.22.3-1 and gone in v2.29.2-1
_2_28_9 = replace(_2_29, corrects_nvls_tree=False, ring_ll128=(73.4, 34.6, 73.4), spreads_ll=True)
# v2.28.7-1: two GPUs are enough for NVLS (ncclNvlsInit in src/transport/nvls.cc)
_2_28_7 = replace(_2_28_9, nvls_tree=(0.0, 96.0, 43.1), nvls_tree_hop=14.0)
_2_28_3 = replace(_2_28_7, ring_ll128=(73.4, 73.4, 73.4), nvls_gpus=3)
_2_27 = replace(
    _2_28_3, tree_ll128=(73.4, 73.4, 58.0), tree=(77.4, 82.8, 72.0), has_efficiency=False
)
# v2.26.2-1: PATH_P2C of src/graph/topo.h is new in v2.27.3-1; speeds of Blackwell in
# src/graph/search.cc, as in v2.25.1-1
_2_26 = replace(
    _2_27,
    ll128_gpus=(70, 80, 90, 100, 120),
    c2c_is_near=False,
    nvls_spares_own=False,
    search=NEWEST_SEARCH.tries(
        BLACKWELL,
        "90 80 70 60 50 40 30 24 20 19",
        "48 45 42 40 30 24 22 20 17.5 15 12 6 3 2.4 1.2 .24 .12",
    ),
)
# v2.25.1-1: QPI_BW and others of src/graph/topo.h
_SOCKETS_2_25 = {"E5-": 6.0, "Broadwell": 6.0, INTEL: 10.0, AMD: 16.0, ARM: 6.0, POWER: 32.0}
_2_25 = replace(_2_26, search=replace(_2_26.search, sockets=_SOCKETS_2_25))
# v2.24.3-1: no rows of Blackwell; MAXCHANNELS / 2 of src/include/device.h
_2_24 = replace(
    _2_25, newest=HOPPER, ll128_gpus=(70, 80, 90), search=replace(_2_25.search, most=16)
)
_2_23 = replace(_2_24, pat=0.85)
_2_22 = replace(
    _2_23,
    latencies=LATENCY_TABLES["2.21.5"],
    closes_rings=True,
    exposes_hops=False,
    ll128_alone=0.7,
    pat=0.0,
    nvls_blocks_share=5 / 6,
)
# v2.22.3-1: NCCL_TOPO_PATTERN_COLLNET_DIRECT in src/init.cc, before it the graph of the chain
_2_21 = replace(_2_22, collnet_heads=False, spreads_ll=False)
# v2.20.3-1: ncclNvlsInit in src/transport/nvls.cc wants one node; 11 GB/s in src/graph/search.cc is
# new in v2.21.5-1
_2_20 = replace(
    _2_21,
    latencies=LATENCY_TABLES["2.19.1"],
    halves_ll=False,
    ll_on_hopper=87.7,
    nvls_on_several=False,
    search=_2_21.search.tries(
        HOPPER,
        "60 50 40 30 24 20 15 12 6 3",
        "48 45 42 40 30 24 22 20 17.5 15 12 6 3 2.4 1.2 .24 .12",
    ),
)
_2_19 = replace(_2_20, nvls_on_several=True)
# v2.18.3-1 to v2.18.6-1: speeds in src/graph/search.cc; LOC_BW between AMD's CPUs in
# src/graph/topo.cc
_2_18_3 = replace(
    _2_19,
    latencies=LATENCY_TABLES["2.18.3"],
    collnet_arity=1.0,
    nvls_blocks_share=0.0,
    nvls_tree_hop=19.0,
    chains_nvls_tree=True,
    search=replace(_2_19.search, sockets={**_SOCKETS_2_25, AMD: 5000.0}).tries(
        HOPPER, "60 40 30 24 20 15 12 6 3", "48 45 42 40 30 24 20 17.5 15 12 6 3 2.4 1.2 .24 .12"
    ),
)
_2_18_1 = replace(
    _2_18_3,
    latencies=LATENCY_TABLES["2.18.1"],
    tree_alone=1.0,
    tree_on_hopper=33.0,
    tree_ll128_on_hopper=36.7,
    nvls_share=0.75,
    search=_2_18_3.search.tries(
        HOPPER, "60 40 30 24 20 15 12 6 3", "48 45 42 40 30 24 15 12 6 3 2.4 1.2 .24 .12"
    ),
)
# The first of those that expect the same.
RELEASES = {
    "2.18.1": _2_18_1,
    "2.18.3": _2_18_3,
    "2.19.1": _2_19,
    "2.20.3": _2_20,
    "2.21.5": _2_21,
    "2.22.3": _2_22,
    "2.23.4": _2_23,
    "2.24.3": _2_24,
    "2.25.1": _2_25,
    "2.26.2": _2_26,
    "2.27.3": _2_27,
    "2.28.3": _2_28_3,
    "2.28.7": _2_28_7,
    "2.28.9": _2_28_9,
    "2.29.2": replace(_2_29, ring_ll128=(34.5, 34.6, 34.5)),
    "2.29.7": _2_29,
    "2.30.3": _2_30,
    "2.31.2": _2_31,
    "2.32.3": Release(),
}
CURRENT_VERSION = "2.32.3"
CURRENT = RELEASES[CURRENT_VERSION]
FIRST_COMPARED = "2.27.3"  # the first with measured times that predictions were compared with
