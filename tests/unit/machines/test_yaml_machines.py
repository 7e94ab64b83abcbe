"""YAML forms beyond one switch and listed links: fabrics, interiors, presets; and references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tuner.base.errors import InputError
from tuner.core.path_classes import PATH_CLASSES
from tuner.machines import preset
from tuner.machines.loader import load_machine
from tuner.machines.topology_files import load_topology, parse_topology
from tuner.machines.yaml_machines import machine_from_preset_reference, machine_from_yaml
from tuner.topology import Placement, Topology, find_paths
from tuner.topology.readers import topology_from_record, topology_to_record

WIRE = "latency: 1us, bandwidth: 12.5GB/s"
TREE = f"""
name: tree
nodes: 64
cores: 4
fabric: {{kind: fat_tree, per_leaf: 16, taper: 2, {WIRE}}}
"""
PAIRS = """
name: pairs
nodes: 3
latency: 2us
bandwidth: 25GB/s
offers: [multicast]
interior:
  devices:
    - {name: cpu, kind: cpu, product: EPYC 7742, cores: 64}
    - {name: gpu, kind: gpu, product: A100, count: 4}
    - {name: nic, kind: nic, count: 2}
  links:
    - {between: [cpu, gpu0], bandwidth: 26GB/s, latency: 0us, kind: pcie}
    - {between: [cpu, gpu1], bandwidth: 26GB/s, latency: 0us, kind: pcie}
    - {between: [cpu, gpu2], bandwidth: 26GB/s, latency: 0us, kind: pcie}
    - {between: [cpu, gpu3], bandwidth: 26GB/s, latency: 0us, kind: pcie}
    - {between: [cpu, nic0], bandwidth: 26GB/s, latency: 0us, kind: pcie}
    - {between: [cpu, nic1], bandwidth: 26GB/s, latency: 0us, kind: pcie}
    - {between: [gpu0, gpu1], bandwidth: 22GB/s, latency: 0us, kind: nvlink, count: 4}
"""


def read(text: str) -> Topology:
    return parse_topology(text)[1]


def with_fabric(shape: str, nodes: int = 64) -> Topology:
    return read(f"name: x\nnodes: {nodes}\nfabric: {{{shape}}}\n")


def test_fat_tree() -> None:
    tree = read(TREE)
    assert (len(tree.nodes), tree.nodes[0].cores) == (64, 4)
    assert len(tree.switches) == 4 + 8
    assert {link.capacity for link in tree.links} == {12.5e9}
    same = with_fabric(f"kind: fat_tree, per_leaf: 16, uplinks: 8, {WIRE}")
    assert same.links == tree.links


def test_all_kinds_of_fabrics() -> None:
    assert with_fabric(f"kind: switch, {WIRE}").switches == ("switch",)
    three = with_fabric(f"kind: fat_tree, per_leaf: [4, 4], uplinks: [4, 4], {WIRE}")
    assert len(three.switches) == 48
    torus = with_fabric(
        f"kind: torus, shape: [4, 4, 4], {WIRE}, link: {{latency: 0us, bandwidth: 5GB/s}}"
    )
    assert torus.routing == "first"
    assert {link.capacity for link in torus.links} == {12.5e9, 5e9}
    ring = with_fabric(f"kind: torus, shape: 64, {WIRE}")
    assert len(ring.links) == 4 * 64
    fly = with_fabric(f"kind: dragonfly, routers: [4], per_router: 2, outward: 2, {WIRE}")
    assert len(fly.switches) == 32


def test_an_interior_by_hand() -> None:
    topology = read(PAIRS)
    assert topology.nodes[0].cores == 64
    assert topology.nodes[0].node_topology is topology.nodes[2].node_topology
    assert topology.ports[:3] == ("node0.nic0", "node0.nic1", "node1.nic0")
    assert topology.capabilities == {"multicast"}
    placement = Placement.block(topology, 4)
    found = find_paths(placement, "cuda", np.array([0, 0, 0]), np.array([1, 2, 4]))
    assert [PATH_CLASSES[c] for c in found.path_class] == ["nvlink", "pcie", "network"]
    assert found.bandwidth.tolist() == [88e9, 26e9, 25e9]
    assert topology_from_record(topology_to_record(topology)) == topology


def test_an_interior_on_a_fabric_with_rails() -> None:
    inside = PAIRS.partition("offers")[2].partition("\n")[2]
    rails = f"fabric: {{kind: fat_tree, per_leaf: 4, rails: true, {WIRE}}}"
    topology = read(f"name: rails\nnodes: 8\n{rails}\n{inside}")
    leaf = {link.source: link.target for link in topology.links}
    assert (leaf["node0.nic0"], leaf["node0.nic1"], leaf["node4.nic0"]) == (
        "leaf0",
        "leaf1",
        "leaf2",
    )


def test_a_preset_with_changes() -> None:
    machine = machine_from_yaml(
        {"preset": "dgx-a100", "nodes": 8, "gpu": "H100", "nics": 4, "taper": 2}
    )
    known = preset("dgx-a100", 8)
    assert len(machine.topology.nodes) == 8
    assert len(machine.topology.ports) == 32
    assert machine.spec is not None
    assert (machine.spec.product, machine.spec.fabric.summary) == (
        "H100",
        "fat tree of 2 levels, 20 ports per leaf, one rail per NIC, 2:1 above the leaves",
    )
    assert machine.calibration.paths.keys() == known.calibration.paths.keys()
    assert (
        machine_from_yaml({"preset": "summit", "nodes": 16}).topology
        == preset("summit", 16).topology
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "preset: summti",
            r"unknown preset 'summti' \(did you mean 'summit'\?\): choose one of alps",
        ),
        ("preset: summit\nnodes: 0", "nodes must be a whole number from 1"),
        ("preset: summit\nlinks: []", "unknown key 'links'; known: accuracy, fabric, gpu, gpus"),
        ("preset: summit\ntaper: two", "taper must be a number above 0, not 'two'"),
        ("preset: summit\ntaper: .inf", "taper must be a number above 0, not inf"),
        ("preset: comet\ngpu: [V100]", "gpu must be a name"),
        ("name: x\nnodes: 4\nfabric: tree", "fabric: kind is one of switch, fat_tree, dragonfly"),
        ("name: x\nnodes: 4\nfabric: {kind: [1]}", r"torus, not \[1\]"),
        ("name: x\nnodes: 4\nfabric: {kind: switch}", "fabric lacks 'bandwidth'"),
        (f"name: x\nnodes: 4\nfabric: {{kind: switch, {WIRE}, taper: 2}}", "unknown key 'taper'"),
        (f"name: x\nnodes: 4\nfabric: {{kind: switch, {WIRE}}}\nlinks: []", "unknown key 'fabric'"),
        (f"name: x\nnodes: 4\nfabric: {{kind: fat_tree, {WIRE}}}", "fabric lacks 'per_leaf'"),
        (
            f"name: x\nnodes: 4\nfabric: {{kind: fat_tree, uplinks: 2, taper: 2, per_leaf: 4, "
            f"{WIRE}}}",
            "write `uplinks` or `taper`, not both",
        ),
        (
            f"name: x\nnodes: 4\nfabric: {{kind: fat_tree, per_leaf: 4, taper: 5, {WIRE}}}",
            "taper must be from 1 to per_leaf, 4, not 5",
        ),
        (
            f"name: x\nnodes: 4\nfabric: {{kind: fat_tree, per_leaf: [4, 4], uplinks: 4, {WIRE}}}",
            "one number for each level",
        ),
        (
            f"name: x\nnodes: 4\nfabric: {{kind: fat_tree, per_leaf: 4, rails: 2, {WIRE}}}",
            "rails must be true or false",
        ),
        (f"name: x\nnodes: 4\nfabric: {{kind: torus, shape: [], {WIRE}}}", "of 1 to 8 numbers"),
        (f"name: x\nnodes: 9\nfabric: {{kind: torus, shape: [2, 4], {WIRE}}}", "9 nodes do not"),
        (
            f"name: x\nnodes: 4\nfabric: {{kind: torus, shape: 4, {WIRE}, link: 3}}",
            "fabric: link must be a mapping with bandwidth, latency",
        ),
        (PAIRS.replace("kind: nic,", "kind: card,"), "device 3: kind is one of gpu, cpu, nic"),
        (PAIRS.replace("kind: nvlink", "kind: wire"), "link 7: kind is one of network, nvlink"),
        (PAIRS.replace("[gpu0, gpu1]", "[gpu0, gpu7]"), "there is no node or switch 'gpu7'"),
        (PAIRS.replace("[cpu, gpu3]", "[gpu2, gpu3]"), "gpu3 cannot be reached from cpu"),
        (PAIRS.replace("[cpu, gpu3]", "[cpu, gpu2]"), "link cpu -> gpu2 is written twice"),
        (
            PAIRS.replace("count: 4}\n    - {name: nic", "count: 400}\n    - {name: nic"),
            "device 2: count must be a whole number from 1 to 256",
        ),
        (PAIRS.replace("offers: [multicast]", "offers: [magic]"), "offers are some of multicast"),
        (
            "name: x\nnodes: 4\nlatency: 1us\nbandwidth: 1GB/s\ninterior: {devices: [], links: []}",
            "a list of at least one device",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        read(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "shape",
    [
        "kind: fat_tree, per_leaf: 1, uplinks: 65536",
        "kind: fat_tree, per_leaf: [1, 1, 1, 1, 1, 1], uplinks: [99, 99, 99, 99, 99, 99]",
        "kind: torus, shape: [65536, 65536, 65536]",
        "kind: dragonfly, routers: 65536, outward: 65536, groups: 65536",
        "kind: dragonfly, routers: [256, 256], per_router: 1",
    ],
)
def test_a_short_text_cannot_stand_for_too_much(shape: str) -> None:
    with pytest.raises(InputError, match="can be simulated; make it smaller"):
        with_fabric(f"{shape}, {WIRE}", 65536)


def test_references_to_presets(tmp_path: Path) -> None:
    machine = load_machine("preset:summit:16")
    assert len(machine.topology.nodes) == 16
    assert machine.calibration == preset("summit").calibration
    assert len(machine_from_preset_reference("preset:ri2").topology.nodes) == 32
    assert load_topology(Path("preset:comet:3")) == preset("comet", 3).topology
    for wrong in ("preset:summit:", "preset:summit:many", "preset:summit:-1", "preset:summit:²"):
        with pytest.raises(InputError, match="must be a whole number; write it like"):
            load_machine(wrong)
    with pytest.raises(InputError, match="has an inside already"):
        load_machine("preset:summit", node_topology=tmp_path / "node.xml")


def test_machines_from_files(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(TREE)
    machine = load_machine("tree.yaml", tmp_path)
    assert machine.spec is None
    assert machine.calibration.nominal
    assert machine.topology == read(TREE)
    (tmp_path / "mine.yaml").write_text("# larger\npreset: sierra\nnodes: 5\n")
    machine = load_machine(tmp_path / "mine.yaml")
    assert len(machine.topology.nodes) == 5
    assert not machine.calibration.nominal
    (tmp_path / "wrong.yaml").write_text("preset: siera\n")
    with pytest.raises(InputError, match=r"wrong\.yaml: unknown preset 'siera'"):
        load_machine(tmp_path / "wrong.yaml")
    with pytest.raises(InputError, match=r"absent\.yaml: cannot be read"):
        load_machine("absent.yaml", tmp_path)
