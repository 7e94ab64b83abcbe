"""NCCL's algorithms as schedules: right for every shape, and shaped like NCCL's."""

from collections import defaultdict
from dataclasses import replace
from math import floor, log2

import numpy as np
import pytest

from tests.support.calls import inputs, outputs
from tuner import algorithms
from tuner.algorithms.hierarchy import Hierarchy
from tuner.algorithms.nccl import ring_order
from tuner.algorithms.pat import aggregated_tree_rounds
from tuner.base.errors import InputError
from tuner.core.calibration import Estimate, ReductionCost
from tuner.core.collective import Collective
from tuner.core.interpret import interpret
from tuner.core.schedule import Schedule
from tuner.sim import simulate
from tuner.topology import Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

ALLREDUCE, ALLGATHER = Collective.ALLREDUCE, Collective.ALLGATHER
REDUCE_SCATTER = Collective.REDUCE_SCATTER
EVERY = [
    *(
        (ALLREDUCE, name)
        for name in (
            "nccl_ring",
            "nccl_tree",
            "nvls",
            "nvls_tree",
            "collnet_direct",
            "collnet_chain",
        )
    ),
    *(
        (collective, name)
        for collective in (ALLGATHER, REDUCE_SCATTER)
        for name in ("nccl_ring", "nvls", "pat")
    ),
    (Collective.BCAST, "nccl_ring"),
    (Collective.REDUCE, "nccl_ring"),
]
IN_NETWORK = [(c, name) for c, name in EVERY if name.startswith(("nvls", "collnet"))]


def built(collective: Collective, name: str, p: int, root: int = 0, **params: int) -> Schedule:
    """With those of the parameters that the algorithm has."""
    known = algorithms.describe(collective, name).params
    chosen = {key: value for key, value in params.items() if key in known}
    return algorithms.build(collective, name, p, root=root, nbytes=200, params=chosen)


@pytest.mark.slow
@pytest.mark.parametrize(("collective", "name"), EVERY)
def test_verifies_for_every_shape_of_nodes(collective: Collective, name: str) -> None:
    for p in range(1, 34):
        for group, channels, segment in ((1, 1, 0), (3, 3, 20), (4, 2, 40), (8, 5, 20)):
            for root in {0, p // 2, p - 1} if collective.is_rooted else {0}:
                made = built(
                    collective,
                    name,
                    p,
                    root,
                    group=group,
                    channels=channels,
                    segment=segment,
                    aggregate=channels,
                )
                algorithms.schedule_properties(made)  # raises where it is wrong


@pytest.mark.parametrize(("collective", "name"), EVERY)
@pytest.mark.parametrize("p", [2, 5, 8, 12])
def test_interpreter_gives_what_the_collective_promises(
    collective: Collective, name: str, p: int
) -> None:
    made = built(collective, name, p, p - 1 if collective.is_rooted else 0, group=4, segment=40)
    for count in (0, 1, 3 * p + 2):
        buffers = inputs(p, count)
        after = interpret(made, buffers, np.maximum)
        for rank, (share, value) in enumerate(outputs(made, buffers, np.maximum)):
            np.testing.assert_array_equal(after[rank][share], value)


def test_needs_and_flags() -> None:
    for collective, name in EVERY:
        made = built(collective, name, 8)
        assert made.in_network == ((collective, name) in IN_NETWORK)
        assert algorithms.describe(collective, name).requires == {
            "nvls": (
                "gpu",
                "nvswitch_reduction",
                "joined_by_switches" if collective is ALLREDUCE else "one_node",
            ),
            "nvls_tree": ("gpu", "nvswitch_reduction", "two_levels"),
            "collnet_direct": ("gpu", "switch_reduction", "two_levels"),
            "collnet_chain": ("gpu", "switch_reduction", "two_levels"),
        }.get(name, ("gpu",))


def test_every_ring_keeps_to_its_rail_between_nodes() -> None:
    levels = Hierarchy.of(32, 8)
    leaving = set()
    for channel in range(8):
        order = ring_order(levels, channel)
        assert sorted(order.tolist()) == list(range(32))
        for a, b in zip(order.tolist(), np.roll(order, -1).tolist(), strict=True):
            if a // 8 != b // 8:
                assert a % 8 == b % 8
                leaving.add(a)
    assert leaving == set(range(32))  # every GPU's NIC sends for one of the channels


def test_rings_carry_each_byte_as_often_as_one_ring_would() -> None:
    made = built(ALLREDUCE, "nccl_ring", 12, group=4, channels=3)
    sent = np.zeros(12)
    for r in made.rounds():
        np.add.at(sent, r.src, r.count)
    assert (sent == 2 * 11 * 3).all()  # 2 (p-1) of the p shares, of 3 chunks each


def test_between_nodes_a_tree_is_a_double_binary_tree() -> None:
    """Everybody gives and takes a whole vector at most twice each way, over all channels."""
    made = built(ALLREDUCE, "nccl_tree", 64, group=1, channels=2, segment=0)
    given = np.zeros(64)
    for r in made.rounds():
        np.add.at(given, r.src, r.count / made.n_chunks)
    assert given.max() <= 2.0  # one tree alone asks 3 of its inner nodes
    heights = len(list(made.rounds()))
    assert heights <= 2 * 8


@pytest.mark.parametrize(("collective", "name"), IN_NETWORK)
def test_only_what_switches_combine_or_replicate_shares_a_round(
    collective: Collective, name: str
) -> None:
    """NVSwitches work inside a node; the network's switches join all nodes at once, or nothing."""
    group = 64 if name == "nvls" else 4
    made = built(collective, name, 32, group=group, segment=20)
    for r in made.rounds():
        sent, arriving = defaultdict(set), defaultdict(set)
        for src, dst, first, into, _, reduce in zip(*(c.tolist() for c in r.columns), strict=True):
            sent[src, first].add(dst)
            if reduce:
                arriving[dst, into].add(src)
        for (rank, _), others in [*sent.items(), *arriving.items()]:
            inside = {other for other in others if other // group == rank // group}
            outside = others - inside
            assert not (inside and outside)
            in_node, between = (group, 1) if name.startswith("nvls") else (1, 32 // group)
            assert len(inside) in (0, 1, min(in_node, 32) - 1)
            assert len(outside) in (0, 1, between - 1)


def test_nvls_takes_one_message_in_and_one_out_per_rank() -> None:
    first, second = built(ALLREDUCE, "nvls", 8, segment=0).rounds()
    assert len(first) == len(second) == 8 * 7
    assert {(d, c) for d, c in zip(first.dst.tolist(), first.dst_chunk.tolist(), strict=True)} == {
        (rank, rank) for rank in range(8)
    }


def test_nvls_of_several_nodes_reduces_in_the_switches_between_them() -> None:
    """Four nodes of four: three ranks to each leader, and three leaders to one, and back."""
    made = built(ALLREDUCE, "nvls", 16, group=4, segment=0)
    assert [len(r) for r in made.rounds()] == [4 * 12, 4 * 3, 4 * 3, 4 * 12]


def test_pat_is_logarithmic_and_its_messages_are_bounded() -> None:
    for p in (2, 7, 16, 33, 128):
        rounds = aggregated_tree_rounds(p, p)
        assert len(rounds) == (p - 1).bit_length()
        distances = [distance for distance, _ in rounds]
        assert distances == sorted(distances, reverse=True)  # far hops first, with one share
        for aggregate in (1, 2, 8):
            bounded = aggregated_tree_rounds(p, aggregate)
            assert max(len(offsets) for _, offsets in bounded) <= aggregate
            assert sum(len(offsets) for _, offsets in bounded) == p - 1


def test_too_many_at_once_is_refused() -> None:
    with pytest.raises(InputError, match="use smaller groups"):
        algorithms.build(ALLREDUCE, "nvls", 4096, nbytes=8)
    with pytest.raises(InputError, match="use smaller groups"):
        algorithms.build(ALLGATHER, "nvls", 4096)
    with pytest.raises(InputError, match="use one channel"):
        algorithms.build(ALLREDUCE, "nccl_ring", 4096, params={"channels": 2})
    assert len(next(algorithms.build(ALLREDUCE, "nccl_ring", 27648).rounds())) == 27648


ALPHA = 1e-6
BETA = 1e-9
GAMMA = 0.5e-9
SIZE = 1 << 20
SEGMENTS = 16


def simulated(collective: Collective, name: str, p: int, parts: int, **params: int) -> float:
    """On p nodes and one switch that combines and replicates; 16 segments of each part."""
    record = {"name": "flat", "nodes": p, "latency": "1us", "bandwidth": "1GB/s"}
    placement = Placement.block(topology_from_yaml(record), 1)
    reduction = {"host": ReductionCost(Estimate.exact(0.0), Estimate.exact(GAMMA))}
    costs = replace(nominal_calibration(placement.topology), reduction=reduction)
    if "segment" in algorithms.describe(collective, name).params:
        params["segment"] = SIZE // parts // SEGMENTS
    made = algorithms.build(collective, name, p, nbytes=SIZE, params=params)
    return simulate(made, placement, costs, SIZE)


@pytest.mark.parametrize("p", [4, 8, 16])
def test_costs_are_those_of_the_formulas(p: int) -> None:
    a, b, g, s = ALPHA, SIZE * BETA, SIZE * GAMMA, SEGMENTS
    share = (p - 1) / p
    for collective, passes, reduced in (
        (ALLREDUCE, 2, 1),
        (ALLGATHER, 1, 0),
        (REDUCE_SCATTER, 1, 1),
    ):
        found = simulated(collective, "nccl_ring", p, 1, group=4, channels=2)
        assert found == pytest.approx(passes * (p - 1) * a + share * (passes * b + reduced * g))
    for collective, reduced in ((ALLGATHER, 0), (REDUCE_SCATTER, 1)):
        found = simulated(collective, "pat", p, 1, aggregate=p // 2)
        assert found == pytest.approx(log2(p) * a + share * (b + reduced * g))
        found = simulated(collective, "pat", p, 1, aggregate=2)
        assert found <= (1 + p / 2) * a + share * (b + reduced * g)
    for collective, reduced in ((Collective.BCAST, 0), (Collective.REDUCE, 1)):
        found = simulated(collective, "nccl_ring", p, 2, group=p, channels=2)
        assert found == pytest.approx((s + p - 2) * (a + (b + reduced * g) / s))
    assert simulated(ALLGATHER, "nvls", p, 1) == pytest.approx(a + share * b)
    assert simulated(REDUCE_SCATTER, "nvls", p, 1) == pytest.approx(a + share * b + g / p)
    assert simulated(ALLREDUCE, "nvls", p, p) == pytest.approx(
        (s + 1) * (a + (b + g / p) / s), 0.05
    )


@pytest.mark.parametrize("p", [4, 8, 16, 32])
def test_costs_are_at_most_those_of_the_formulas(p: int) -> None:
    a, each, s, nodes = ALPHA, SIZE * (BETA + GAMMA) / SEGMENTS, SEGMENTS, p // 4
    tree = simulated(ALLREDUCE, "nccl_tree", p, 2, group=4, channels=2)
    hops = floor(log2(nodes)) + 4
    assert tree <= (s + 2 * hops) * (2 * a + 2 * SIZE * (2 * BETA + GAMMA) / s)
    nvls_tree = simulated(ALLREDUCE, "nvls_tree", p, 4, group=4)
    assert nvls_tree <= (s + 4 * log2(nodes) + 1) * (2 * a + 1.75 * each)
    nvls = simulated(ALLREDUCE, "nvls", p, 4, group=4)
    assert nvls <= (s + 4) * (2 * a + 2 * each)
    for name in ("collnet_direct", "collnet_chain"):
        found = simulated(ALLREDUCE, name, p, 4, group=4)
        assert found <= (s + 2 * 4) * (2 * a + 2 * each)
