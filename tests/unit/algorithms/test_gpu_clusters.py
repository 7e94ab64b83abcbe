"""The algorithms of GPU clusters: right for every grouping, and as fast as their formulas say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import ceil, log2

import numpy as np
import pytest

from tests.support.calls import inputs, matrix_product, outputs
from tuner import algorithms
from tuner.algorithms.hierarchy import Hierarchy
from tuner.algorithms.multi_leader import MultiLeader
from tuner.base.errors import InputError
from tuner.core.calibration import Calibration, Estimate, PathCost, ReductionCost
from tuner.core.collective import Collective
from tuner.core.interpret import interpret
from tuner.core.schedule import Schedule
from tuner.core.verify import verify
from tuner.sim import simulate
from tuner.topology import Device, Link, Node, NodeTopology, Placement, Topology
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

BCAST, REDUCE, ALLREDUCE = Collective.BCAST, Collective.REDUCE, Collective.ALLREDUCE
LINE = [
    (BCAST, "hierarchical_ring"),
    (BCAST, "knomial_staged"),
    (BCAST, "multicast"),
    (BCAST, "multicast_staged"),
    (BCAST, "two_level_chain"),
    (REDUCE, "chain_binomial"),
    (REDUCE, "chain_of_chains"),
    (REDUCE, "shared_memory"),
    (ALLREDUCE, "chain_binomial"),
    (ALLREDUCE, "chain_of_chains"),
    (ALLREDUCE, "shared_memory"),
    (ALLREDUCE, "two_level_ring"),
    (ALLREDUCE, "two_level_recursive_doubling"),
    (ALLREDUCE, "two_level_rabenseifner"),
    (ALLREDUCE, "multi_leader"),
    (ALLREDUCE, "recursive_doubling_staged"),
    (ALLREDUCE, "rabenseifner_staged"),
    (ALLREDUCE, "ring_staged"),
    (ALLREDUCE, "central_staged"),
]
IN_ORDER = {  # operands keep their order for root 0, whatever p and the groups
    (REDUCE, "chain_binomial"),
    (REDUCE, "chain_of_chains"),
    (ALLREDUCE, "chain_binomial"),
    (ALLREDUCE, "chain_of_chains"),
    (ALLREDUCE, "recursive_doubling_staged"),
    (ALLREDUCE, "rabenseifner_staged"),
    (ALLREDUCE, "central_staged"),
}
ALPHA = 1e-6
BETA = 1e-9
GAMMA = 0.5e-9
LINE_OF_ALL = PathCost.from_alpha_beta(ALPHA, BETA)
COPY = PathCost.from_alpha_beta(2e-6, 0.25e-9)
MIB = 1 << 20
ENGINES = pytest.mark.parametrize("engine", ["fast", "events"])


def build(
    collective: Collective, name: str, p: int, nbytes: int = 1000, root: int = 0, **params: int
) -> Schedule:
    return algorithms.build(collective, name, p, root=root, nbytes=nbytes, params=params)


def variants(collective: Collective, name: str, p: int) -> Iterator[dict[str, int]]:
    """Values of all parameters: sizes of groups that fit, and that do not."""
    known = algorithms.describe(collective, name).params
    sizes = sorted({1, 2, 3, 4, 7, p, p + 3})
    choices = {
        "group": sizes,
        "length": sizes,
        "segment": [0, 300],
        "leaders": [1, 3],
        "radix": [1, 3] if name == "hierarchical_ring" else [2, 5],
        "copies": [1, 2],
    }
    for values in product(*(choices[key] for key in known)):
        yield dict(zip(known, values, strict=True))


@pytest.mark.representative(
    "bcast-knomial_staged",
    "reduce-chain_of_chains",
    "allreduce-two_level_ring",
    "allreduce-shared_memory",
)
@pytest.mark.parametrize(("collective", "name"), LINE)
def test_every_grouping_is_right(collective: Collective, name: str) -> None:
    for p in (1, 2, 3, 4, 5, 7, 8, 9, 12, 17, 20):
        for params in variants(collective, name, p):
            for root in sorted({0, p // 2, p - 1}) if collective.is_rooted else [0]:
                made = build(collective, name, p, 1000, root, **params)
                facts = verify(made)
                assert not facts.even_chunks_only
                if (collective, name) in IN_ORDER and root == 0:
                    assert facts.order_preserving, params


@pytest.mark.slow
@pytest.mark.parametrize(("collective", "name"), LINE)
@pytest.mark.parametrize("p", [1, 2, 5, 8, 11])
def test_what_it_computes(collective: Collective, name: str, p: int) -> None:
    for params in variants(collective, name, p):
        made = build(collective, name, p, 1000, p // 2 if collective.is_rooted else 0, **params)
        ordered = algorithms.schedule_properties(made).order_preserving
        op = matrix_product if ordered else np.add
        for count in (3, made.n_chunks + 2):
            buffers = inputs(p, count)
            after = interpret(made, buffers, op)
            for rank, (share, value) in enumerate(outputs(made, buffers, op)):
                np.testing.assert_array_equal(after[rank][share], value, err_msg=f"{params}")


@pytest.mark.parametrize(("collective", "name"), LINE)
def test_what_is_staged_travels_between_hosts(collective: Collective, name: str) -> None:
    """No message of a staged schedule begins or ends in a device, and each device is served."""
    made = build(collective, name, 9)
    assert (
        made.staged == name.endswith("_staged") == algorithms.schedule_properties(made).uses_scratch
    )
    messages = [r.select(r.src != r.dst) for r in made.rounds()]
    if name == "multicast_staged":  # inside the groups it goes from device to device
        messages = [r.select(r.src // 4 != r.dst // 4) for r in messages]
    if made.staged:
        assert all((r.src_chunk >= made.n_chunks).all() for r in messages)
        assert all((r.dst_chunk >= made.n_chunks).all() for r in messages)


def test_what_machines_must_have() -> None:
    def needs(collective: Collective, name: str) -> tuple[str, ...]:
        return algorithms.describe(collective, name).requires

    assert {name for c, name in LINE if needs(c, name) == ("multicast",)} == {
        "multicast",
        "multicast_staged",
    }
    assert {name for c, name in LINE if needs(c, name) == ("gpu",)} == {
        "hierarchical_ring",
        "knomial_staged",
        "recursive_doubling_staged",
        "rabenseifner_staged",
        "ring_staged",
        "central_staged",
    }


@pytest.mark.parametrize("name", ["multicast", "multicast_staged"])
def test_a_segment_is_multicast_once(name: str) -> None:
    """Each segment leaves the root in one round, the same chunk for every leader."""
    made = build(BCAST, name, 18, 1000, 7, group=4, segment=100)
    assert made.in_network
    crossing = [r.select(r.src // 4 != r.dst // 4) for r in made.rounds()]
    sent = [r for r in crossing if len(r)]
    assert [sorted(set(r.src_chunk.tolist())) for r in sent] == [
        [chunk + made.n_chunks * made.staged] for chunk in range(10)
    ]
    assert all(set(r.src.tolist()) == {7} and len(r) == 4 for r in sent)


@pytest.mark.parametrize("radix", [1, 2, 3])
@pytest.mark.parametrize("root", [0, 6, 17])
def test_leaders_forward_while_their_group_is_served(root: int, radix: int) -> None:
    made = build(BCAST, "hierarchical_ring", 18, 1000, root, group=4, radix=radix, segment=100)
    both = 0
    for r in made.rounds():
        crosses = r.src // 4 != r.dst // 4
        leaders = {0, 4, 8, 12, 16} - {root // 4 * 4} | {root}
        assert {*r.src[crosses].tolist(), *r.dst[crosses].tolist()} <= leaders
        both += bool(crosses.any() and (~crosses).any())
    assert both >= 8  # of ten segments


def test_leaders_of_uneven_groups() -> None:
    shares = MultiLeader(Hierarchy.of(10, 4), 4)
    assert shares.leaders.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 8, 9, 9]]
    assert MultiLeader(Hierarchy.of(10, 4), 2).leaders.tolist() == [[0, 2], [4, 6], [8, 9]]


def test_too_much_at_once_is_refused() -> None:
    with pytest.raises(InputError, match="4096 ranks in groups of 4096 would exchange 16777216"):
        build(ALLREDUCE, "shared_memory", 4096, group=4096)


def flat(p: int) -> tuple[Placement, Calibration]:
    """The machine of the formulas: one rank per node, one switch."""
    record = {"name": "flat", "nodes": p, "latency": "1us", "bandwidth": "1GB/s"}
    placement = Placement.block(topology_from_yaml(record), 1)
    reduction = {"host": ReductionCost(Estimate.exact(0.0), Estimate.exact(GAMMA))}
    return placement, replace(nominal_calibration(placement.topology), reduction=reduction)


def cluster(
    nodes: int,
    gpus: int,
    direct: PathCost = LINE_OF_ALL,
    inside: PathCost = LINE_OF_ALL,
    offers: frozenset[str] = frozenset(),
) -> tuple[Placement, Calibration]:
    """Nodes with a CPU, a NIC and GPUs with NVLink between all of them; one switch.

    direct      between GPUs of two nodes; hosts have ALPHA and BETA
    inside      between GPUs of one node
    """
    names = [f"gpu{i}" for i in range(gpus)]
    pairs = [(a, b) for a in names for b in names if a != b]
    buses = [(a, "cpu") for a in [*names, "nic"]]
    links = [Link(a, b, 1e13, 0.0, "nvlink") for a, b in pairs]
    links += [Link(*ends, 1e13, 0.0, "pcie") for a, b in buses for ends in ((a, b), (b, a))]
    devices = [Device("cpu", "cpu"), Device("nic", "nic"), *(Device(n, "gpu") for n in names)]
    interior = NodeTopology(tuple(devices), tuple(links))
    hosts = tuple(Node(f"n{i}", gpus, interior) for i in range(nodes))
    cables = [Link(*ends, 1 / BETA, 0.0) for h in hosts for ends in ((h.name, "s"), ("s", h.name))]
    topology = Topology("gpus", hosts, ("s",), tuple(cables), capabilities=offers)
    fold = ReductionCost(Estimate.exact(0.0), Estimate.exact(GAMMA))
    paths = {
        ("network", "host"): LINE_OF_ALL,
        ("network", "cuda"): direct,
        ("nvlink", "cuda"): inside,
        ("node", "host"): inside,
        ("staging", "cuda"): COPY,
    }
    calibration = Calibration("gpus", "none", paths, {"host": fold, "cuda": fold})
    return Placement.block(topology, gpus), calibration


def seconds(
    machine: tuple[Placement, Calibration],
    collective: Collective,
    name: str,
    nbytes: int,
    engine: str = "fast",
    **params: int,
) -> float:
    """On device buffers."""
    made = build(collective, name, machine[0].p, nbytes, **params)
    return simulate(made, *machine, nbytes, engine=engine, memory="cuda")


Formula = Callable[[float, float, float, float, float], float]
EXACT: list[tuple[Collective, str, str, Formula]] = [
    # n groups of g ranks; alpha, m beta and m gamma are a, b and f
    (
        ALLREDUCE,
        "two_level_ring",
        "group",
        lambda n, g, a, b, f: 2 * (g + n - 2) * a + (1 - 1 / (g * n)) * (2 * b + f),
    ),
    (
        ALLREDUCE,
        "two_level_recursive_doubling",
        "group",
        lambda n, g, a, b, f: (2 + log2(n)) * a + (g - 1) / g * (2 * b + f) + log2(n) / g * (b + f),
    ),
    (
        ALLREDUCE,
        "two_level_rabenseifner",
        "group",
        lambda n, g, a, b, f: 2 * (1 + log2(n)) * a + (1 - 1 / (g * n)) * (2 * b + f),
    ),
    (
        REDUCE,
        "shared_memory",
        "group",
        lambda n, g, a, b, f: 2 * a + (g - 1) / g * (2 * b + f) + log2(n) * (a + b + f),
    ),
    (REDUCE, "chain_binomial", "length", lambda n, g, a, b, f: (g - 1 + log2(n)) * (a + b + f)),
    (
        ALLREDUCE,
        "chain_binomial",
        "length",
        lambda n, g, a, b, f: (g - 1 + log2(n)) * (2 * a + 2 * b + f),
    ),
    (BCAST, "multicast", "group", lambda n, g, a, b, f: (1 + log2(g)) * (a + b)),
    (
        BCAST,
        "two_level_chain",
        "group",
        lambda n, g, a, b, f: (g + log2(n)) * a + (2 * (g - 1) + log2(n)) / g * b,
    ),
]


def unsegmented(collective: Collective, name: str, p: int, m: int, **params: int) -> Schedule:
    known = algorithms.describe(collective, name).params
    return build(collective, name, p, m, **params, **({"segment": 0} if "segment" in known else {}))


@pytest.mark.parametrize(("collective", "name", "key", "formula"), EXACT)
@pytest.mark.parametrize(("groups", "size"), [(4, 4), (8, 2), (2, 8), (8, 8)])
def test_closed_forms(
    groups: int, size: int, collective: Collective, name: str, key: str, formula: Formula
) -> None:
    m = 64_000
    made = unsegmented(collective, name, groups * size, m, **{key: size})
    expected = formula(groups, size, ALPHA, m * BETA, m * GAMMA)
    assert simulate(made, *flat(groups * size), m) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("groups", "size"), [(4, 4), (8, 2), (2, 8), (8, 8)])
@pytest.mark.parametrize("number", [2, 16, 64])
def test_segmented_forms_and_bounds(groups: int, size: int, number: int) -> None:
    m, p = 4096 * number, groups * size
    a, b, f = ALPHA, 4096 * BETA, 4096 * GAMMA

    def priced(collective: Collective, name: str, **params: int) -> float:
        made = build(collective, name, p, m, segment=4096, **params)
        return simulate(made, *flat(p), m)

    chain, heads = (number + size - 2) * (a + b + f), log2(groups) * (a + number * (b + f))
    assert priced(REDUCE, "chain_binomial", length=size) == pytest.approx(chain + heads)
    rounds = number + groups + size - 3
    assert priced(REDUCE, "chain_of_chains", length=size) <= rounds * (a + 2 * b + 2 * f)
    both = rounds * (2 * a + 2 * (2 * b + f))
    assert priced(ALLREDUCE, "chain_of_chains", length=size) <= both
    assert priced(BCAST, "hierarchical_ring", group=size) <= rounds * (a + 2 * b)
    height = ceil(log2(groups) / 2)
    bound = (number + height + size - 2) * (a + (3 * height + 1) * b)
    assert priced(BCAST, "hierarchical_ring", group=size, radix=4) <= bound
    bound = (number + log2(size)) * (a + (1 + log2(size)) * b)
    assert priced(BCAST, "multicast", group=size) <= bound
    bound = (number + groups + size - 2) * (a + 2 * b)
    assert priced(BCAST, "two_level_chain", group=size) <= bound
    for leaders in (1, 2, size):
        per_round = a + (1 + (size + 1) / leaders) * (b + f)
        bound = (number + 2 * log2(groups) + 1) * per_round
        assert priced(ALLREDUCE, "multi_leader", group=size, leaders=leaders) <= bound


@pytest.mark.parametrize(
    ("groups", "size", "leaders"), [(4, 4, 1), (4, 4, 2), (2, 8, 2), (8, 8, 8)]
)
def test_leaders_share_the_work(groups: int, size: int, leaders: int) -> None:
    m = 64_000
    made = build(
        ALLREDUCE, "multi_leader", groups * size, m, group=size, leaders=leaders, segment=0
    )
    moved = (size - 1 / groups) / leaders * m * (2 * BETA + GAMMA)
    expected = 2 * (1 + log2(groups)) * ALPHA + moved
    assert simulate(made, *flat(groups * size), m) == pytest.approx(expected, rel=1e-9)


def test_a_shared_address_space() -> None:
    """One node: everybody reduces its share, then reads the others'."""
    m = 64_000
    made = build(ALLREDUCE, "shared_memory", 8, group=8)
    expected = 2 * ALPHA + 7 / 8 * m * (2 * BETA + GAMMA)
    assert simulate(made, *flat(8), m) == pytest.approx(expected, rel=1e-9)
    two_nodes = build(ALLREDUCE, "shared_memory", 16, group=8)
    more = 4 * ALPHA + 2 * 7 / 8 * m * BETA + m / 2 * (2 * BETA + GAMMA)
    assert simulate(two_nodes, *flat(16), m) >= expected + more


@ENGINES
def test_staged_forms(engine: str) -> None:
    """A copy to the host and one back, around what the hosts do among themselves."""
    m, p = 64_000, 16
    h, a, b, f = COPY.seconds(m), ALPHA, m * BETA, m * GAMMA
    machine = cluster(p, 1, direct=PathCost.from_alpha_beta(1.0, 1.0))  # nobody goes there
    expected = {
        (ALLREDUCE, "recursive_doubling_staged"): 2 * h + 4 * (a + b + f),
        (ALLREDUCE, "rabenseifner_staged"): 2 * h + 8 * a + 15 / 16 * (2 * b + f),
        (ALLREDUCE, "ring_staged"): 2 * h + 30 * a + 15 / 16 * (2 * b + f),
        (ALLREDUCE, "central_staged"): 2 * h + a + 15 * (b + f) + 4 * (a + b),
        (BCAST, "knomial_staged"): 2 * h + 2 * (a + 3 * b),
    }
    for (collective, name), value in expected.items():
        assert seconds(machine, collective, name, m, engine) == pytest.approx(value), name
    for name in ("recursive_doubling_staged", "rabenseifner_staged", "ring_staged"):
        out_of_place = seconds(machine, ALLREDUCE, name, m, copies=2)
        assert out_of_place == pytest.approx(expected[ALLREDUCE, name] + h, rel=1e-9)


@ENGINES
def test_segments_hide_the_copies(engine: str) -> None:
    """The network moves a segment while the root copies the next one and others the last one."""
    machine, m = cluster(8, 1), 16 * MIB
    whole = seconds(machine, BCAST, "knomial_staged", m, engine, radix=2)
    cut = seconds(machine, BCAST, "knomial_staged", m, engine, radix=2, segment=MIB // 2)
    assert cut < whole - 1.8 * COPY.seconds(m)
    among_hosts = build(BCAST, "knomial", 8, m, radix=2, segment=MIB // 2)
    assert cut < 1.05 * simulate(among_hosts, *machine, m, engine=engine)


def test_the_chain_wins_where_messages_are_large_and_gpus_few() -> None:
    """The thesis of MVAPICH2-GDR's pipelined chain (arXiv 1707.09414)."""

    def chain_over_tree(p: int, nbytes: int, segment: int) -> float:
        machine = flat(p)
        chain = build(BCAST, "pipeline", p, nbytes, segment=segment)
        tree = build(BCAST, "knomial", p, nbytes, radix=2)
        return simulate(chain, *machine, nbytes) / simulate(tree, *machine, nbytes)

    assert chain_over_tree(16, 64 * MIB, MIB) < 0.4
    assert chain_over_tree(64, 8192, 1024) > 1.5


def test_overlap_hides_the_broadcast_inside_nodes() -> None:
    """Eight nodes of eight GPUs take little more than eight single GPUs."""
    inside = PathCost.from_alpha_beta(ALPHA, 0.05e-9)
    m, segment = 64 * MIB, MIB // 2
    alone = seconds(cluster(8, 1), BCAST, "pipeline", m, segment=segment)
    machine = cluster(8, 8, inside=inside)
    overlapped = seconds(machine, BCAST, "hierarchical_ring", m, group=8, segment=segment)
    one_after_the_other = seconds(machine, BCAST, "hierarchical_ring", m, group=8)
    assert overlapped < 1.15 * alone
    assert one_after_the_other > 5 * overlapped


def test_chunked_chains_beat_the_flat_tree_at_160_gpus() -> None:
    """S-Caffe: for large messages, and chains of about eight ranks (PPoPP 2017)."""
    machine, m = cluster(10, 16, inside=PathCost.from_alpha_beta(ALPHA, 0.1e-9)), 64 * MIB
    tree = seconds(machine, REDUCE, "binomial", m)
    chains = {k: seconds(machine, REDUCE, "chain_binomial", m, length=k) for k in (2, 8, 16)}
    assert chains[8] < 0.6 * tree
    assert chains[16] < chains[8] < chains[2]  # here sixteen GPUs share a node
    assert seconds(machine, REDUCE, "chain_of_chains", m, length=16) < chains[16]
    assert seconds(machine, REDUCE, "chain_binomial", 64) < 3 * seconds(
        machine, REDUCE, "binomial", 64
    )


def test_staging_pays_where_gpudirect_is_slow() -> None:
    """Devices read by the NIC at a fifth of the host's rate, as across a PCIe root."""
    machine = cluster(8, 1, direct=PathCost.from_alpha_beta(ALPHA, 5 * BETA))
    for m, wins in ((8 * MIB, True), (64, False)):
        staged = seconds(machine, BCAST, "knomial_staged", m, radix=2)
        straight = seconds(machine, BCAST, "knomial", m, radix=2)
        assert (staged < straight) == wins
        staged = seconds(machine, ALLREDUCE, "rabenseifner_staged", m)
        assert (staged < seconds(machine, ALLREDUCE, "rabenseifner", m)) == wins


@ENGINES
@pytest.mark.parametrize("name", ["multicast", "multicast_staged"])
def test_multicast_does_not_depend_on_the_number_of_nodes(name: str, engine: str) -> None:
    machines = [cluster(nodes, 2, offers=frozenset({"multicast"})) for nodes in (2, 8, 32)]
    times = [seconds(machine, BCAST, name, MIB, engine, group=2) for machine in machines]
    copies = 2 * COPY.seconds(MIB) if name.endswith("_staged") else 0.0
    assert times[0] == pytest.approx(copies + 2 * (ALPHA + MIB * BETA))
    assert times == pytest.approx([times[0]] * 3, rel=1e-9)
    assert times[-1] < 0.5 * seconds(machines[-1], BCAST, "hierarchical", MIB, group=2)


def test_two_levels_beat_one_ring_over_a_slow_network() -> None:
    """Sixteen nodes of eight GPUs with NVLink; each node's network port is shared."""
    machine = cluster(16, 8, inside=PathCost.from_alpha_beta(ALPHA, 0.01e-9))
    for m, ratio in ((64 * 1024, 0.5), (MIB, 0.9)):
        two_levels = seconds(machine, ALLREDUCE, "two_level_rabenseifner", m, group=8)
        assert two_levels < ratio * seconds(machine, ALLREDUCE, "ring", m)
    small = seconds(machine, ALLREDUCE, "two_level_recursive_doubling", 64, group=8)
    assert small < seconds(machine, ALLREDUCE, "two_level_rabenseifner", 64, group=8)


def test_leaders_and_overlap_both_pay() -> None:
    """SALaR: more leaders for large messages, and segments that overlap.

    Ports are shared: a message that waits for the network must not keep NVLink waiting.
    """
    placement, calibration = cluster(8, 8, inside=PathCost.from_alpha_beta(ALPHA, 0.3e-9))
    machine, m = (placement, replace(calibration, port_sharing_threshold=0.0)), 32 * MIB

    def leaders(number: int, segment: int) -> float:
        return seconds(
            machine, ALLREDUCE, "multi_leader", m, group=8, leaders=number, segment=segment
        )

    assert leaders(4, 0) < leaders(2, 0) < leaders(1, 0)
    for number in (1, 2, 4, 8):
        assert leaders(number, MIB) < 0.9 * leaders(number, 0)


def test_a_root_that_averages_for_everybody_does_not_scale() -> None:
    """SHM-Learn-Dist: gathering and averaging grow linearly with the number of ranks."""
    times = [seconds(cluster(n, 1), ALLREDUCE, "central_staged", 8 * MIB) for n in (2, 4, 8, 16)]
    trees = [log2(n) * (ALPHA + 8 * MIB * BETA) for n in (2, 4, 8, 16)]
    gathered = np.subtract(times, trees)
    np.testing.assert_allclose(np.diff(gathered) / [2, 4, 8], 8 * MIB * (BETA + GAMMA), rtol=1e-9)
