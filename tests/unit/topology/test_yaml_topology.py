"""Topologies from YAML, their routes, and what is said about bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.base.errors import InputError
from tuner.machines.topology_files import load_topology
from tuner.topology import HOST, Link, Node, Paths, Placement, Topology, find_paths
from tuner.topology.readers import topology_from_record, topology_to_record

PAIR = """
name: pair
nodes: [a, b]
switches: [s]
links:
  - {between: [a, s], latency: 1us, bandwidth: 10GB/s, count: 2}
  - {between: [b, s], latency: 1us, bandwidth: 10GB/s}
"""


def load(tmp_path: Path, text: str) -> Topology:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    return load_topology(path)


def between(topology: Topology, source: list[int], target: list[int]) -> Paths:
    """Paths between nodes, by number, with one rank on each."""
    placement = Placement.block(topology, 1)
    return find_paths(placement, HOST, np.array(source), np.array(target))


def test_short_form_is_end_to_end(tmp_path: Path) -> None:
    flat = load(tmp_path, "name: flat64\nnodes: 64\nlatency: 2us\nbandwidth: 12.5GB/s\n")
    found = between(flat, [0, 5], [63, 4])
    assert found.latency == pytest.approx([2e-6, 2e-6])
    assert found.bandwidth.tolist() == [12.5e9, 12.5e9]
    assert Placement.block(flat, 1).p == 64


def test_listed_links_and_routes(tmp_path: Path) -> None:
    pair = load(tmp_path, PAIR)
    found = between(pair, [0, 1], [1, 0])
    assert [[pair.links[n].source for n in route] for route in found.links] == [
        ["a", "s"],
        ["b", "s"],
    ]
    assert found.bandwidth.tolist() == [10e9, 10e9]
    assert pair.links[0].capacity == 20e9


def test_shortest_route_then_smaller_latency() -> None:
    def both(a: str, b: str, latency: float) -> list[Link]:
        return [Link(a, b, 1e9, latency), Link(b, a, 1e9, latency)]

    links = [
        *both("a", "s", 5e-6),
        *both("s", "b", 5e-6),
        *both("a", "t", 1e-6),
        *both("t", "b", 1e-6),
    ]
    detour = [*both("a", "u", 1e-9), *both("u", "v", 1e-9), *both("v", "b", 1e-9)]
    topology = Topology(
        "two ways", (Node("a"), Node("b")), ("s", "t", "u", "v"), tuple(links + detour)
    )
    found = between(topology, [0], [1])
    assert [topology.links[n].target for n in found.links[0]] == ["t", "b"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: x\nnodes: [", "line 2: not YAML"),
        ("- {name: x}", "the topology must be a mapping"),
        ("name: x\nnodes: 4", "the topology lacks 'bandwidth'"),
        ("name: x\nnodes: 0\nlatency: 2us\nbandwidth: 1GB/s", "nodes must be a whole number"),
        (
            "name: x\nnodes: 10000000\nlatency: 2us\nbandwidth: 1GB/s",
            "nodes must be a whole number",
        ),
        ("name: x\nnodes: 4\nlatency: 2\nbandwidth: 1GB/s", "'2' is not a time|2 is not a time"),
        ("name: x\nnodes: 4\nlatency: 2us\nbandwidth: fast", "'fast' is not a bandwidth"),
        ("name: x\nnodes: 4\nlatency: 2us\nbandwidth: 1GB/s\ncolour: red", "unknown key 'colour'"),
        (PAIR.replace("[b, s]", "[b, z]"), "there is no node or switch 'z'"),
        (
            PAIR.replace("[a, b]", "[a, b, c]"),
            "node c cannot be reached from a; add the missing link",
        ),
        (
            PAIR.replace("[s]", "[s, t]").replace("[b, s]", "[b, t]"),
            "node b cannot be reached from a",
        ),
        (PAIR.replace("between: [b, s]", "from: b, to: s"), "node b cannot be reached from a"),
        (PAIR.replace("[a, b]", "[a, a]"), "have the same name"),
        (PAIR.replace("count: 2", "count: 0"), "link 1: count must be a whole number"),
        (PAIR.replace("between: [b, s]", "between: [b]"), "link 2: write `between: "),
        (PAIR + "  - {between: [a, s], latency: 1us, bandwidth: 1GB/s}", "written twice"),
        (PAIR.replace("[a, b]", "[yes, no]"), "each of nodes must be a name, not True; put quotes"),
        (
            PAIR.replace("between: [b, s]", "from: [b], to: s"),
            r"link 2: from must be a name, not \['b'\]",
        ),
        (PAIR.replace("name: pair", "name: [a]"), "name must be a name, not"),
        ("name: 2024-13-45", "not YAML"),
        ("name: x\nnodes: " + "[" * 5000, "not YAML"),
        (PAIR.replace("latency: 1us", f"latency: 0x{'f' * 5000}"), "not YAML"),
    ],
)
def test_bad_topologies_are_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        load(tmp_path, text)
    assert "t.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["name", "nodes", "cores", "latency", "bandwidth", "local"])
def test_a_list_that_grows_a_billionfold_is_refused_at_once(tmp_path: Path, key: str) -> None:
    """Each list holds the one before ten times: harmless until somebody prints it."""
    lists = [f"&x{i} [{', '.join([f'*x{i - 1}' if i else 'x'] * 10)}]" for i in range(12)]
    fields = {"name": "x", "nodes": "2", "latency": "1us", "bandwidth": "1GB/s"}
    bomb = "".join(f"\n  - {text}" for text in lists)
    text = "\n".join(f"{k}: {v}" for k, v in (fields | {key: bomb}).items())
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert len(str(caught.value)) < 1000


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.yaml: cannot be read: No such file"):
        load_topology(tmp_path / "absent.yaml")


@pytest.mark.parametrize(("ppn", "p"), [(0, None), (1, 65), (2, 0), (10**6, None)])
def test_placements_that_do_not_fit(tmp_path: Path, ppn: int, p: int | None) -> None:
    flat = load(tmp_path, "name: flat64\nnodes: 64\nlatency: 2us\nbandwidth: 12.5GB/s\n")
    with pytest.raises(
        InputError, match=r"do not fit|ppn must be at least 1|more than can be simulated"
    ):
        Placement.block(flat, ppn, p)


INSIDE = "local: {latency: 1us, bandwidth: 9GB/s}\ncores: 3\n"


@pytest.mark.parametrize(
    "text", [PAIR, f"{INSIDE}name: x\nnodes: 4\nlatency: 2us\nbandwidth: 1GB/s"]
)
def test_a_record_holds_everything(tmp_path: Path, text: str) -> None:
    topology = load(tmp_path, text)
    record = json.loads(json.dumps(topology_to_record(topology)))
    assert topology_from_record(record) == topology


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "table"}, "of kind topology and version 2"),
        ({"version": 3}, "of kind topology and version 2"),
        ({"nodes": []}, "must have 1 to 65536 nodes"),
        ({"nodes": "ab"}, "a mapping with a list of nodes"),
        ({"nodes": [{"name": "a", "cores": 0}], "links": []}, "at least one core"),
        ({"nodes": [{"name": "a", "cores": 1.5}], "links": []}, "cores cannot be 1.5"),
        ({"colour": 1}, "not the record of a topology"),
        ({"local_latency": -1.0}, "a latency finite and not below 0"),
        ({"local_latency": "inf"}, "a latency finite and not below 0"),
        ({"memory_bandwidth": 0}, "a bandwidth must be above 0"),
        ({"local_bandwidth": -1}, "a bandwidth must be above 0"),
        ({"links": []}, "node b cannot be reached"),
    ],
)
def test_bad_records_are_named(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    record = topology_to_record(load(tmp_path, PAIR))
    with pytest.raises(InputError, match=sentence):
        topology_from_record({**record, **change})
