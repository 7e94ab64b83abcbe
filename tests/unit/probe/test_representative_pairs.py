"""Which hosts stand for what on a topology, and which ranks of a host for what is inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.probed import UPLINK, Machine, racks, truth
from tuner.base.errors import InputError
from tuner.calibrate import calibrate
from tuner.cli.main import main
from tuner.core.measurement import Measurement
from tuner.launch import Hosts
from tuner.machines.topology_files import parse_topology
from tuner.probe.multi_host import plan_cluster
from tuner.probe.p2p_points import COARSE_INDEX_BASE
from tuner.probe.probe_plan import ON_ONE_SOCKET, ON_TWO_SOCKETS, ProbePlan, ProbePoint
from tuner.probe.probe_spec import ProbeShape, ProbeSpec
from tuner.probe.rank_layout import RankLayout, socket_of, socket_pair
from tuner.probe.representative_pairs import ProbedHosts
from tuner.topology import Topology

TWO = racks(4)
NAMES = tuple(node.name for node in TWO.nodes)
MIXED = ("n4", "n0", "n1", "n5", "n6", "n2")  # racks taken in turn
FLAT = parse_topology("{name: flat4, nodes: 4, latency: 200us, bandwidth: 100Mbit/s}")[1]


def planned(hosts: tuple[str, ...], topology: Topology | None, ppn: int = 1) -> ProbePlan:
    request = ProbeSpec("openmpi", Hosts(hosts), ppn, parts=("messages", "shared"))
    return plan_cluster(ProbeSpec(**{**vars(request), "topology": topology}))


def of_kind(plan: ProbePlan, kind: str, subject: str) -> list[ProbePoint]:
    return [q for q in plan.points if (q.kind, q.subject) == (kind, subject)]


def test_every_distance_has_a_pair_and_the_nearest_comes_first() -> None:
    assert ProbedHosts(TWO, NAMES).pair_per_distance() == [(0, 1), (0, 4)]
    assert ProbedHosts(TWO, MIXED).pair_per_distance() == [(0, 3), (0, 1)]
    assert ProbedHosts(FLAT, ("node0", "node1")).pair_per_distance() == [(0, 1)]


def test_hosts_near_to_one_another_are_those_of_the_largest_switch() -> None:
    assert ProbedHosts(TWO, NAMES).largest_near_set() == [0, 1, 2, 3]
    assert ProbedHosts(TWO, MIXED).largest_near_set() == [0, 3, 4]
    assert ProbedHosts(TWO, ("n0", "n5", "n4", "n6")).largest_near_set() == [1, 2, 3]
    assert ProbedHosts(FLAT, tuple(f"node{n}" for n in range(4))).largest_near_set() == [0, 1, 2, 3]


def test_hosts_near_to_one_another_are_found_among_many() -> None:
    large = racks(300)
    names = tuple(node.name for node in large.nodes)
    assert ProbedHosts(large, names).largest_near_set() == list(range(64))
    uneven = (*names[:5], *names[300:500])
    assert ProbedHosts(large, uneven).largest_near_set() == list(range(5, 69))


@pytest.mark.parametrize(
    ("hosts", "topology", "exchanging"),
    [
        (NAMES, TWO, [((), 4, {1})]),
        (NAMES[2:], racks(4), [((2, 3, 4, 5), 4, {1})]),
        (MIXED, TWO, [((), 6, {0})]),  # three in a rack cannot take turns
        (NAMES, None, [((), 8, {0})]),
        ((*NAMES, "n8"), racks(5), [((), 4, {1}), ((), 5, {1})]),  # pairs, and a ring of all five
    ],
)
def test_exchanges_are_measured_where_no_uplink_is_crossed(
    hosts: tuple[str, ...],
    topology: Topology | None,
    exchanging: list[tuple[tuple[int, ...], int, set[int]]],
) -> None:
    points = [q for q in of_kind(planned(hosts, topology), "exchange", "network") if q.p > 2]
    found = [(q.hosts, q.p, {arm.params.get("near", 0) for arm in q.candidates}) for q in points]
    assert found == exchanging


def test_pairs_of_an_uplink_all_cross_it_in_one_direction() -> None:
    (pairs,) = ProbedHosts(TWO, MIXED).pairs_per_uplink_kind()
    racks_of = [[MIXED[n] > "n3" for n in pair] for pair in pairs]
    assert len(pairs) == 3
    assert len({n for pair in pairs for n in pair}) == 6
    assert racks_of in ([[True, False]] * 3, [[False, True]] * 3)
    assert ProbedHosts(FLAT, ("a", "b", "c", "d")).pairs_per_uplink_kind() == []


def test_sets_of_hosts_side_by_side_lie_alike_and_share_no_links() -> None:
    reach = ProbedHosts(TWO, NAMES)
    assert [reach.find_equivalent_sets(n) for n in (1, 2, 3, 4, 5)] == [
        list(range(8)),
        [0, 2, 4, 6],
        [0, 4],
        [0, 4],
        [0],
    ]
    three = racks(3)
    assert ProbedHosts(three, tuple(node.name for node in three.nodes)).find_equivalent_sets(2) == [
        0,
        3,
    ]
    assert ProbedHosts(TWO, MIXED).find_equivalent_sets(2) == [
        0
    ]  # each pair crosses the racks: over one uplink
    names = tuple(f"node{n}" for n in range(4))
    assert ProbedHosts(FLAT, names).find_equivalent_sets(2) == [0, 2]


def test_a_shape_is_measured_where_it_means_the_same() -> None:
    """Three of eight hosts: two in one rack and one in the other are something else."""
    request = ProbeSpec("openmpi", Hosts(NAMES), 1, (ProbeShape(3, 1),), parts=("collectives",))
    for topology, begins in ((TWO, {0, 4}), (None, {0, 3})):
        points = plan_cluster(replace(request, topology=topology)).points
        assert {q.first_host for q in points if q.kind == "collective"} == begins


def test_kinds_of_uplinks_are_told_apart() -> None:
    ends = [(node, f"l{n // 2}") for n, node in enumerate("abcdefgh")]
    ends += [(f"l{n}", f"s{n // 2}") for n in range(4)] + [("s0", "top"), ("s1", "top")]
    links = ", ".join(
        f"{{between: [{a}, {b}], latency: 1us, bandwidth: {1 + (b == 'top')}GB/s}}" for a, b in ends
    )
    tree = parse_topology(
        "{name: tree, nodes: [a, b, c, d, e, f, g, h], switches: [l0, l1, l2, l3, s0, s1, top],"
        f" links: [{links}]}}"
    )[1]
    names = tuple("abcdefgh")
    assert sorted(map(len, ProbedHosts(tree, names).pairs_per_uplink_kind())) == [2, 4]
    points = of_kind(planned(names, tree), "pairs", "uplink")
    assert {(q.index, q.p, q.candidates[0].params.get("of", 0)) for q in points} in (
        {(0, 2, 0), (0, 4, 0), (1, 2, 1), (1, 4, 1), (1, 8, 1)},
        {(1, 2, 1), (1, 4, 1), (0, 2, 0), (0, 4, 0), (0, 8, 0)},
    )
    keys = [q.key for q in planned(names, tree).points]
    assert len(keys) == len(set(keys))


def test_a_plan_measures_each_distance_with_the_hosts_named() -> None:
    points = of_kind(planned(MIXED, TWO), "pingpong", "network")
    found = [(q.hosts, q.candidates[0].params) for q in points]
    near, far = {"first": 0, "second": 3}, {"first": 0, "second": 1}
    assert found == [
        ((0, 3), {**near, "of": COARSE_INDEX_BASE}),
        ((), {**far, "of": COARSE_INDEX_BASE + 1}),
        ((0, 3), near),
        ((), {**far, "of": 1}),
    ]
    without = of_kind(planned(MIXED, None), "pingpong", "network")
    assert [(q.hosts, q.candidates[0].params) for q in without] == [
        ((), {"of": COARSE_INDEX_BASE}),
        ((), {}),
    ]


def test_a_fan_goes_to_the_nearest_hosts() -> None:
    (fan,) = of_kind(planned(MIXED, TWO), "fan", "network")
    assert fan.hosts[:3] == (0, 3, 4)
    assert {arm.params["peers"] for arm in fan.candidates} == {1, 2, 4}
    assert of_kind(planned(NAMES[:2], None), "fan", "network") == []


def test_hosts_that_are_not_on_the_topology_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="no node moon"):
        planned(("n0", "moon"), TWO)
    with pytest.raises(InputError, match="has 4 nodes, 5 hosts"):
        planned(("v", "w", "x", "y", "z"), FLAT)
    file = tmp_path / "flat.yaml"
    file.write_text("{name: flat4, nodes: 4, latency: 200us, bandwidth: 100Mbit/s}")
    words = ["probe", "plan", "--hosts", "node0,node1,node3,node9", "--topology", str(file)]
    assert main(words) == 1
    assert "no node node9" in capsys.readouterr().err
    assert main([*words[:3], "node0,node1,node3", *words[4:]]) == 0
    assert "fan network 3x1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sockets", "near", "apart"),
    [
        ((0, 0, 1, 1), (0, 1), (0, 2)),
        ((0, 1, 0, 1), (0, 2), (0, 1)),
        ((0, 1), (0, 1), (0, 1)),
        ((0, 0), (0, 1), ()),
        ((-1, -1), (0, 1), ()),
        ((-1, 0, 1), (0, 1), (1, 2)),
    ],
)
def test_two_ranks_of_a_host_are_chosen_by_their_sockets(
    sockets: tuple[int, ...], near: tuple[int, ...], apart: tuple[int, ...]
) -> None:
    assert socket_pair(sockets, cross_socket=False) == near
    assert socket_pair(sockets, cross_socket=True) == apart
    layout = RankLayout(("h",), (tuple(range(10, 10 + len(sockets))),), (sockets,))
    assert layout.select_ranks((1, 2, 0, (), ON_ONE_SOCKET)) == [10 + n for n in near]
    assert layout.select_ranks((1, 2, 0, (), ON_TWO_SOCKETS)) == [10 + n for n in apart]


def test_a_rank_is_on_a_socket_if_all_its_cores_are(tmp_path: Path) -> None:
    for core, package in enumerate("0011"):
        place = tmp_path / f"cpu{core}" / "topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{package}\n")
    assert [socket_of(cores, tmp_path) for cores in ({0, 1}, {2}, {1, 2}, {9})] == [0, 1, -1, -1]


def test_both_kinds_of_pairs_in_a_node_are_planned() -> None:
    plan = planned(NAMES[:2], None, ppn=2)
    (far,) = of_kind(plan, "pingpong", "cross_socket")
    coarse, near = of_kind(plan, "pingpong", "node")
    assert coarse.index == COARSE_INDEX_BASE
    assert (far.rank_set[-1], near.rank_set[-1]) == (ON_TWO_SOCKETS, ON_ONE_SOCKET)


MACHINE = Machine(TWO, truth())


def fans(first_waits: float) -> Iterator[Measurement]:
    """Of a port under which the first message waits for so much of the others."""
    for nbytes in (2**13, 2**16, 2**19):
        lone = MACHINE.one_way([0, 1], nbytes)
        for peers in (1, 2, 4):
            last = lone + (peers - 1) * nbytes / UPLINK
            yield from MACHINE.series("fan", "network", 5, nbytes, last, peers=peers)
            first = lone + first_waits * (last - lone)
            yield from MACHINE.series("fan", "network", 5, nbytes, first, peers=peers, nth=1)


@pytest.mark.parametrize(
    ("waits", "shared_from", "said"),
    [(0.0, float("inf"), False), (1.0, 2**13, False), (0.5, float("inf"), True)],
)
def test_fans_show_whether_messages_share_a_port(
    waits: float, shared_from: float, said: bool
) -> None:
    found = calibrate(MACHINE.measured(MACHINE.messages(), fans(waits)))
    assert found.port_sharing_threshold == shared_from
    gaps = " ".join(found.provenance["undetermined"])
    assert ("the first waits for 50% of the others" in gaps) == said
    assert ("port_sharing_threshold" in gaps) == said
