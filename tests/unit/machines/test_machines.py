"""Presets: structure, sources, and machines that differ in one respect."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest

from tuner.base.errors import InputError
from tuner.core.path_classes import PATH_CLASSES
from tuner.machines import (
    CERTAINTIES,
    PRESETS,
    Machine,
    catalog,
    known_gpus,
    preset,
    preset_spec,
    with_gpu,
    with_nics,
    with_nodes,
    with_taper,
)
from tuner.topology import GPU_LINK_KINDS, Link, NodeTopology, Placement, find_paths
from tuner.topology.readers.fabrics import NetworkCable, OneSwitch, fabric_topology
from tuner.topology.readers.probed_topology import nominal_calibration

MEASURED_ON = {  # machines -> how the sources of numbers measured there call them
    ("dgx-1p",): "Tartan",
    ("dgx-1v", "dgx-2"): "TACCL",
    ("dgx-h100",): "ASTRA-sim",
    ("dgx-a100",): "ABCI",
    ("summit",): "on Summit",
    ("sierra",): "on Lassen",
}

STRUCTURE = {  # GPUs, CPUs, NICs of a node; nodes; switches of the network
    "dgx-1p": (8, 2, 4, 124),
    "dgx-1v": (8, 2, 4, 660),
    "dgx-2": (16, 2, 8, 96),
    "dgx-a100": (8, 2, 8, 140),
    "dgx-h100": (8, 2, 8, 128),
    "hgx-h200": (8, 2, 8, 128),
    "dgx-b200": (8, 2, 8, 128),
    "dgx-b300": (8, 2, 8, 128),
    "gb200-nvl72": (72, 36, 72, 8),
    "gb300-nvl72": (72, 36, 72, 8),
    "l40s": (8, 2, 4, 32),
    "rtx-pro-6000": (8, 2, 4, 32),
    "mi300x": (8, 2, 8, 128),
    "mi325x": (8, 2, 8, 128),
    "mi355x": (8, 2, 8, 64),
    "alps": (4, 4, 4, 2688),
    "frontier": (8, 1, 4, 9856),
    "summit": (6, 2, 2, 4608),
    "sierra": (4, 2, 2, 4320),
    "ri2": (2, 2, 1, 32),
    "kesch": (16, 2, 2, 12),
    "piz-daint": (1, 1, 1, 5704),
    "comet": (4, 2, 1, 72),
}


def inside(machine: Machine) -> NodeTopology:
    interior = machine.topology.nodes[0].node_topology
    assert interior is not None
    return interior


def gpu_links(machine: Machine) -> dict[tuple[int, int], Link]:
    """Direct links between GPUs, each once."""
    return {
        (int(link.source[3:]), int(link.target[3:])): link
        for link in inside(machine).links
        if link.kind in GPU_LINK_KINDS
        and link.source < link.target
        and link.source.startswith("gpu")
        and link.target.startswith("gpu")
    }


def injection(machine: Machine) -> float:
    """Bytes per second that the first node can send."""
    ports = machine.topology.nodes[0].ports
    return sum(link.capacity for link in machine.topology.links if link.source in ports)


def classes(machine: Machine, memory: str) -> set[str]:
    """The path classes between all ranks, one per GPU, of two nodes."""
    gpus = len(inside(machine).device_indices("gpu"))
    placement = Placement.block(machine.topology, gpus, min(2, len(machine.topology.nodes)) * gpus)
    pairs = np.array(list(permutations(range(placement.p), 2)))
    found = find_paths(placement, memory, pairs[:, 0], pairs[:, 1])
    return {PATH_CLASSES[number] for number in found.path_class}


def test_the_file_of_a_bad_preset_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = catalog.preset_path("kesch").read_text(encoding="utf-8")
    (tmp_path / "presets").mkdir()
    broken = tmp_path / "presets" / "broken.yaml"
    broken.write_text(text.replace("\nnodes:", "\nhosts:"), encoding="utf-8")
    monkeypatch.setattr(catalog, "DATA_DIR", tmp_path)
    monkeypatch.setattr(catalog, "PRESETS", ("broken",))
    with pytest.raises(InputError, match=f"^{re.escape(str(broken))}: .*'hosts'"):
        preset_spec("broken")


def test_all_presets_are_known() -> None:
    assert set(PRESETS) == set(STRUCTURE)
    with pytest.raises(InputError, match=r"unknown preset 'dgx-3' .*: choose one of alps, comet, "):
        preset("dgx-3")
    with pytest.raises(InputError, match="a machine has 1 to 65536 nodes, not 0"):
        preset("summit", 0)


@pytest.mark.parametrize("name", PRESETS)
def test_structure(name: str) -> None:
    machine = preset(name)
    interior = inside(machine)
    counted = Counter(device.kind for device in interior.devices)
    gpus, cpus, nics, nodes = STRUCTURE[name]
    assert (counted["gpu"], counted["cpu"], counted["nic"]) == (gpus, cpus, nics)
    assert len(machine.topology.nodes) == nodes
    assert machine.topology.nodes[0].node_topology is machine.topology.nodes[-1].node_topology
    assert machine.topology.nodes[0].cores == sum(d.cores for d in interior.devices) > 0
    products = {device.product for device in interior.devices if device.kind == "gpu"}
    assert machine.spec is not None
    assert products == {machine.spec.product} <= set(known_gpus())


@pytest.mark.parametrize("name", PRESETS)
def test_every_number_has_a_source(name: str) -> None:
    machine = preset(name, 2)
    design = machine.spec
    assert design is not None
    numbers = design.sourced_values()
    assert all(number.source and number.certainty in CERTAINTIES for number in numbers.values())
    assert all(
        source and sure in CERTAINTIES
        for source, sure in (design.fabric_source, *design.capabilities.values())
    )
    assert set(design.capabilities) == machine.topology.capabilities
    for machines, mark in MEASURED_ON.items():
        verified = [n for n in numbers.values() if mark in n.source and n.certainty == "verified"]
        assert name in machines or not verified, "measured on another machine"
    edges = {frozenset((edge.a, edge.b)): edge for edge in design.node_spec.device_links}
    for link in inside(machine).links:
        edge = edges[frozenset((link.source, link.target))]
        assert link.capacity == edge.link_type.rate.value * edge.count
    rates = {design.nic_rate.value, *(wire.value for wire in design.switch_link_rates.values())}
    assert {link.capacity / link.count for link in machine.topology.links} <= rates
    assert {link.latency for link in machine.topology.links} <= {0.0, design.switch_latency.value}
    assert set(machine.calibration.provenance) == set(numbers)


@pytest.mark.parametrize("name", PRESETS)
def test_every_path_that_occurs_has_a_cost_and_no_other(name: str) -> None:
    machine = preset(name, 2)
    priced = {path for path, memory in machine.calibration.paths if memory == "cuda"}
    assert classes(machine, "cuda") == priced - {"self", "staging", "same_gpu"}
    assert {"self", "staging", "same_gpu"} <= priced
    for path in classes(machine, "host") | {"node_oversubscribed", "self"}:
        machine.calibration.path_cost(path, "host")
    assert set(machine.calibration.reduction) == {"host", "cuda", "cuda_by_cpu"}


@pytest.mark.parametrize("name", PRESETS)
def test_times_grow_with_size(name: str) -> None:
    """Within a line; a wrong threshold between two may make a time fall, as it was measured."""
    for cost in preset(name, 1).calibration.paths.values():
        assert cost.segments[-1].beta.value > 0
        for segment in cost.segments:
            assert segment.alpha.value >= 0
            ends = (
                cost.seconds(segment.start_bytes),
                cost.seconds(min(segment.stop_bytes, 2**30) - 1),
            )
            assert ends[1] >= ends[0]
        jumps = [
            (cost.seconds(s.start_bytes - 1), cost.seconds(s.start_bytes))
            for s in cost.segments[1:]
        ]
        assert all(after > before / 3 for before, after in jumps)


def test_cube_mesh_of_dgx_1() -> None:
    pascal, volta = (gpu_links(preset(name, 1)) for name in ("dgx-1p", "dgx-1v"))
    assert set(pascal) == set(volta)
    assert len(pascal) == 16
    assert sum(link.count for link in pascal.values()) == 8 * 4 // 2
    assert sum(link.count for link in volta.values()) == 8 * 6 // 2
    bricks = Counter(gpu for pair, link in volta.items() for gpu in pair for _ in range(link.count))
    assert set(bricks.values()) == {6}
    double = [pair for pair, link in volta.items() if link.count == 2]
    assert ring_of(double, range(8)), "the double links are a ring of eight"


def ring_of(pairs: Iterable[tuple[int, int]], gpus: Sequence[int]) -> bool:
    """Whether a ring through all these GPUs exists."""
    joined = {frozenset(pair) for pair in pairs}
    rings = ((gpus[0], *order, gpus[0]) for order in permutations(gpus[1:]))
    return any(all(frozenset(hop) in joined for hop in pairwise(ring)) for ring in rings)


@pytest.mark.parametrize(("gpus", "exists"), [(3, True), (4, True), (5, False), (8, True)])
def test_nvlink_rings_of_the_first_gpus_of_dgx_1(gpus: int, exists: bool) -> None:
    """Five of eight GPUs have no ring: 0 to 3 and one that is joined with a single one of them."""
    assert ring_of(gpu_links(preset("dgx-1p", 1)), range(gpus)) is exists


@pytest.mark.parametrize(
    ("name", "bricks"),
    [
        ("dgx-2", 6),
        ("dgx-a100", 12),
        ("dgx-h100", 18),
        ("hgx-h200", 18),
        ("dgx-b200", 18),
        ("dgx-b300", 18),
        ("gb200-nvl72", 18),
        ("gb300-nvl72", 18),
    ],
)
def test_nvswitches_join_all_gpus(name: str, bricks: int) -> None:
    machine = preset(name, 1)
    counted = [
        link.count
        for link in inside(machine).links
        if link.target == "nvswitch" and link.source.startswith("gpu")
    ]
    assert counted == [bricks] * STRUCTURE[name][0]
    assert classes(machine, "cuda") == {"nvlink"}
    assert ("nvswitch_reduction" in machine.topology.capabilities) == (bricks == 18)


def test_links_of_gpus_without_switches() -> None:
    """GH200 share 18 NVLinks among three others; MI300X and later have one xGMI link to each."""
    for name, kind, pairs, count in (
        ("alps", "nvlink", 6, 6),
        ("mi300x", "xgmi", 28, 1),
        ("mi325x", "xgmi", 28, 1),
        ("mi355x", "xgmi", 28, 1),
    ):
        links = gpu_links(preset(name, 1))
        assert len(links) == pairs, name
        assert {(link.kind, link.count) for link in links.values()} == {(kind, count)}
        assert classes(preset(name, 1), "cuda") == {"nvlink"}


def test_dies_of_frontier() -> None:
    """Two dies of an MI250X have four links, and each die three neighbours."""
    links = gpu_links(preset("frontier", 1))
    assert Counter(link.count for link in links.values()) == {4: 4, 2: 2, 1: 6}
    assert {link.kind for link in links.values()} == {"xgmi"}
    assert set(Counter(gpu for pair in links for gpu in pair).values()) == {3}
    assert classes(preset("frontier", 1), "cuda") == {"nvlink"}
    near = {
        link.source: link.target
        for link in inside(preset("frontier", 1)).links
        if link.target.startswith("nic") and link.source.startswith("gpu")
    }
    assert near == {f"gpu{number}": f"nic{number // 2}" for number in range(8)}


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("summit", 23e9),
        ("sierra", 23e9),
        ("dgx-1v", 48e9),
        ("dgx-h100", 340.8e9),
        ("piz-daint", 10e9),
        ("kesch", 13e9),
        ("dgx-b300", 760e9),
        ("alps", 96e9),
        ("frontier", 96e9),
    ],
)
def test_injection(name: str, rate: float) -> None:
    assert injection(preset(name, 2)) == pytest.approx(rate)


def test_summit_is_non_blocking_and_sierra_tapers() -> None:
    for name, taper in (("summit", 1.0), ("sierra", 2.0)):
        topology = preset(name).topology
        up = [link for link in topology.links if link.target.startswith("spine")]
        enter = [
            link
            for link in topology.links
            if link.target.startswith("leaf") and link.source.startswith("node")
        ]
        ratio = sum(x.capacity for x in enter) / sum(x.capacity for x in up)
        assert ratio == pytest.approx(taper)


def test_gpus_of_one_switch_use_nics_of_their_own() -> None:
    for name in ("dgx-a100", "dgx-h100"):
        topology = preset(name, 2).topology
        nics = Placement.block(topology, 8).rank_devices("cuda").nic
        assert len(set(nics.tolist())) == 16, name


def test_measured_messages_on_ac922() -> None:
    """What the presets are made of, at sizes that were measured, in microseconds."""
    summit, sierra = (preset(name, 1).calibration for name in ("summit", "sierra"))
    for calibration, path, memory, nbytes, time in (
        (summit, "nvlink", "cuda", 0, 17.4),
        (summit, "network", "cuda", 2**18, 30.6),
        (summit, "network", "cuda", 2**19, 105.8),
        (summit, "node", "host", 2**19, 37.1),
        (summit, "cross_socket", "host", 2**17, 27.7),
        (summit, "network", "host", 2**19, 6.2 + 47.66),
        (sierra, "network", "cuda", 2048, 3.16),
        (sierra, "network", "cuda", 4096, 6.57),
        (sierra, "cross_socket", "cuda", 2**17, 30.9),
        (sierra, "nvlink", "cuda", 2**19, 15 + 7.71),
    ):
        assert calibration.path_cost(path, memory).seconds(nbytes) == pytest.approx(
            time * 1e-6, rel=3e-3
        )


def test_measured_messages_between_a100_nodes() -> None:
    calibration = preset("dgx-a100", 1).calibration
    for memory, times in (
        ("host", (1.47, 4.24, 9.62, 97.56)),
        ("cuda", (3.29, 4.88, 10.67, 280.76)),
    ):
        cost = calibration.path_cost("network", memory)
        for nbytes, time in zip((0, 8192, 65536, 4 << 20), times, strict=True):
            assert cost.seconds(nbytes) == pytest.approx(time * 1e-6)


def test_other_gpus_in_the_same_places() -> None:
    pascal = preset("dgx-1p", 2)
    volta = with_gpu(pascal, "V100")
    assert {d.product for d in inside(volta).devices if d.kind == "gpu"} == {"V100"}
    old, new = gpu_links(pascal), gpu_links(volta)
    for pair, link in new.items():
        assert link.capacity == pytest.approx(old[pair].capacity / 18.41 * 21.7 * 6 / 4)
    hopper = with_gpu(preset("dgx-a100", 2), "H100")
    grace = preset("alps", 2)
    assert inside(with_gpu(grace, "GH200")).links == inside(grace).links  # those to CPUs, too
    assert "nvswitch_reduction" in hopper.topology.capabilities
    assert "nvswitch_reduction" not in with_gpu(hopper, "A100").topology.capabilities
    before, after = (
        m.calibration.path_cost("nvlink", "cuda").seconds(1e6) for m in (pascal, volta)
    )
    assert after < before
    reduction = volta.calibration.reduction["cuda"].gamma.value
    assert reduction == pytest.approx(3 / (0.8 * 900e9))
    assert volta.spec is not None
    assert all(number.source for number in volta.spec.sourced_values().values())


def test_there_and_back_is_the_same_machine() -> None:
    machine = preset("dgx-h100", 3)
    again = with_gpu(with_gpu(machine, "H200"), "H100")
    assert inside(again).devices == inside(machine).devices
    for a, b in zip(inside(again).links, inside(machine).links, strict=True):
        assert a.capacity == pytest.approx(b.capacity)


def test_other_numbers_of_nics() -> None:
    machine = preset("dgx-h100", 4)
    for nics in (1, 2, 4, 8, 16):
        changed = with_nics(machine, nics)
        assert injection(changed) == pytest.approx(nics * 42.6e9)
        places = {link.target for link in inside(changed).links if link.source.startswith("nic")}
        assert len(places) == min(nics, 8)
        assert len(changed.topology.nodes) == 4


def nic_ends(machine: Machine) -> dict[str, set[str]]:
    """Return what each NIC is linked to, in the order of the ports."""
    found: dict[str, set[str]] = {
        device.name: set() for device in inside(machine).devices if device.kind == "nic"
    }
    for link in inside(machine).links:
        if link.source in found:
            found[link.source].add(link.target)
    return found


def test_a_nic_in_the_place_of_another_has_all_its_links() -> None:
    """Two dies of an MI250X and the CPU on Frontier, a GPU and its CPU in GB300 NVL72."""
    assert with_nics(preset("frontier", 2), 4) == preset("frontier", 2)
    few = nic_ends(with_nics(preset("frontier", 2), 2))
    assert few == {"nic0": {"gpu0", "gpu1", "cpu0"}, "nic1": {"gpu4", "gpu5", "cpu0"}}
    more = nic_ends(with_nics(preset("frontier", 2), 8))
    assert more["nic0"] == more["nic1"] == {"gpu0", "gpu1", "cpu0"}
    rack = with_nics(preset("gb300-nvl72", 2), 36)
    half = nic_ends(rack)
    assert half["nic1"] == {"gpu2", "cpu1"}
    # of the four rails, each one NIC of every tray, two are left, on a leaf each
    assert list(half)[:2] == ["nic0", "nic2"]
    leaves = {link.source: link.target for link in rack.topology.links}
    first = {leaves[f"node0.nic{number}"] for number in range(0, 36, 2)}
    assert len(first) == 1
    assert leaves["node0.nic1"] not in first


def test_gpus_without_a_nic_send_through_their_cpu() -> None:
    machine = with_nics(preset("frontier", 2), 2)
    interior = inside(machine)
    number = {device.name: i for i, device in enumerate(interior.devices)}
    route = interior.routes[number["gpu2"], number["nic0"]]
    assert [interior.links[i].target for i in route if i >= 0] == ["cpu0", "nic0"]


def test_other_tapers_and_numbers_of_nodes() -> None:
    machine = preset("summit", 72)
    up = {
        ratio: sum(
            link.capacity
            for link in with_taper(machine, ratio).topology.links
            if link.target.startswith("spine")
        )
        for ratio in (1.0, 1.5, 2.0, 4.0)
    }
    for ratio, capacity in up.items():
        assert capacity == pytest.approx(up[1.0] / ratio)
    assert len(with_nodes(machine, 7).topology.nodes) == 7
    tapered = with_nodes(with_taper(machine, 2.0), 36)
    assert tapered.spec is not None
    assert tapered.spec.fabric.summary.endswith("2:1 above the leaves")


def test_what_cannot_be_changed_is_said() -> None:
    flat = fabric_topology("flat", 4, OneSwitch(NetworkCable(1e9)))
    drawn = Machine("flat", flat, nominal_calibration(flat))
    with pytest.raises(InputError, match="flat came from a file"):
        with_nics(drawn, 2)
    with pytest.raises(InputError, match="a taper belongs to a fat tree"):
        with_taper(preset("piz-daint", 8), 2.0)
    with pytest.raises(InputError, match="from 1 to 18"):
        with_taper(preset("summit", 8), 0.5)
    with pytest.raises(InputError, match="K80 has no NVLink, which summit needs"):
        with_gpu(preset("summit", 8), "K80")
    with pytest.raises(InputError, match="MI300X has no NVLink, which dgx-h100 needs"):
        with_gpu(preset("dgx-h100", 1), "MI300X")
    with pytest.raises(InputError, match="H100 has no xGMI, which mi300x needs"):
        with_gpu(preset("mi300x", 1), "H100")
    with pytest.raises(InputError, match="unknown GPU 'TPU': choose one of K80, P100"):
        with_gpu(preset("summit", 8), "TPU")
    with pytest.raises(InputError, match="1 to 128 NICs, not 0"):
        with_nics(preset("summit", 8), 0)
