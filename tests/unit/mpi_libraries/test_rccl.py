"""Compare RCCL's estimates with arithmetic by hand, and predictions with measured times."""

from __future__ import annotations

from statistics import median

import pytest

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.machines import preset, with_gpu
from tuner.machines.yaml_machines import machine_from_yaml
from tuner.mpi_libraries import nccl
from tuner.mpi_libraries.nccl import AlgoProto, NcclPredictor, default_algo_proto
from tuner.prediction.nccl_times import nccl_absence, nccl_times
from tuner.topology import CUDA, Placement

RING_LL, RING_LL128, RING = (AlgoProto("ring", name) for name in ("LL", "LL128", "Simple"))
TREE = AlgoProto("tree", "Simple")

LINK = {"bandwidth": "12GB/s", "latency": "0us"}

# Microseconds of allreduces of 2 MiB, 4 MiB, ... 8 GiB on one node with eight MI300X, out of place:
# rccl-tests a7809b3, github.com/hisohara/ai-scripts, training/01_rccl-smoketest/README.md
MI300X_FROM_2_MIB = (
    *(36.68, 52.96, 84.78, 149.9, 246.3, 432.5, 800.3, 1540.4, 3027.1, 5990.7),
    *(11940, 23841, 47617),
)

# Microseconds of allreduces of 256 MiB, 512 MiB, ... on two nodes: as above
TWO_NODES_FROM_256_MIB = {
    "mi300x": (1713.4, 3096.3, 5908.3, 11574, 22788, 45224, 90115),
    "mi355x": (1652.0, 2880.5, 5525.0, 10989, 21870, 43643),
}

# Microseconds of rings of 4, 8 and 16 GiB on nodes with eight MI325X, by their number: as above
MI325X_BY_NODES = {
    1: (23719, 47217, 94222),
    2: (23192, 46123, 91973),
    4: (23904, 47563, 94942),
    8: (24572, 48321, 96405),
}


def on(name: str, nodes: int, ppn: int = 8) -> NcclPredictor:
    return NcclPredictor(Placement.block(preset(name, nodes).topology, ppn))


def test_published_times_of_mi300x_above_a_mebibyte() -> None:
    predictor, errors = on("mi300x", 1), []
    for power, measured in enumerate(MI300X_FROM_2_MIB, start=21):
        way = default_algo_proto(predictor.system, Collective.ALLREDUCE, 1 << power)
        assert way == RING
        predicted = predictor.predicted_seconds(Collective.ALLREDUCE, 1 << power)[way]
        errors.append(abs(predicted / (measured * 1e-6) - 1))
    assert median(errors) < 0.03
    assert max(errors[2:]) < 0.1
    assert max(errors) < 0.6


@pytest.mark.parametrize("nodes", MI325X_BY_NODES)
def test_published_times_of_rings_of_mi325x(nodes: int) -> None:
    predictor = on("mi325x", nodes)
    for power, measured in enumerate(MI325X_BY_NODES[nodes], start=32):
        predicted = predictor.predicted_seconds(Collective.ALLREDUCE, 1 << power)[RING]
        assert predicted == pytest.approx(measured * 1e-6, rel=0.1)


@pytest.mark.parametrize("name", TWO_NODES_FROM_256_MIB)
def test_published_times_of_rings_of_two_nodes(name: str) -> None:
    predictor, errors = on(name, 2), []
    for power, measured in enumerate(TWO_NODES_FROM_256_MIB[name], start=28):
        predicted = predictor.predicted_seconds(Collective.ALLREDUCE, 1 << power)[RING]
        errors.append(abs(predicted / (measured * 1e-6) - 1))
    assert median(errors) < 0.15
    assert max(errors) < 0.17


def test_a_hop_between_nodes_takes_what_it_takes_in_a_tree() -> None:
    """Predict 25 us instead of the 320 of RCCL's choice, of which four nodes have six."""
    predictor = on("mi300x", 4)
    latency = 17e-6 + (62 - 6) * 6e-6 + 6 * 25e-6
    found = predictor.predicted_seconds(Collective.ALLREDUCE, 1)[RING]
    assert found == pytest.approx(latency, rel=1e-3)
    rooted = 17e-6 + (32 - 4) * 6e-6 + 4 * 25e-6  # RCCL counts 32 hops between nodes
    found = predictor.predicted_seconds(Collective.BCAST, 1)[RING]
    assert found == pytest.approx(rooted, rel=1e-3)
    alone = on("mi300x", 4, 1).predicted_seconds(Collective.ALLREDUCE, 1)[RING]
    assert alone == pytest.approx(17e-6 + 6 * 25e-6, rel=1e-3)


def test_flags_of_ll_take_half_of_the_links_in_broadcasts_too() -> None:
    terms = on("mi300x", 1).terms(Collective.BCAST, RING_LL, 1 << 20)
    assert terms.bounds["xgmi"] == pytest.approx(336e9 / 2)


def test_a_ring_as_computed_by_hand() -> None:
    """Count seven links of 48 GB/s, 14 hops of 2.1 us and 17 us, 14 of 8 parts on each link."""
    expected = on("mi300x", 1).expected_seconds(Collective.ALLREDUCE, 1 << 30)
    assert expected[RING] == pytest.approx(17e-6 + 14 * 2.1e-6 + (1 << 30) * 14 / 8 / (7 * 48e9))
    assert expected[RING_LL] == pytest.approx(
        12e-6 + 14 * 0.8e-6 + (1 << 30) * 14 / 8 / (7 * 48e9 * 0.08)
    )
    few = on("mi300x", 1, 4).expected_seconds(Collective.ALLGATHER, 1 << 20)
    assert few[RING] == pytest.approx(17e-6 + 3 * 2.1e-6 + (1 << 20) * 3 / 4 / (3 * 48e9))


def test_hops_between_nodes_as_computed_by_hand() -> None:
    """Take 2 us of an EPYC to post, three times in Simple, and the factors of 64 MiB."""
    expected = on("mi300x", 4).expected_seconds(Collective.ALLREDUCE, 1 << 26)
    latency = 17e-6 + (62 - 6) * 6e-6 + 6 * 320e-6
    assert expected[RING] == pytest.approx(latency + (1 << 26) * 62 / 32 / (336e9 * 0.1))
    tree = 17e-6 + 2 * (7 * 2.3e-6 + 2 * 25e-6)
    assert expected[TREE] == pytest.approx(tree + (1 << 26) * 2 / (336e9 * 0.59 * 1.0))


def test_broadcasts_pass_every_hop() -> None:
    expected = on("mi300x", 1).expected_seconds(Collective.BCAST, 1 << 20)
    assert expected[RING] == pytest.approx(17e-6 + 8 * 2.3e-6 + (1 << 20) / 336e9)
    assert expected[RING_LL] == pytest.approx(
        12e-6 + 8 * 0.8e-6 + (1 << 20) / (336e9 * 0.08 * 1.65)
    )


def test_what_each_architecture_has() -> None:
    cdna3 = on("mi300x", 1).algo_protos(Collective.ALLREDUCE)
    assert TREE not in cdna3
    assert RING_LL128 in cdna3
    assert TREE in on("mi355x", 2).algo_protos(Collective.ALLREDUCE)
    cdna2 = on("frontier", 1).algo_protos(Collective.ALLREDUCE)
    assert {way.protocol for way in cdna2} == {"LL", "Simple"}
    assert TREE in cdna2
    assert {way.algorithm for way in on("frontier", 2).algo_protos(Collective.ALLGATHER)} == {
        "ring"
    }
    assert on("frontier", 1).system.ring == nccl.ChannelGraph(7, 36e9, 36e9)


@pytest.mark.parametrize(
    ("name", "nodes", "collective", "nbytes", "protocol"),
    [
        ("mi300x", 2, Collective.ALLREDUCE, 524288, "LL"),
        ("mi300x", 2, Collective.ALLREDUCE, 524289, "LL128"),
        ("mi300x", 2, Collective.ALLREDUCE, 4415058, "Simple"),
        ("mi300x", 3, Collective.ALLREDUCE, 4415058, "LL128"),
        ("mi300x", 2, Collective.ALLGATHER, 16 * 98304, "LL"),
        ("mi300x", 2, Collective.ALLGATHER, 16 * 98305, "LL128"),
        ("mi300x", 1, Collective.REDUCE_SCATTER, 8 * 352128, "LL"),
        ("mi300x", 1, Collective.REDUCE_SCATTER, 8 * 352129, "Simple"),
        ("mi355x", 1, Collective.REDUCE_SCATTER, 8 * 1048576, "LL"),
        ("frontier", 1, Collective.REDUCE_SCATTER, 8 * 352128, "Simple"),
        ("mi355x", 1, Collective.ALLGATHER, 8 * 88448, "LL"),
        ("mi355x", 1, Collective.ALLGATHER, 8 * 88449, "Simple"),
        ("mi300x", 1, Collective.ALLGATHER, 8 * 88448, "Simple"),
        ("mi300x", 2, Collective.REDUCE, 16 * 4096, "LL"),
        ("mi300x", 2, Collective.REDUCE, 16 * 4097, "LL128"),
    ],
)
def test_protocols_by_size(
    name: str, nodes: int, collective: Collective, nbytes: int, protocol: str
) -> None:
    assert default_algo_proto(on(name, nodes).system, collective, nbytes).protocol == protocol


def test_nics_bound_trees_as_they_bound_rings() -> None:
    """RCCL's share of a ring's bandwidth serves its choice alone; predictions leave it out."""
    predictor, nbytes = on("mi300x", 2), 1 << 30
    tree = predictor.terms(Collective.ALLREDUCE, AlgoProto("tree", "Simple"), nbytes)
    ring = predictor.terms(Collective.ALLREDUCE, AlgoProto("ring", "Simple"), nbytes)
    hops, p = 2 * (16 - 1), 16
    assert tree.bounds["nic"] / 0.5 == pytest.approx(ring.bounds["nic"] / (p / hops))


def test_gpus_without_links_to_others_have_no_rings_on_several_nodes() -> None:
    boxes = with_gpu(preset("l40s", 2), "MI300X")
    with pytest.raises(InputError, match="these GPUs have no such links"):
        NcclPredictor(Placement.block(boxes.topology, 8, 4))


def test_a_gpu_alone_on_its_node_sends_through_its_nic() -> None:
    system = on("mi300x", 2, 1).system
    assert system.ring.bw_inter == pytest.approx(48e9)
    assert NcclPredictor(
        Placement.block(preset("frontier", 2).topology, 1)
    ).system.ring.bw_inter == pytest.approx(24e9)


def test_simulations_take_the_protocol_that_runs() -> None:
    times = nccl_times(Placement.block(preset("mi300x", 1).topology, 8), CUDA)
    assert times is not None
    assert times.algorithms(Collective.ALLREDUCE) == ("nccl_ring", "nccl_tree")
    predicted = on("mi300x", 1).predicted_seconds(Collective.REDUCE_SCATTER, 1 << 21)
    assert times.seconds(Collective.REDUCE_SCATTER, "nccl_ring", 1 << 21) == predicted[RING_LL]


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(InputError, match=r"2\.4\.8 does not run on AMD's GPUs \(gfx942\): leave"):
        default_algo_proto(on("mi300x", 1).system, Collective.ALLREDUCE, 8, "2.4.8")
    topology = machine_from_yaml(
        {
            "name": "old",
            "nodes": 1,
            "latency": "1us",
            "bandwidth": "1GB/s",
            "interior": {
                "devices": [
                    {"name": "cpu", "kind": "cpu", "cores": 1},
                    {"name": "gpu", "kind": "gpu", "count": 2, "product": "MI100"},
                    {"name": "nic", "kind": "nic"},
                ],
                "links": [
                    {"attach": "gpu", "to": "cpu", "kind": "pcie", **LINK},
                    {"attach": "nic", "to": "cpu", "kind": "pcie", **LINK},
                ],
            },
        }
    ).topology
    placement = Placement.block(topology, 2)
    with pytest.raises(InputError, match=r"known of gfx90a, gfx942, gfx950, not of gfx908"):
        NcclPredictor(placement)
    assert "not of gfx908" in nccl_absence(["nccl_ring"], placement)
