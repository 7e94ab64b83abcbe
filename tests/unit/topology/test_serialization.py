"""The record of a topology: the same back, however it was made."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.combined import NODE, PAIRS
from tests.support.properties import examples
from tuner.base.errors import InputError
from tuner.machines.topology_files import parse_topology
from tuner.topology import (
    LINK_KINDS,
    MULTICAST,
    NVSWITCH_REDUCTION,
    SWITCH_REDUCTION,
    Device,
    Link,
    Node,
    NodeTopology,
    Topology,
)
from tuner.topology.readers import combine, topology_from_record, topology_to_record

RATES = st.floats(1e-3, 1e15) | st.just(float("inf"))
TIMES = st.floats(0.0, 10.0)
WORDS = st.text('abc.-é"\\ ', max_size=4)
KINDS = st.sampled_from(LINK_KINDS)


def both(a: str, b: str, rate: float, time: float, kind: str, count: int) -> tuple[Link, Link]:
    return Link(a, b, rate, time, kind, count), Link(b, a, rate, time, kind, count)


@st.composite
def interiors(draw: st.DrawFn) -> NodeTopology:
    """A CPU with GPUs and up to three NICs."""
    others = [f"gpu{i}" for i in range(draw(st.integers(0, 3)))]
    others += [f"nic{i}" for i in range(draw(st.integers(0, 3)))]
    devices = [Device("cpu0", "cpu", draw(WORDS), draw(st.integers(0, 99)))]
    devices += [Device(name, name[:3], draw(WORDS)) for name in others]
    found = [
        link
        for name in others
        for link in both(
            "cpu0", name, draw(RATES), draw(TIMES), draw(KINDS), draw(st.integers(1, 18))
        )
    ]
    return NodeTopology(tuple(devices), tuple(found))


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Nodes of some kinds, every port of them on one switch."""
    kinds = draw(st.lists(st.none() | interiors(), min_size=1, max_size=3))
    nodes = tuple(
        Node(f"n{i}", draw(st.integers(1, 99)), draw(st.sampled_from(kinds)))
        for i in range(draw(st.integers(1, 5)))
    )
    links = [
        link
        for node in nodes
        for port in node.ports
        for link in both(port, "s", draw(RATES), draw(TIMES), "network", draw(st.integers(1, 4)))
    ]
    return Topology(
        draw(WORDS),
        nodes,
        ("s",),
        tuple(links),
        draw(st.none() | TIMES),
        draw(st.none() | st.floats(1e-3, 1e15)),
        draw(RATES),
        draw(st.sampled_from(["spread", "first"])),
        draw(st.frozensets(st.sampled_from([MULTICAST, SWITCH_REDUCTION, NVSWITCH_REDUCTION]))),
    )


@settings(max_examples=examples(60))
@given(topologies())
def test_a_record_holds_everything(topology: Topology) -> None:
    text = json.dumps(topology_to_record(topology), allow_nan=False)
    again = topology_from_record(json.loads(text))
    assert again == topology
    assert topology_to_record(again) == topology_to_record(topology)


def test_an_interior_is_written_and_held_once() -> None:
    topology = combine(parse_topology(PAIRS)[1], parse_topology(NODE)[1])
    record = topology_to_record(topology)
    assert len(record["node_topologies"]) == 1
    assert [node["node_topology"] for node in record["nodes"]] == [0, 0]
    again = topology_from_record(json.loads(json.dumps(record)))
    assert again == topology
    assert again.nodes[0].node_topology is again.nodes[1].node_topology


SHORT: dict[str, Any] = {
    "kind": "topology",
    "version": 2,
    "name": "pair",
    "nodes": [{"name": "a", "cores": 4}, {"name": "b", "cores": 4}],
    "switches": ["s"],
    "links": [
        {"source": a, "target": b, "capacity": 1e9, "latency": 1e-6}
        for a, b in (("a", "s"), ("s", "a"), ("b", "s"), ("s", "b"))
    ],
    "local_latency": None,
    "local_bandwidth": None,
    "memory_bandwidth": "inf",
}


def test_what_a_record_leaves_out_has_a_default() -> None:
    topology = topology_from_record(SHORT)
    assert topology.nodes == (Node("a", 4), Node("b", 4))
    assert topology.links[0] == Link("a", "s", 1e9, 1e-6, "network", 1)
    assert (topology.routing, topology.capabilities) == ("spread", frozenset())


def device(**change: Any) -> dict[str, Any]:
    return {"name": "cpu0", "kind": "cpu", "product": "", "cores": 1, **change}


def inside(*devices: dict[str, Any], links: Any = ()) -> dict[str, Any]:
    return {"node_topologies": [{"devices": list(devices), "links": list(links)}]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"nodes": [{"name": "a", "cores": 1, "node_topology": 0}]},
            "node_topology of 'a' is 0, but only 0 are listed",
        ),
        (
            {"nodes": [{"name": "a", "cores": 1, "node_topology": -1}]},
            "node_topology of 'a' is -1, but only 0",
        ),
        (
            {"nodes": [{"name": "a", "cores": 1, "node_topology": True}]},
            "node_topology cannot be True",
        ),
        (inside(), "an interior has at least one device"),
        (inside(*[device(name=f"cpu{i}") for i in range(2000)]), "together at most some"),
        (inside(device(kind="fan")), "device cpu0: kind 'fan' is none of"),
        (inside(device(cores=-1)), "a device at least none"),
        (inside(device(), device(name="gpu0", kind="gpu")), "gpu0 cannot be reached from cpu0"),
        (
            inside(
                device(),
                links=[{"source": "cpu0", "target": "cpu0", "capacity": -1.0, "latency": 0.0}],
            ),
            "a bandwidth must be above 0",
        ),
        ({"routing": "random"}, "routing is one of spread, first"),
        ({"capabilities": ["tea"]}, "offers are some of"),
        ({"capabilities": "multicast"}, "capabilities cannot be 'multicast'"),
        ({"links": [SHORT["links"][0] | {"count": 0}]}, "a count above 0"),
        ({"links": [SHORT["links"][0] | {"kind": "rope"}]}, "kind 'rope' is none of"),
        ({"version": 1}, "of kind topology and version 2"),
    ],
)
def test_bad_records_are_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        topology_from_record({**SHORT, **change})
    assert len(str(caught.value)) < 400
