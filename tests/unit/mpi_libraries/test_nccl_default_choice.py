"""NCCL's own estimates and choice, on machines of which its published numbers are known."""

from dataclasses import replace

import pytest

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.machines import preset, with_gpu
from tuner.mpi_libraries import nccl
from tuner.mpi_libraries.nccl import RELEASES, AlgoProto, ChannelGraph, NcclSystem, model_v2_4
from tuner.mpi_libraries.nccl.system import best_channels, double_channels
from tuner.topology import Link, Node, Placement, Topology

ALLREDUCE, ALLGATHER, BCAST = Collective.ALLREDUCE, Collective.ALLGATHER, Collective.BCAST
RING, TREE = AlgoProto("ring", "Simple"), AlgoProto("tree", "Simple")
GIB = 1 << 30
FROM_2_27 = list(RELEASES)[list(RELEASES).index("2.27.3") :]


def fleet(name: str, nodes: int, ppn: int, gpu: str = "", collnet: bool = False) -> NcclSystem:
    machine = with_gpu(preset(name, nodes), gpu) if gpu else preset(name, nodes)
    return nccl.nccl_system_of(Placement.block(machine.topology, ppn), collnet)


def busbw(of: NcclSystem, algorithm: str, nbytes: int = 16 * GIB) -> float:
    """GB/s of an allreduce by the algorithm's best protocol."""
    times = nccl.estimate_times(of, ALLREDUCE, nbytes)
    shortest = min(time for way, time in times.items() if way.algorithm == algorithm)
    return nbytes * 2 * (of.p - 1) / of.p / shortest / 1e9


@pytest.mark.parametrize(
    ("gpus", "two", "four"), [(24, 2.6, 5.3), (96, 15, 29), (384, 66, 131), (1536, 272, 544)]
)
def test_version_2_4_changes_from_tree_to_ring_where_it_is_known_to(
    gpus: int, two: float, four: float
) -> None:
    summit = fleet("summit", gpus // 6, 6)
    for channels, megabytes in ((2, two), (4, four)):
        assert model_v2_4.crossover_bytes(gpus // 6, 6, channels) / 1e6 == pytest.approx(
            megabytes, rel=0.03
        )
        of = replace(summit, ring=replace(summit.ring, channels=channels))
        for factor, algorithm in ((0.96, "tree"), (1.04, "ring")):
            nbytes = int(factor * megabytes * 1e6)
            assert nccl.default_algo_proto(of, ALLREDUCE, nbytes, "2.4.8").algorithm == algorithm


def test_version_2_4_on_a_cluster_without_nvlink() -> None:
    ri2 = fleet("ri2", 16, 1)
    for nbytes, algorithm in ((299_000, "tree"), (301_000, "ring")):
        assert nccl.default_algo_proto(ri2, ALLREDUCE, nbytes, "2.4.8").algorithm == algorithm


def test_version_2_4_never_takes_a_tree_on_one_node_and_its_lines_meet_at_the_threshold() -> None:
    one = fleet("dgx-1v", 1, 8)
    assert nccl.default_algo_proto(one, ALLREDUCE, 8, "2.4.8").algorithm == "ring"
    assert model_v2_4.crossover_bytes(2, 8, 4) == float(
        "inf"
    )  # the tree is doubled at exactly two nodes
    limit = model_v2_4.crossover_bytes(16, 6, 2)
    times = nccl.estimate_times(fleet("summit", 16, 6), ALLREDUCE, int(limit), "2.4.8")
    assert times[RING] == pytest.approx(times[TREE], rel=1e-6)


def test_nvls_tree_is_about_twice_a_ring_at_exactly_two_nodes() -> None:
    """With speeds inside and between nodes apart; coupled as in search.cc it would be 1.3."""
    ratios = {
        nodes: busbw(of, "nvls_tree") / busbw(of, "ring")
        for nodes in (2, 4, 16)
        for of in [fleet("dgx-h100", nodes, 8, "B200")]
    }
    assert ratios[2] == pytest.approx(2.08, rel=0.1)  # measured 2.08
    assert all(ratios[nodes] < 1.1 for nodes in (4, 16))
    topology = with_gpu(preset("dgx-h100", 2), "B200").topology
    coupled = nccl.nccl_system_of(Placement.block(topology, 8), coupled=True)
    assert busbw(coupled, "nvls_tree") / busbw(coupled, "ring") == pytest.approx(1.30, rel=0.02)


def test_trees_fall_behind_rings_from_four_nodes_on() -> None:
    ratios = {
        nodes: busbw(of, "tree") / busbw(of, "ring")
        for nodes in (2, 4, 8, 16, 32)
        for of in [fleet("dgx-h100", nodes, 8, "B200")]
    }
    assert ratios.pop(2) > 0.8  # measured 0.97
    assert all(0.45 < ratio < 0.67 for ratio in ratios.values())  # measured 0.57 to 0.66


@pytest.mark.parametrize(
    ("name", "nodes", "algorithm", "measured"),
    [  # GB/s of 8 or 16 GiB: Azure's guide, nccl-tests#212, a B200 cluster with NCCL 2.29.7
        ("dgx-a100", 1, "ring", 231.6),
        ("dgx-a100", 2, "ring", 189),
        ("dgx-h100", 1, "ring", 370),
        ("dgx-h100", 1, "nvls", 478.9),
        ("hgx-h200", 1, "nvls", 480),
        ("B200", 1, "ring", 679),
        ("B200", 1, "nvls", 840.8),
        ("B200", 2, "tree", 335.2),
        ("B200", 8, "tree", 192.6),
        ("B200", 4, "collnet_direct", 543.8),
        ("B200", 32, "collnet_direct", 544.3),
    ],
)
def test_large_messages_come_near_to_published_bandwidths(
    name: str, nodes: int, algorithm: str, measured: float
) -> None:
    collnet = algorithm == "collnet_direct"
    of = fleet("dgx-h100", nodes, 8, "B200", collnet) if name == "B200" else fleet(name, nodes, 8)
    assert busbw(of, algorithm) == pytest.approx(measured, rel=0.08)


# Two nodes of four V100 each, by hand.
SMALL = NcclSystem(
    nodes=2,
    ppn=4,
    compute_capability=70,
    ring=ChannelGraph(2, 20e9, 10e9),
    tree=ChannelGraph(2, 20e9, 10e9),
    head_channels=None,
    rings_on_nvlink=True,
    cpu_vendor="intel",
)


def seconds(of: NcclSystem, algorithm: str, protocol: str, nbytes: int, version: str) -> float:
    return nccl.estimate_times(of, ALLREDUCE, nbytes, version)[AlgoProto(algorithm, protocol)]


def test_estimates_of_versions_from_2_23_on() -> None:
    """n = 8: 14 hops of a ring, 2 of them between nodes; a tree climbs 3 hops and 1 level."""
    us, large = 1e-6, 1 << 34
    carried = 40e9 * 8 / 14
    expected = {
        ("ring", "LL", 1): (6.6 + 12 * 1.0 + 2 * 2.7)
        * us,  # a hop takes at least the 1 us of a NIC
        ("ring", "LL128", 1): (14 + 12 * 1.9 + 2 * 4.0) * us,
        ("ring", "Simple", 1): (8.4 + 12 * 3.4 + 2 * 14.0) * us,
        ("ring", "Simple", large): 1.9 * (8.4 + 12 * 3.4 + 2 * 14.0) * us + large / carried,
        ("ring", "LL", large): (6.6 + 12 * 1.0 + 2 * 2.7) * us + large / (carried / 2),
        ("tree", "Simple", 1): (8.4 + 2 * (3 * 4.0 + 14)) * us,
        ("tree", "Simple", large): (8.4 + 2 * (3 * 4.0 + 14)) * us + large / (2 * 18.4e9 / 2),
        ("tree", "LL", large): (6.8 + 2 * (3 * 0.6 + 5)) * us + large / (2 * 18.4e9 / 3.8 / 2),
        ("tree", "LL", 1 << 18): (6.8 + 2 * (3 * 0.6 + 5)) * us
        + (1 << 18) / (0.4 * 2 * 18.4e9 / 3.8 / 2),
    }
    for (algorithm, protocol, nbytes), time in expected.items():
        for version in ("2.23.4", "2.24.3", "2.25.1", "2.26.2", *FROM_2_27):
            found = seconds(SMALL, algorithm, protocol, nbytes, version)
            assert found == pytest.approx(time, rel=1e-3), (algorithm, protocol, nbytes)


def blackwell(nodes: int, ppn: int = 8, cpu_vendor: str = "intel") -> NcclSystem:
    """Return GPUs that NVSwitches join: 16 rings on one node, 8 over NICs of 48 GB/s on several."""
    return NcclSystem(
        nodes=nodes,
        ppn=ppn,
        compute_capability=100,
        ring=ChannelGraph(16, 45e9, 45e9) if nodes == 1 else ChannelGraph(8, 48e9, 48e9),
        tree=ChannelGraph(8, 90e9, 48e9),
        head_channels=ChannelGraph(8, 80e9, 48e9),
        rings_on_nvlink=True,
        cpu_vendor=cpu_vendor,
        nvswitch_reduction=True,
    )


def by_version(of: NcclSystem, collective: Collective, way: AlgoProto, nbytes: int) -> list[float]:
    """Return the expected seconds in each version from 2.27 on."""
    return [nccl.estimate_times(of, collective, nbytes, one)[way] for one in FROM_2_27]


@pytest.mark.parametrize(
    ("nodes", "caps"),
    [  # of a channel in GB/s; 2.28.3 differs from 2.28.7 on two nodes
        (1, (73.4, 73.4, 73.4, 73.4, 34.5, 40, 40, 40, 40)),
        (2, (73.4, 73.4, 34.6, 34.6, 34.6, 40, 40, 40, 40)),
        (4, (73.4, 73.4, 73.4, 73.4, 34.5, 40, 40, 40, 40)),
    ],
)
def test_versions_cap_ll128_of_blackwell_differently(nodes: int, caps: tuple[float, ...]) -> None:
    """A channel has 0.92 of its speed at most, and a ring of 8 n ranks 8 n - 1 hops."""
    of, nbytes = blackwell(nodes), 1 << 34
    speed, number, p = (45, 16, 8) if nodes == 1 else (48, 8, 8 * nodes)
    latency = 14 + 7 * 1.9 if nodes == 1 else 14 + 7 * nodes * 1.9 + (nodes - 1) * 4.0
    found = by_version(of, ALLGATHER, AlgoProto("ring", "LL128"), nbytes)
    rates = [number * min(0.92 * speed, cap) * 1e9 * p / (p - 1) for cap in caps]
    assert found == pytest.approx([1e-6 * latency + nbytes / rate for rate in rates], rel=1e-6)


@pytest.mark.parametrize(
    ("collective", "gpus", "nbytes", "from_2_31", "from_2_32"),
    [
        (ALLREDUCE, 8, 1 << 20, 1.0, 1.4),  # 14 hops
        (ALLREDUCE, 2, 1 << 20, 1.0, 1.3),  # the second hop leaves a quarter of the way to 1.4
        (ALLGATHER, 2, 1 << 20, 1.4, 1.0),  # a single hop
        (ALLGATHER, 4, 1 << 20, 1.4, 1.375),
        (ALLGATHER, 8, 1 << 13, 1.0, 1.0),  # 32 bytes of a rank for each of 32 channels
        (ALLREDUCE, 8, 96 << 20, 1.0, 1.35),  # 384 KiB
        (ALLREDUCE, 8, 1 << 30, 1.0, 1.3),
        (BCAST, 8, 1 << 20, 1.0, 1.0),
    ],
)
def test_versions_let_rings_of_blackwell_wait(
    collective: Collective, gpus: int, nbytes: int, from_2_31: float, from_2_32: float
) -> None:
    """A hop of Simple over NVLink has 3.4 us, the call 8.4; rings of an NVSwitch have one order."""
    hops = {ALLREDUCE: 2 * (gpus - 1), ALLGATHER: gpus - 1, BCAST: gpus}[collective]
    waits = 1e-6 * (8.4 + (1 if collective is BCAST else hops) * 3.4)
    moved = nbytes / (720e9 * gpus / hops)
    found = by_version(blackwell(1, gpus), collective, RING, nbytes)
    factors = [1.0] * 7 + [from_2_31, from_2_32]
    assert found == pytest.approx([waits * factor + moved for factor in factors], rel=2e-4)


def test_versions_from_2_31_on_take_the_slower_speed_for_trees_of_two_nodes() -> None:
    """A tree of two nodes of 8 has 2 (7 hops of 4 us and one of 14); it halves the bandwidth."""
    found = by_version(blackwell(2), ALLREDUCE, TREE, 1 << 34)
    speeds = [0.92 * 90] + 8 * [42.8]
    latency = 1e-6 * (8.4 + 2 * (7 * 4.0 + 14))
    assert found == pytest.approx([latency + (1 << 34) / (4e9 * s) for s in speeds], rel=1e-6)
    slower = replace(blackwell(2), tree=ChannelGraph(8, 90e9, 40e9))
    found = by_version(slower, ALLREDUCE, TREE, 1 << 34)
    speeds[7:] = [0.92 * 40] * 2
    assert found == pytest.approx([latency + (1 << 34) / (4e9 * s) for s in speeds], rel=1e-6)


def test_versions_cap_ll128_in_trees_of_two_nodes_differently() -> None:
    """A hop inside a node has 1.25 us; 15/16 of 0.92 x 90 and of 42.8 GB/s are above the caps."""
    found = by_version(blackwell(2), ALLREDUCE, AlgoProto("tree", "LL128"), 1 << 34)
    caps = (73.4, *[31.67] * 7, 36.7)
    latency = 1e-6 * (14 + 2 * (7 * 1.25 + 8.5))
    assert found == pytest.approx([latency + (1 << 34) / (4e9 * cap) for cap in caps], rel=1e-6)


@pytest.mark.parametrize("nbytes", [16 << 20, 1 << 34])
def test_versions_expect_nvls_tree_of_blackwell_differently(nbytes: int) -> None:
    """Four nodes have 32 ranks and climb two levels; at 16 MiB it is said to reach 0.7."""
    way, rank = AlgoProto("nvls_tree", "Simple"), 32 / 62
    found = by_version(blackwell(4), ALLREDUCE, way, nbytes)
    caps = (*[43.1] * 2, *[43.8] * 3, *[48] * 3)
    rates = [8 * 24 * 5 / 6, *[8 * cap * rank for cap in caps]]
    hops = [*[14.0] * 3, *[20.9] * 6]
    factors = [1.0] * 4 + [0.7 if nbytes == 16 << 20 else 1.0] * 5
    expected = [
        1e-6 * (25 + 4 * hop) + nbytes / (1e9 * rate * factor)
        for hop, rate, factor in zip(hops, rates, factors, strict=True)
    ]
    assert found == pytest.approx(expected, rel=1e-6)
    on_arm = by_version(blackwell(4, cpu_vendor="arm"), ALLREDUCE, way, nbytes)
    whole = [
        1e-6 * (25 + 4 * hop) + nbytes / (1e9 * rate) for hop, rate in zip(hops, rates, strict=True)
    ]
    assert on_arm == pytest.approx(whole, rel=1e-6)


def test_nvls_lost_nothing_of_its_speed_before_2_28() -> None:
    """Eight heads of H100 have 40 GB/s; an allgather moves 7/8 of the buffer."""
    h100, way = fleet("dgx-h100", 1, 8), AlgoProto("nvls", "Simple")
    before, after, *_ = by_version(h100, ALLREDUCE, way, GIB)
    assert before == pytest.approx(25e-6 + GIB / (8 * 40e9 * 5 / 6), rel=1e-6)
    assert after == pytest.approx(25e-6 + GIB / (8 * 2 * 40e9 * 0.85 * 7 / 8 * 8 / 14), rel=1e-6)
    before, after, *_ = by_version(h100, ALLGATHER, way, GIB)
    assert before == pytest.approx(25e-6 + GIB / (8 * 40e9 * 7 / 8), rel=1e-6)
    assert after == pytest.approx(25e-6 + GIB / (8 * 40e9 * 0.85 * (7 / 8) ** 2), rel=1e-6)


def test_an_upgrade_changes_the_choice() -> None:
    """Rings in Simple waited no longer than in LL128 on few B200 before 2.31, and do after."""
    b200, size = blackwell(1, 4), 16 << 20
    chosen = [str(nccl.default_algo_proto(b200, ALLGATHER, size, one)) for one in FROM_2_27]
    assert chosen == ["ring Simple"] * 7 + ["ring LL128"] * 2


def test_estimates_of_versions_2_5_and_2_8() -> None:
    us, large = 1e-6, 1 << 34
    assert seconds(SMALL, "ring", "LL", 1, "2.5.6") == pytest.approx(
        (3.6 + 14 * 0.9) * us, rel=1e-3
    )
    assert seconds(SMALL, "ring", "LL", 1, "2.8.4") == pytest.approx(
        (3.6 + 12 * 1.8 * 0.47 + 2 * 2.7) * us, rel=1e-3
    )
    for version, share in (("2.5.6", 7 / 9), ("2.8.4", None)):
        cap = 16.7e9 * 2 * 7 / 9 if share is None else 36e9 * share
        rate = min(cap, 36e9 * (0.915 if share is None else share)) / 2
        assert seconds(SMALL, "tree", "LL128", large, version) == pytest.approx(
            large / rate, rel=1e-3
        )


def test_what_is_offered_follows_the_machine() -> None:
    h100 = fleet("dgx-h100", 1, 8)
    several = fleet("dgx-h100", 4, 8, collnet=True)
    names = {
        "one": {way.algorithm for way in nccl.estimate_times(h100, ALLREDUCE, 1024)},
        "several": {way.algorithm for way in nccl.estimate_times(several, ALLREDUCE, 1024)},
        "no SHARP": {
            way.algorithm for way in nccl.estimate_times(fleet("dgx-h100", 4, 8), ALLREDUCE, 1024)
        },
        "one GPU each": {
            way.algorithm for way in nccl.estimate_times(fleet("dgx-h100", 4, 1), ALLGATHER, 1024)
        },
        "bcast": {way.algorithm for way in nccl.estimate_times(several, BCAST, 1024)},
    }
    assert names == {
        "one": {"ring", "tree", "nvls"},
        "several": {"ring", "tree", "nvls", "nvls_tree", "collnet_direct", "collnet_chain"},
        "no SHARP": {"ring", "tree", "nvls_tree"},
        "one GPU each": {"ring", "pat"},
        "bcast": {"ring"},
    }
    assert AlgoProto("ring", "LL128") in nccl.estimate_times(h100, ALLREDUCE, 1024)
    assert AlgoProto("ring", "LL128") not in nccl.estimate_times(
        fleet("comet", 4, 4), ALLREDUCE, 1024
    )


def test_small_messages_take_ll_and_large_ones_simple() -> None:
    a100 = fleet("dgx-a100", 4, 8)
    chosen = [nccl.default_algo_proto(a100, ALLREDUCE, 1 << k) for k in range(3, 35)]
    protocols = [way.protocol for way in chosen]
    assert protocols[0] == "LL"
    assert protocols[-1] == "Simple"
    assert [p for i, p in enumerate(protocols) if p not in protocols[:i]] == [
        "LL",
        "LL128",
        "Simple",
    ]
    assert (chosen[0].algorithm, chosen[-1].algorithm) == ("tree", "ring")


def test_channels_are_cut_as_ncclsearch_cuts_them() -> None:
    """H100: six of 60 GB/s fit into 370.8 GB/s and are cut in two; eight NICs give eight of 45."""
    assert best_channels((60, 50, 40, 30, 24, 20), 370.8e9, 32) == (6, 60e9)
    assert double_channels(6, 60e9, 90) == (12, 30e9)
    assert best_channels((48, 45, 42, 40), 370.8e9, 32, [48e9] * 8) == (8, 45e9)
    assert best_channels((48, 45, 42, 40), 370.8e9, 32, [1e9]) == (1, 1e9)


def test_what_cannot_be_asked() -> None:
    with pytest.raises(InputError, match=r"2\.31\.2, 2\.32\.3, not of '3.0'"):
        nccl.estimate_times(SMALL, ALLREDUCE, 8, "3.0")
    with pytest.raises(InputError, match=r"reduce_scatter, not for gather$"):
        nccl.estimate_times(SMALL, Collective.GATHER, 8)
    with pytest.raises(InputError, match=r"at least one byte, not for [0-9]+ and 0$"):
        nccl.estimate_times(SMALL, ALLREDUCE, 0)
    flat = Topology(
        "flat", (Node("a"), Node("b")), (), (Link("a", "b", 1, 0), Link("b", "a", 1, 0))
    )
    with pytest.raises(InputError, match="topology flat has no GPUs"):
        nccl.nccl_system_of(Placement.block(flat, 1))
    with pytest.raises(InputError, match=r"one GPU per rank .* 8 GPUs for 9 ranks"):
        nccl.nccl_system_of(Placement.block(preset("dgx-h100", 1).topology, 9))
    with pytest.raises(InputError, match="single rank"):
        nccl.nccl_system_of(Placement.block(preset("dgx-h100", 1).topology, 1))
