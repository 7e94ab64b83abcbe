"""Expected times of NCCL 2.18 to 2.27 agree with hand arithmetic from its sources.

Each number has its origin in src/graph/tuning.cc of the tag of its release, `v2.18.1-1` for 2.18.1:
latencies are `baseLat` and hops times `hwLat`, bandwidths the channels of a system below, their
factors and caps of the table, and the part of the buffer that passes one link.
"""

from collections.abc import Mapping

import pytest

from tuner.core.collective import Collective
from tuner.machines import preset, with_gpu
from tuner.mpi_libraries import nccl
from tuner.mpi_libraries.nccl import RELEASES, AlgoProto, ChannelGraph, NcclSystem
from tuner.topology import Placement

ALLREDUCE, ALLGATHER = Collective.ALLREDUCE, Collective.ALLGATHER
UNTIL_2_27 = list(RELEASES)[: list(RELEASES).index("2.27.3") + 1]
LARGE = 1 << 34  # bytes; all factors for sizes are 1 there, and in LL and LL128 for a byte
NEVER = None  # not available

Expected = tuple[float, float] | None  # microseconds, and GB/s of the buffer
Case = tuple[NcclSystem, Collective, tuple[str, str], Mapping[str, Expected]]


def hopper(nodes: int, ppn: int = 8, compute_capability: int = 90) -> NcclSystem:
    """Return GPUs behind NVSwitches, with 12 rings on one node, on several one for each NIC."""
    alone = ChannelGraph(2, 24e9, 24e9)
    rings = alone if ppn == 1 else ChannelGraph(8, 45e9, 45e9)
    return NcclSystem(
        nodes=nodes,
        ppn=ppn,
        compute_capability=compute_capability,
        ring=ChannelGraph(12, 30e9, 30e9) if nodes == 1 else rings,
        tree=alone if ppn == 1 else ChannelGraph(8, 48e9, 45e9),
        head_channels=None if ppn == 1 else ChannelGraph(8, 40e9, 48e9 if nodes > 1 else 40e9),
        rings_on_nvlink=True,
        cpu_vendor="intel",
        nvswitch_reduction=True,
        switch_reduction=nodes > 1,
    )


ONE, FOUR, ALONE = hopper(1), hopper(4), hopper(4, ppn=1)
# Four GPUs with two rings of 30 GB/s, as LL is capped above them.
SLOW = NcclSystem(
    nodes=1,
    ppn=4,
    compute_capability=80,
    ring=ChannelGraph(2, 30e9, 30e9),
    tree=ChannelGraph(2, 30e9, 30e9),
    head_channels=None,
    rings_on_nvlink=True,
    cpu_vendor="intel",
)


def by_release(changes: Mapping[str, Expected]) -> dict[str, Expected]:
    """Return what each release expects, from the first of those that expect the same."""
    found, last = dict[str, Expected](), NEVER
    for version in UNTIL_2_27:
        last = changes.get(version, last)
        found[version] = last
    return found


CASES: dict[str, Case] = {
    # 14 hops inside a node and 4 between nodes; a channel has 33, then 36 GB/s at most
    "tree, Simple": (
        FOUR,
        ALLREDUCE,
        ("tree", "Simple"),
        {
            "2.18.1": (14 * 28 + 4 * 28, 8 * 33 / 2),
            "2.18.3": (14 * 4 + 4 * 14, 8 * 36 / 2),
            "2.19.1": (14 * 28 + 4 * 28, 8 * 36 / 2),
            "2.23.4": (8.4 + 14 * 4 + 4 * 14, 8 * 36 / 2),
        },
    ),
    # 15/16 of that, 29 GB/s at most from 2.18.3 on
    "tree, LL128": (
        FOUR,
        ALLREDUCE,
        ("tree", "LL128"),
        {
            "2.18.1": (14 + 14 * 1.25 + 4 * 8.5, 8 * 33 * 15 / 16 / 2),
            "2.18.3": (14 + 14 * 1.25 + 4 * 8.5, 8 * 29 / 2),
        },
    ),
    # a tree between single GPUs is a plain one, of 0.85 from 2.18.3 on
    "tree of single GPUs": (
        ALONE,
        ALLREDUCE,
        ("tree", "Simple"),
        {
            "2.18.1": (4 * 28, 2 * 24 * 0.92 / 2),
            "2.18.3": (4 * 14, 2 * 24 * 0.92 * 0.85 / 2),
            "2.19.1": (4 * 28, 2 * 24 * 0.92 * 0.85 / 2),
            "2.23.4": (8.4 + 4 * 14, 2 * 24 * 0.92 * 0.85 / 2),
        },
    ),
    # 62 hops, of which 8 are counted between nodes until 2.22, then 6
    "ring, LL128": (
        FOUR,
        ALLREDUCE,
        ("ring", "LL128"),
        {
            "2.18.1": (14 + 54 * 1.9 + 8 * 4.0, 8 * 36.7 * 32 / 62),
            "2.23.4": (14 + 56 * 1.9 + 6 * 4.0, 8 * 36.7 * 32 / 62),
        },
    ),
    "ring of single GPUs, LL128": (
        ALONE,
        ALLGATHER,
        ("ring", "LL128"),
        {
            "2.18.1": (14 + 3 * 4.0, 0.7 * 2 * 24 * 4 / 3),
            "2.23.4": (14 + 3 * 8.5, 0.92 * 2 * 24 * 4 / 3),
        },
    ),
    # of 6 hops 8 are counted between nodes until 2.22, and 2 that take back 1 us each; capped
    "ring of single GPUs, LL": (
        ALONE,
        ALLREDUCE,
        ("ring", "LL"),
        {
            "2.18.1": (6.6 - 2 * 1.0 + 8 * 2.7, 2 * 24 / 4 * 4 / 6),
            "2.21.5": (6.6 - 2 * 1.0 + 8 * 2.7, 20.4 * 4 / 6),
            "2.23.4": (6.6 + 6 * 5.0, 20.4 * 4 / 6),
        },
    ),
    # 12 rings of 30 GB/s carry more than the caps, 87.7 and 141 GB/s
    "ring, LL of one node": (
        ONE,
        ALLREDUCE,
        ("ring", "LL"),
        {"2.18.1": (6.6 + 14 * 0.6, 87.7 * 8 / 14), "2.21.5": (6.6 + 14 * 0.6, 141 * 8 / 14)},
    ),
    "slow ring, LL": (
        SLOW,
        ALLREDUCE,
        ("ring", "LL"),
        {"2.18.1": (6.6 + 6 * 0.6, 60 / 4 * 4 / 6), "2.21.5": (6.6 + 6 * 0.6, 60 / 2 * 4 / 6)},
    ),
    "slow ring, LL, allgather": (
        SLOW,
        ALLGATHER,
        ("ring", "LL"),
        {"2.18.1": (6.6 + 3 * 0.6, 60 / 3 * 4 / 3), "2.21.5": (6.6 + 3 * 0.6, 60 / 2 * 4 / 3)},
    ),
    # rings of an NVSwitch have one order: one hop counts
    "slow ring, LL, reduce": (
        SLOW,
        Collective.REDUCE,
        ("ring", "LL"),
        {"2.18.1": (6.6 + 0.6, 60 / 4), "2.21.5": (6.6 + 0.6, 60 / 2)},
    ),
    "slow ring, LL, broadcast": (
        SLOW,
        Collective.BCAST,
        ("ring", "LL"),
        {"2.18.1": (6.6 + 0.6, 60 / 3), "2.21.5": (6.6 + 0.6, 60 / 2)},
    ),
    "NVLS": (
        ONE,
        ALLREDUCE,
        ("nvls", "Simple"),
        {
            "2.18.1": (23, 8 * 40 * 0.75),
            "2.18.3": (23, 8 * 40 * 5 / 6),
            "2.21.5": (25, 8 * 40 * 5 / 6),
        },
    ),
    "NVLS, allgather": (
        ONE,
        ALLGATHER,
        ("nvls", "Simple"),
        {
            "2.18.1": NEVER,
            "2.19.1": (23, 8 * 40 * 5 / 6),
            "2.21.5": (25, 8 * 40 * 5 / 6),
            "2.23.4": (25, 8 * 40),
            "2.27.3": (25, 8 * 40 * 7 / 8),
        },
    ),
    # with SHARP; in 2.20 it is for one node
    "NVLS of several nodes": (
        FOUR,
        ALLREDUCE,
        ("nvls", "Simple"),
        {
            "2.18.1": (23 + 18, 8 * 48 * 0.75),
            "2.18.3": (23 + 18, 8 * 48 * 5 / 6),
            "2.19.1": (23 + 18, 8 * 40 * 5 / 6),
            "2.20.3": NEVER,
            "2.21.5": (25 + 18, 8 * 40 * 5 / 6),
        },
    ),
    # 3 hops each way between 4 nodes, from 2.19 on 2 levels
    "NVLSTree": (
        FOUR,
        ALLREDUCE,
        ("nvls_tree", "Simple"),
        {
            "2.18.1": (23 + 6 * 19, 8 * 48 * 0.7 * 4 / 6),
            "2.19.1": (23 + 4 * 14, 8 * 24 * 5 / 6),
            "2.20.3": NEVER,
            "2.21.5": (25 + 4 * 14, 8 * 24 * 5 / 6),
        },
    ),
    "PAT": (
        ALONE,
        ALLGATHER,
        ("pat", "Simple"),
        {
            "2.18.1": NEVER,
            "2.23.4": (8 + 2 * 14 / 3.5 + 4 * 2.8, 0.85 * 2 * 24),
            "2.24.3": (8 + 2 * 14 / 3.5 + 4 * 2.8, 0.75 * 2 * 24),
        },
    ),
    # 7 further GPUs; until 2.21 on the channels of the chain, whose speed is 48 and not 40 GB/s
    "CollNetDirect": (
        FOUR,
        ALLREDUCE,
        ("collnet_direct", "Simple"),
        {
            "2.18.1": (2 * 8.0 + 7 * 1.0 + 10.7, 8 * 48 * 0.85 / 2),
            "2.19.1": (2 * 3.7 + 7 * 0.8 + 31, 8 * 48 * 0.85 / 2),
            "2.22.3": (2 * 3.7 + 7 * 0.8 + 31, 8 * 40 * 0.85 / 2),
        },
    ),
    "CollNetChain": (
        FOUR,
        ALLREDUCE,
        ("collnet_chain", "Simple"),
        {"2.18.1": (14 * 4.75 + 14, 8 * 48 / 2), "2.19.1": (14 * 2.8 + 30, 8 * 48 / 2)},
    ),
    # Blackwell has the caps of Hopper until 2.24
    "LL of Blackwell": (
        hopper(1, compute_capability=100),
        ALLREDUCE,
        ("ring", "LL"),
        {
            "2.18.1": (6.6 + 14 * 0.6, 87.7 * 8 / 14),
            "2.21.5": (6.6 + 14 * 0.6, 141 * 8 / 14),
            "2.25.1": (6.6 + 14 * 0.6, 180 * 8 / 14),
        },
    ),
    "LL128 of B200": (
        hopper(1, compute_capability=100),
        ALLREDUCE,
        ("ring", "LL128"),
        {"2.18.1": NEVER, "2.25.1": (14 + 14 * 1.9, 0.92 * 360 * 8 / 14)},
    ),
    "LL128 of B300": (
        hopper(1, compute_capability=103),
        ALLREDUCE,
        ("ring", "LL128"),
        {"2.18.1": NEVER, "2.27.3": (14 + 14 * 1.9, 0.92 * 360 * 8 / 14)},
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("nbytes", [1, LARGE])
def test_releases_differ_where_their_sources_do(name: str, nbytes: int) -> None:
    system, collective, way, changes = CASES[name]
    for version, expected in by_release(changes).items():
        times = nccl.estimate_times(system, collective, nbytes, version)
        if expected is None:
            assert AlgoProto(*way) not in times, version
            continue
        latency, rate = expected
        time = 1e-6 * latency + nbytes / (1e9 * rate)
        assert times[AlgoProto(*way)] == pytest.approx(time, rel=1e-6), version


@pytest.mark.parametrize(
    ("library", "version"),
    [
        ("nccl 2.3.7", "2.4.8"),
        ("nccl 2.18.6", "2.18.3"),
        ("nccl 2.22.3", "2.22.3"),
        ("nccl 2.99", "2.32.3"),
        ("nccl", "2.32.3"),
        ("rccl 2.22.3", "2.32.3"),
    ],
)
def test_a_library_chooses_as_the_last_known_version(library: str, version: str) -> None:
    assert nccl.version_of(library) == version


@pytest.mark.parametrize(
    ("first", "nvls"), [("2.18.1", False), ("2.28.3", False), ("2.28.7", True), ("2.32.3", True)]
)
def test_nvls_of_two_gpus_came_with_2_28_7(first: str, nvls: bool) -> None:
    """ncclNvlsInit in src/transport/nvls.cc wants more than two GPUs before v2.28.7-1."""
    two = nccl.nccl_system_of(Placement.block(preset("dgx-h100", 1).topology, 2))
    assert (AlgoProto("nvls", "Simple") in nccl.estimate_times(two, ALLREDUCE, 8, first)) == nvls


def seen(name: str, nodes: int, ppn: int, version: str) -> NcclSystem:
    """Return what a version sees of a machine."""
    placement = Placement.block(preset(name, nodes).topology, ppn)
    return nccl.nccl_system_of(placement, release=RELEASES[version])


@pytest.mark.parametrize(("version", "speed"), [("2.18.3", 40e9), ("2.19.1", 50e9)])
def test_heads_of_six_gpus_have_the_speeds_that_a_release_tries(version: str, speed: float) -> None:
    """Six heads share 370.8 GB/s in seven parts, 53 GB/s; 50 GB/s were not tried before 2.19."""
    heads = seen("dgx-h100", 1, 6, version).head_channels
    assert heads is not None
    assert heads.bw_intra == speed


def test_blackwell_counts_as_hopper_before_2_25() -> None:
    """18 NVLinks of 20.6 GB/s have 12 channels of 30 GB/s, those of 40.1 16 of 45 GB/s."""
    eight = Placement.block(with_gpu(preset("dgx-h100", 1), "B200").topology, 8)
    before, after = (
        nccl.nccl_system_of(eight, release=RELEASES[one]).ring for one in ("2.24.3", "2.25.1")
    )
    assert before == ChannelGraph(12, 30e9, 30e9)
    assert after == ChannelGraph(16, 45e9, 45e9)


def test_nics_behind_nvlink_c2c_are_near_from_2_27_on() -> None:
    """PATH_P2C in src/graph/topo.h, by which LL128 crosses nodes, came with v2.27.3-1."""
    local = [seen("alps", 2, 4, one).nics_are_local for one in UNTIL_2_27]
    assert local == [False] * (len(UNTIL_2_27) - 1) + [True]


@pytest.mark.parametrize(
    ("name", "version", "rate"),
    [
        ("l40s", "2.25.1", 10e9 * 5 / 6),  # Sapphire Rapids; GPUs reach 5/6 through Intel's CPUs
        ("l40s", "2.26.2", 22e9 * 5 / 6),
        ("rtx-pro-6000", "2.18.3", 51e9),  # AMD's, PCIe 5.0
        ("rtx-pro-6000", "2.19.1", 16e9),
    ],
)
def test_a_ring_between_sockets_has_the_speed_that_a_release_knows(
    name: str, version: str, rate: float
) -> None:
    """SRP_QPI_BW and AMD_BW in src/graph/topo.h came with v2.26.2-1 and v2.19.1-1."""
    assert seen(name, 1, 8, version).ring.bw_intra == pytest.approx(rate, rel=1e-6)


def test_16_channels_were_searched_before_2_25() -> None:
    """MAXCHANNELS in src/include/device.h is 32 in v2.24.3-1 and 64 in v2.25.1-1, of which half."""
    assert [RELEASES[one].search.most for one in ("2.24.3", "2.25.1")] == [16, 32]


@pytest.mark.parametrize(
    ("nodes", "ppn", "collective", "nbytes", "chosen"),
    [
        (2, 8, ALLREDUCE, 8, {"2.18.1": "tree LL"}),
        # trees count the time of a chunk from 2.19 on; no NVLSTree in 2.20, a slower one after
        (
            2,
            8,
            ALLREDUCE,
            512 << 10,
            {"2.18.1": "tree LL128", "2.19.1": "nvls_tree Simple", "2.20.3": "tree LL128"},
        ),
        (
            2,
            8,
            ALLREDUCE,
            256 << 20,
            {"2.18.1": "nvls_tree Simple", "2.20.3": "ring Simple", "2.21.5": "nvls_tree Simple"},
        ),
        (1, 8, ALLREDUCE, 1 << 20, {"2.18.1": "nvls Simple", "2.21.5": "ring LL"}),
        (4, 1, ALLREDUCE, 8, {"2.18.1": "ring LL", "2.23.4": "tree LL"}),
        (4, 1, ALLGATHER, 1 << 20, {"2.18.1": "ring LL128", "2.23.4": "pat Simple"}),
    ],
)
def test_upgrades_change_the_choice_on_h100(
    nodes: int, ppn: int, collective: Collective, nbytes: int, chosen: Mapping[str, str]
) -> None:
    found, last = dict[str, str](), ""
    for version in UNTIL_2_27:
        of = seen("dgx-h100", nodes, ppn, version)
        choice = str(nccl.default_algo_proto(of, collective, nbytes, version))
        if choice != last:
            found[version] = last = choice
    assert found == chosen
