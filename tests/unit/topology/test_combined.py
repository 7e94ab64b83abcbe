"""The fabric from one source, the inside of its nodes from another."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.combined import NODE, PAIRS
from tests.support.fabrics import DOWN, NAMES, UP, fabric
from tests.support.nodes import adapter, card, eight, nccl
from tuner.base.errors import InputError
from tuner.machines.topology_files import load_topology, parse_topology
from tuner.topology import Link, Topology
from tuner.topology.readers import combine

OTHER = NODE.replace("mlx5_", "own")
LISTED = """
name: pair
nodes: [a, b]
switches: [s, t]
links:
  - {between: [a, s], latency: 1us, bandwidth: 10GB/s}
  - {between: [a, t], latency: 1us, bandwidth: 10GB/s}
  - {between: [b, s], latency: 1us, bandwidth: 10GB/s, count: 2}
  - {between: [s, t], latency: 1us, bandwidth: 10GB/s}
"""
LINKED = """
name: pair
nodes: 1
latency: 1us
bandwidth: 10GB/s
interior:
  devices:
    - {name: gpu, kind: gpu, product: Prototype, count: 2}
    - {name: cpu, kind: cpu, cores: 8}
  links:
    - {attach: gpu, to: cpu, bandwidth: 26GB/s, latency: 0us, kind: pcie}
    - {among: gpu, bandwidth: 25GB/s, latency: 0us, kind: nvlink}
"""


def read(text: str) -> Topology:
    return parse_topology(text)[1]


def ends(topology: Topology) -> dict[tuple[str, str], float]:
    return {(link.source, link.target): link.capacity for link in topology.links}


def write(directory: Path, **texts: str) -> None:
    for name, text in texts.items():
        (directory / name).write_text(text)


def test_every_node_gets_the_same_inside() -> None:
    node = read(NODE)
    whole = combine(read(PAIRS), node)
    assert {id(each.node_topology) for each in whole.nodes} == {id(node.nodes[0].node_topology)}
    assert {each.cores for each in whole.nodes} == {node.nodes[0].cores}
    assert whole.switches == read(PAIRS).switches
    assert whole.capabilities == {"multicast"}


def test_nics_are_found_by_name() -> None:
    """mlx5_0, on leaf1, is the computer's nic1."""
    found = ends(combine(read(PAIRS), read(NODE)))
    assert ("n2.nic1", "leaf1") in found
    assert ("leaf2", "n2.nic0") in found
    assert ("n2.nic0", "leaf1") not in found


def test_nics_of_other_names_are_taken_in_order() -> None:
    found = ends(combine(read(PAIRS), read(OTHER)))
    assert ("n2.nic0", "leaf1") in found
    assert ("n2.nic1", "leaf2") in found


def test_cables_of_a_fabric_that_knows_no_nics_are_dealt_to_them() -> None:
    whole = combine(read(LISTED), read(NODE))
    assert ends(whole) == {
        ("a.nic0", "s"): 10e9,
        ("s", "a.nic0"): 10e9,
        ("a.nic1", "t"): 10e9,
        ("t", "a.nic1"): 10e9,
        ("b.nic0", "s"): 10e9,
        ("b.nic1", "s"): 10e9,
        ("s", "b.nic0"): 10e9,
        ("s", "b.nic1"): 10e9,
        ("s", "t"): 10e9,
        ("t", "s"): 10e9,
    }
    assert {link.count for link in whole.links} == {1}


def test_rails_widen_the_whole_fabric() -> None:
    tree = "SwitchName=l1 Nodes=n[1-2]\nSwitchName=l2 Nodes=n3\nSwitchName=t Switches=l[1-2]"
    whole = combine(read(tree), read(NODE), rails=2)
    assert Link("n1.nic0", "l1", 12.5e9, 0.0) in whole.links
    assert Link("l1", "t", 50e9, 0.0, count=4) in whole.links


def test_one_nic_keeps_all_cables() -> None:
    one = read(nccl(card("02", 0) + adapter("05", "mlx5_0", 0)))
    assert combine(read(LISTED), one).links == read(LISTED).links


@pytest.mark.parametrize(
    ("whole", "node", "sentence"),
    [
        (
            fabric(NAMES, UP + DOWN),
            NODE,
            "node single has 1 cables on the fabric, but the computer described for it has 2",
        ),
        (PAIRS, nccl(adapter("05", "a", 0)), "node n2 has 2 NICs on the fabric, but .* has 1"),
        (LISTED.replace(", count: 2", ""), NODE, "node b has 1 cables on the fabric"),
        (PAIRS, PAIRS, "topology infiniband has 2 nodes: the inside of a node comes from a file"),
    ],
)
def test_what_does_not_fit_is_named(whole: str, node: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        combine(read(whole), read(node))


def test_a_file_names_both(tmp_path: Path) -> None:
    write(tmp_path, ib=PAIRS, node=NODE)
    write(tmp_path, both="name: mine\ncombine: {fabric: ib, node: node}")
    assert load_topology(tmp_path / "both").name == "mine"
    assert ends(load_topology(tmp_path / "both")) == ends(combine(read(PAIRS), read(NODE)))
    assert load_topology(tmp_path / "ib", tmp_path / "node") == combine(read(PAIRS), read(NODE))


def test_a_file_adds_what_the_fabric_does_not_know(tmp_path: Path) -> None:
    tree = "SwitchName=l1 Nodes=gpu[1-2],disk\nSwitchName=t Switches=l1"
    write(tmp_path, tree=tree, node=NODE)
    told = {
        "fabric": "tree",
        "node": "node",
        "rails": 2,
        "latency": "0.3us",
        "bandwidth": "50GB/s",
        "nodes": "gpu*",
    }
    local = {"latency": "1us", "bandwidth": "9GB/s"}
    write(tmp_path, both=yaml.safe_dump({"combine": told, "local": local}))
    whole = load_topology(tmp_path / "both")
    assert (whole.local_latency, whole.local_bandwidth) == (1e-6, 9e9)
    assert [node.name for node in whole.nodes] == ["gpu1", "gpu2"]
    assert Link("gpu1.nic0", "l1", 50e9, 0.3e-6) in whole.links
    assert Link("l1", "t", 300e9, 0.3e-6, count=6) in whole.links


def test_switches_without_a_node_below_are_left_out(tmp_path: Path) -> None:
    """The only leaf with nodes that are not wanted, and the pod that is above nothing else."""
    tree = (
        "SwitchName=l1 Nodes=gpu[1-2]\nSwitchName=l2 Nodes=gpu3,login1\nSwitchName=l3 Nodes=disk"
        "\nSwitchName=p1 Switches=l[1-2]\nSwitchName=p2 Switches=l3\nSwitchName=t Switches=p[1-2]"
    )
    write(tmp_path, tree=tree, node=NODE)
    write(tmp_path, both="combine: {fabric: tree, node: node, rails: 2, nodes: 'gpu*'}")
    whole = load_topology(tmp_path / "both")
    assert whole.switches == ("l1", "l2", "p1", "t")
    assert whole.switch_levels == {"l1": 1, "l2": 1, "p1": 2, "t": 3}


def test_routers_beside_one_another_stay_without_nodes(tmp_path: Path) -> None:
    ring = "name: ring\nnodes: [a, x, b, y]\nswitches: [r, s, t, u]\nlinks:\n" + "".join(
        f"  - {{between: [{ends}], latency: 1us, bandwidth: 1GB/s}}\n"
        for ends in ("a, r", "x, s", "b, t", "y, u", "r, s", "s, t", "t, u", "u, r")
    )
    write(tmp_path, ring=ring, some="combine: {fabric: ring, nodes: '[ab]'}")
    assert load_topology(tmp_path / "some").switches == ("r", "s", "t", "u")


def test_a_fabric_alone_is_told_latency_and_offers(tmp_path: Path) -> None:
    write(tmp_path, tree="SwitchName=l1 Nodes=n[1-2]")
    write(tmp_path, told="combine: {fabric: tree, latency: 1us, offers: [switch_reduction]}")
    whole = load_topology(tmp_path / "told")
    assert {link.latency for link in whole.links} == {1e-6}
    assert whole.capabilities == {"switch_reduction"}
    assert [node.node_topology for node in whole.nodes] == [None, None]


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ("[ib, node]", "both: combine must be a mapping with fabric"),
        ("{node: node}", "both: combine lacks 'fabric'"),
        ("{fabric: ib, rails: 2}", "both: combine lacks 'node'"),
        ("{fabric: ib, offers: [speed]}", "offers are some of multicast"),
        ("{fabric: ib, node: [7]}", "both: combine: node must be the name of a file"),
        (
            "{fabric: ib, node: node, rails: 0}",
            "both: combine: rails must be a whole number from 1",
        ),
        ("{fabric: ib, node: node, colour: red}", "both: combine has an unknown key 'colour'"),
        ("{fabric: ib, node: node, nodes: 'x*'}", "no node of infiniband is called like 'x*'"),
        ("{fabric: ib, node: gone}", "both: .*gone: cannot be read: No such file"),
        ("{fabric: ib, node: ib}", "both: topology infiniband has 2 nodes"),
        ("{fabric: both, node: node}", "both: .*both: combine names files"),
    ],
)
def test_bad_combinations_are_named(tmp_path: Path, told: str, sentence: str) -> None:
    write(tmp_path, ib=PAIRS, node=NODE, both=f"combine: {told}")
    with pytest.raises(InputError, match=sentence.replace("x*'", "x")):
        load_topology(tmp_path / "both")


def test_a_fabric_is_described_in_place(tmp_path: Path) -> None:
    write(
        tmp_path,
        node=NODE,
        both="combine: {fabric: {nodes: 3, latency: 2us, bandwidth: 25GB/s}, node: node, rails: 2}",
        bad="combine: {fabric: {nodes: 3, latency: 2us}, node: node}",
    )
    whole = load_topology(tmp_path / "both")
    assert (whole.name, len(whole.nodes), len(whole.ports)) == ("cluster", 3, 6)
    with pytest.raises(InputError, match="lacks 'bandwidth'"):
        load_topology(tmp_path / "bad")


def test_a_text_from_elsewhere_opens_no_file(tmp_path: Path) -> None:
    write(tmp_path, ib=PAIRS, node=NODE)
    text = f"combine: {{fabric: {tmp_path / 'ib'}, node: {tmp_path / 'node'}}}"
    with pytest.raises(InputError, match="combine names files, which only a file on this computer"):
        parse_topology(text)


def test_a_cluster_with_a_node_of_another_kind(shared: Path) -> None:
    """A tree of 96 nodes, each with eight GPUs and eight NICs."""
    samples = shared / "data/samples"
    tree = load_topology(samples / "slurm/tree_topology.conf")
    node = load_topology(samples / "nccl_topo/azure_ndv5-topo.xml")
    whole = combine(tree, node, rails=8)
    assert len(whole.ports) == 96 * 8
    with pytest.raises(InputError, match=r"has 1 cables on the fabric, but .* has 8"):
        load_topology(
            samples / "slurm/tree_topology.conf", samples / "nccl_topo/azure_ndv5-topo.xml"
        )


def nvlink_rates(topology: Topology) -> set[float]:
    """The rates of the NVLinks of all nodes."""
    links = [link for inside, _ in topology.node_topologies for link in inside.links]
    return {link.capacity / link.count for link in links if link.kind == "nvlink"}


@pytest.mark.parametrize(("gpu", "rate"), [("GB200", 40.1e9), ("H100", 20.6e9), ("MI300X", 48e9)])
def test_gpus_that_no_file_names_are_named(tmp_path: Path, gpu: str, rate: float) -> None:
    fabric = "{nodes: 2, latency: 1us, bandwidth: 50GB/s}"
    write(
        tmp_path,
        matrix=eight(12, "PXB"),
        both=f"combine: {{fabric: {fabric}, node: matrix, rails: 8, gpu: {gpu}}}",
        alone=f"combine: {{fabric: matrix, gpu: {gpu}}}",
    )
    for name in ("both", "alone"):
        topology = load_topology(tmp_path / name)
        (inside, _), *others = topology.node_topologies
        assert not others, "the nodes are alike"
        assert {one.product for one in inside.devices if one.kind == "gpu"} == {gpu}
        assert list(nvlink_rates(topology)) == [pytest.approx(rate)]
        assert topology.cautions == ()


@pytest.mark.parametrize(
    ("node", "gpu", "sentence"),
    [
        (eight(12, "PXB"), "B201", "unknown GPU 'B201': choose one of K80, P100"),
        (NODE, "H100", "computer says itself that its GPUs are sm80, not H100"),
        ("name: x\nnodes: 2\nlatency: 1us\nbandwidth: 1GB/s\n", "H100", "x has no GPUs that could"),
    ],
)
def test_gpus_that_cannot_be_named(tmp_path: Path, node: str, gpu: str, sentence: str) -> None:
    write(tmp_path, node=node, both=f"combine: {{fabric: node, gpu: {gpu}}}")
    with pytest.raises(InputError, match=sentence):
        load_topology(tmp_path / "both")


def test_unknown_gpus_may_be_taken_for_known_ones_and_keep_their_rates(tmp_path: Path) -> None:
    write(tmp_path, node=LINKED, both="combine: {fabric: node, gpu: H100}")
    topology = load_topology(tmp_path / "both")
    assert nvlink_rates(topology) == {25e9}
    (inside, _), *_ = topology.node_topologies
    assert {one.product for one in inside.devices if one.kind == "gpu"} == {"H100"}
