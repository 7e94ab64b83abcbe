"""`tuner topology`: what is listed, shown and drawn, and what is said about mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from tuner.cli.main import main
from tuner.machines import PRESETS, preset
from tuner.machines.topology_files import parse_topology
from tuner.report.drawing import render_image
from tuner.report.fabric_diagram import draw_fabric
from tuner.report.node_diagram import draw_node
from tuner.topology import Device, Link, Node, NodeTopology, Topology
from tuner.topology.readers.fabrics import (
    Dragonfly,
    Fabric,
    FatTree,
    NetworkCable,
    OneSwitch,
    Torus,
)
from tuner.topology.readers.fabrics import fabric_topology as built

WIRE = NetworkCable(12.5e9)

INTERLEAVED = Topology(  # nodes take turns at two leaves
    "turns",
    tuple(Node(f"node{i}") for i in range(10)),
    ("leaf0", "leaf1", "top"),
    tuple(link for i in range(10) for link in WIRE.links_between(f"node{i}", f"leaf{i % 2}"))
    + WIRE.links_between("leaf0", "top")
    + WIRE.links_between("leaf1", "top"),
)


def output(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["topology", *words]) == 0
    return capsys.readouterr().out


def complaint(capsys: pytest.CaptureFixture[str], *words: str, status: int = 1) -> str:
    assert main(["topology", *words]) == status
    said = capsys.readouterr().err
    assert said.startswith("tuner: ")
    assert said.count("\n") == 1
    return said


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "list")
    assert all(name in text for name in PRESETS)
    records = json.loads(output(capsys, "list", "--json"))
    assert [record["name"] for record in records] == list(PRESETS)
    assert records[PRESETS.index("summit")]["nodes"] == 4608
    assert all(record["source"] for record in records)


@pytest.mark.representative("dgx-1v", "summit", "piz-daint")
@pytest.mark.parametrize("name", PRESETS)
def test_show(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "show", name, "--nodes", "3")
    assert f"3 nodes of {preset(name, 1).topology.nodes[0].cores:,} cores" in text
    assert all(heading in text for heading in ("links inside", "costs of messages", "other"))
    record = json.loads(output(capsys, "show", name, "--nodes", "3", "--json"))
    assert record["nodes"] == 3
    assert all(link["rate"]["source"] and link["rate"]["certainty"] for link in record["links"])
    assert all(number["source"] for number in record["numbers"].values())
    assert {(path["path_class"], path["memory"]) for path in record["paths"]} >= {
        ("network", "cuda"),
        ("network", "host"),
        ("staging", "cuda"),
    }


def test_a_preset_is_also_shown_as_other_commands_call_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert output(capsys, "show", "preset:summit:3") == output(
        capsys, "show", "summit", "--nodes", "3"
    )


def test_show_says_numbers_and_sources(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    text = output(capsys, "show", "dgx-1v")
    row = next(line for line in text.splitlines() if "nvlink" in line and "43.4 GB/s" in line)
    assert "verified: 46 us per MB on a single link of DGX-1V, TACCL" in row
    assert "gpu0-gpu1, gpu0-gpu4" in row


def test_show_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "flat.yaml"
    path.write_text("name: flat\nnodes: 8\ncores: 2\nlatency: 2us\nbandwidth: 12.5GB/s\n")
    text = output(capsys, "show", str(path))
    assert "8 nodes of 2 cores" in text
    assert "costs: as the topology says" in text
    record = json.loads(output(capsys, "show", str(path), "--json"))
    assert record["fabric"]["links"] == [{"cables": 8, "capacity": 12.5e9, "latency": 1e-6}]
    assert record["numbers"] == {}


def test_cables_are_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in the picture: three cables of one link and one of the other."""
    path = tmp_path / "two.yaml"
    path.write_text(
        "name: two\nnodes: [a, b]\nswitches: [s]\nlinks:\n"
        "  - {between: [a, s], latency: 1us, bandwidth: 5GB/s, count: 3}\n"
        "  - {between: [b, s], latency: 1us, bandwidth: 5GB/s}\n"
    )
    text = output(capsys, "show", str(path))
    assert "2 nodes of 1 core, 1 switch\n" in text
    (row,) = (line.split() for line in text.splitlines() if "GB/s" in line)
    assert row == ["4", "5", "GB/s", "1us"]
    output(capsys, "draw", str(path), "-o", str(tmp_path / "two.svg"))
    assert "4 cables, 20 GB/s upwards" in (tmp_path / "two.svg").read_text()


def test_one_computer_has_no_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("name: one\nnodes: [a]\nlinks: []\n")
    text = output(capsys, "show", str(path))
    assert "1 node of 1 core, 0 switches" in text
    assert "network" not in text


def test_rates_of_a_file_have_a_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "inside.yaml"
    path.write_text(
        "name: one\nnodes: [a]\nlinks: []\ninterior:\n"
        "  devices: [{name: cpu, kind: cpu}, {name: gpu, kind: gpu}]\n"
        "  links: [{between: [cpu, gpu], bandwidth: 10GB/s, latency: 1us, kind: pcie}]\n"
    )
    row = next(x for x in output(capsys, "show", str(path)).splitlines() if "10 GB/s" in x)
    assert "as the file says, or nominal" in row


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meant = "'summti' (did you mean 'summit'?)"
    assert f"unknown preset or file {meant}" in complaint(capsys, "show", "summti")
    assert f"unknown preset {meant}" in complaint(capsys, "show", "preset:summti:4")
    twice = complaint(capsys, "show", "preset:summit:4", "--nodes", "3")
    assert "with costs, not for 'preset:summit:4'" in twice
    assert "absent.yaml: cannot be read" in complaint(capsys, "show", "absent.yaml")
    many = complaint(capsys, "show", "summit", "--nodes", "65537")
    assert "1 to 65536 nodes, not 65537" in many
    path = tmp_path / "flat.yaml"
    path.write_text("name: flat\nnodes: 8\nlatency: 2us\nbandwidth: 12.5GB/s\n")
    assert "--nodes is for a preset" in complaint(capsys, "show", str(path), "--nodes", "3")
    wrong = complaint(capsys, "draw", "summit", "-o", str(tmp_path / "picture.pdf"), status=2)
    assert "the name of a picture ends in .svg or .png" in wrong
    said = complaint(capsys, "draw", str(path), "--view", "node", "-o", str(tmp_path / "x.svg"))
    assert "does not say what is inside its nodes" in said
    assert not (tmp_path / "x.svg").exists()


def test_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg, png = tmp_path / "node.svg", tmp_path / "fabric.png"
    assert str(svg) in output(capsys, "draw", "dgx-1v", "-o", str(svg))
    text = svg.read_text()
    assert all(f"GPU {number}" in text for number in range(8))
    assert "NVLink, 2 \u00d7 21.7 GB/s" in text
    output(capsys, "draw", "summit", "-o", str(png), "--view", "fabric")
    assert png.read_bytes()[:4] == b"\x89PNG"
    again = tmp_path / "again.svg"
    output(capsys, "draw", "dgx-1v", "-o", str(again))
    assert again.read_bytes() == svg.read_bytes()


@pytest.mark.parametrize("name", PRESETS)
def test_every_node_can_be_drawn(name: str) -> None:
    machine = preset(name, 1)
    interior = machine.topology.nodes[0].node_topology
    assert interior is not None
    assert machine.spec is not None
    text = render_image(draw_node(interior, machine.spec.title), "svg").decode()
    assert machine.spec.title in text
    assert ("more" in text) == name.endswith("nvl72"), "only a rack is too large"


@pytest.mark.parametrize(
    ("fabric", "nodes", "said"),
    [
        (OneSwitch(WIRE), 3, ["3 nodes", "1 switch"]),
        (FatTree(WIRE, (16,), (8.0,)), 4096, ["4,096 nodes", "256 leaf switches", "2:1 taper"]),
        (FatTree(WIRE, (4, 4), (4.0, 4.0)), 64, ["16 spine switches", "16 leaf switches"]),
        (Dragonfly(WIRE, (4,), 2, 2), 72, ["9 groups", "inside group0: 4 routers"]),
        (Torus(WIRE, (4, 4, 4)), 64, ["64 nodes on 64 routers", "round the end"]),
        (Torus(WIRE, (2, 3, 4, 5)), 100, ["100 nodes on 120 routers"]),
        (Torus(WIRE, (1,)), 1, ["1 node", "1 switch"]),
    ],
)
def test_every_fabric_can_be_drawn(fabric: Fabric, nodes: int, said: list[str]) -> None:
    topology = built("x", nodes, fabric)
    text = render_image(draw_fabric(topology, "x", fabric.summary), "svg").decode()
    assert all(part in text for part in said), said


def drawn(topology: Topology) -> tuple[Axes, str]:
    figure = draw_fabric(topology, "x", "")
    return figure.axes[0], render_image(figure, "svg").decode()


def test_lines_are_as_wide_as_the_legend_says() -> None:
    text = "SwitchName=l1 Nodes=n[1-2]\nSwitchName=l2 Nodes=n[3-5]\nSwitchName=t Switches=l[1-2]"
    axes, _ = drawn(parse_topology(text)[1])
    legend = axes.get_legend()
    assert legend is not None
    told = {line.get_linewidth() for line in legend.get_lines()}
    assert {line.get_linewidth() for line in axes.lines} == told
    assert len(told) == 3  # one cable, two, three


def test_lines_cross_no_box() -> None:
    """They end at the lower and the upper edges."""
    axes, _ = drawn(preset("summit", 4).topology)
    boxes = [patch.get_extents().transformed(axes.transData.inverted()) for patch in axes.patches]
    edges = [edge for one in boxes for edge in (one.y0, one.y1)]
    for line in axes.lines:
        for y in np.asarray(line.get_ydata(), dtype=float):
            assert min(abs(y - edge) for edge in edges) < 0.02


@pytest.mark.parametrize(
    ("topology", "said", "unsaid"),
    [
        (preset("summit").topology, ["node0\n… node17", "node4590\n… node4607"], ["node36"]),
        (preset("dgx-h100").topology, ["node96\n… node127", "not all of their leaves"], []),
        (built("x", 64, OneSwitch(WIRE)), ["node0", "node63"], ["a line:", "leaves"]),
        (INTERLEAVED, ["node0 …\n5 in all", "node1 …\n5 in all"], []),
    ],
)
def test_boxes_tell_which_nodes_they_are(
    topology: Topology, said: list[str], unsaid: list[str]
) -> None:
    axes, _ = drawn(topology)
    texts = [text.get_text() for text in axes.texts]
    for one in said:
        assert any(one in text for text in texts), one
    assert not [text for text in texts if text in unsaid]


def test_levels_of_switches() -> None:
    tree = built("x", 64, FatTree(WIRE, (4, 4), (4.0, 4.0)))
    levels = tree.switch_levels
    assert [sum(level == n for level in levels.values()) for n in (1, 2, 3)] == [16, 16, 16]


def test_odd_machines_can_be_drawn() -> None:
    alone = NodeTopology((Device("gpu0", "gpu"),), ())
    assert render_image(draw_node(alone, "one GPU"), "png")
    hub = NodeTopology(
        (Device("a", "gpu"), Device("b", "gpu"), Device("s", "switch")),
        tuple(Link(x, y, 1e9, 0.0, "nvlink") for x, y in ("as", "sa", "bs", "sb")),
    )
    assert render_image(draw_node(hub, "no CPU"), "png")
    pair = tuple(Link(x, y, 1e9, 0.0) for x, y in (("a", "b"), ("b", "a")))
    for topology in (
        Topology("one node", (Node("a"),), (), ()),
        Topology("direct", (Node("a"), Node("b")), (), pair),
    ):
        assert render_image(draw_fabric(topology, topology.name, ""), "png")
