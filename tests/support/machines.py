"""Random machines and calls for property tests."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from tests.support.calls import EVERYTHING
from tuner import algorithms
from tuner.core.calibration import Calibration, CostSegment, Estimate, PathCost, ReductionCost
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, make_schedule
from tuner.topology import (
    CPU,
    CROSS_SOCKET,
    CUDA,
    GPU,
    HOST,
    MEMORY_BUS,
    NETWORK,
    NETWORK_BIDIRECTIONAL,
    NETWORK_RING,
    NIC,
    NODE,
    NODE_OVERSUBSCRIBED,
    NVLINK,
    PCIE,
    SAME_GPU,
    SWITCH,
    Device,
    Link,
    Node,
    NodeTopology,
    Placement,
    Topology,
)

TIMES = st.sampled_from([0.0, 1e-7, 1e-6, 3.3e-6, 2e-5])
RATES = st.sampled_from([1e8, 7e8, 1e9, 1.25e10])


@st.composite
def interiors(draw: st.DrawFn) -> NodeTopology:
    """Two sockets, GPUs with some NVLinks on PCIe, one to three NICs."""
    gpus, nics = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    devices = [Device("cpu0", CPU), Device("cpu1", CPU), Device("pcie", SWITCH)]
    devices += [Device(f"gpu{i}", GPU) for i in range(gpus)]
    devices += [Device(f"nic{i}", NIC) for i in range(nics)]
    ends = [("cpu0", "cpu1", "socket"), ("cpu0", "pcie", "pcie")]
    ends += [(f"gpu{i}", "pcie" if i < 2 else "cpu1", "pcie") for i in range(gpus)]
    ends += [(f"nic{i}", draw(st.sampled_from(["pcie", "cpu1"])), "pcie") for i in range(nics)]
    ends += [(f"gpu{i}", f"gpu{i + 1}", "nvlink") for i in range(gpus - 1) if draw(st.booleans())]
    return NodeTopology(
        tuple(devices),
        tuple(
            Link(*pair, draw(RATES), draw(TIMES), kind)
            for a, b, kind in ends
            for pair in ((a, b), (b, a))
        ),
    )


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """A tree of switches with nodes at random places and a few extra links."""
    interior = draw(st.none() | interiors())
    nodes = [
        Node(f"n{i}", draw(st.integers(1, 3)), interior) for i in range(draw(st.integers(1, 5)))
    ]
    switches = [f"s{i}" for i in range(draw(st.integers(1, 3)))]
    pairs = [(switches[i], switches[draw(st.integers(0, i - 1))]) for i in range(1, len(switches))]
    pairs += [(port, draw(st.sampled_from(switches))) for node in nodes for port in node.ports]
    if len(switches) == 3 and draw(st.booleans()):
        pairs.append((switches[1], switches[2]))
    ends = {end for a, b in pairs for end in ((a, b), (b, a))}
    links = [Link(a, b, draw(RATES), draw(TIMES)) for a, b in sorted(ends)]
    return Topology(
        "random",
        tuple(nodes),
        tuple(switches),
        tuple(links),
        draw(TIMES),
        draw(RATES),
        draw(RATES),
        draw(st.sampled_from(["spread", "first"])),
    )


def memories(placement: Placement) -> st.SearchStrategy[str]:
    """Device memory where there are devices."""
    gpus = placement.topology.nodes[0].node_topology is not None
    return st.sampled_from([HOST, CUDA] if gpus else [HOST])


@st.composite
def placements(draw: st.DrawFn, most: int = 9) -> Placement:
    """Up to `most` ranks anywhere on a random topology."""
    topology = draw(topologies())
    where = st.integers(0, len(topology.nodes) - 1)
    return Placement(topology, np.array(draw(st.lists(where, min_size=1, max_size=most))))


@st.composite
def path_costs(draw: st.DrawFn) -> PathCost:
    """Two segments with a jump between them, eager below some size, acknowledged from some on."""
    bound = draw(st.sampled_from([100.0, 1000.0]))
    lower, upper = (
        (Estimate.exact(draw(TIMES)), Estimate.exact(1 / draw(RATES))) for _ in range(2)
    )
    lag = Estimate.exact(draw(st.sampled_from([0.0, 1e-10])))
    segments = (
        CostSegment(0.0, bound, *lower, latency_per_byte=lag),
        CostSegment(bound, math.inf, *upper, draw(st.booleans()), lag),
    )
    return PathCost(
        segments,
        draw(st.sampled_from([0.0, 64.0, 500.0, math.inf])),
        Estimate.exact(draw(TIMES)),
        draw(st.sampled_from([math.inf, 0.0, 64.0, 1000.0])),
        draw(st.sampled_from([0.0, 200.0, math.inf])),
    )


def _exact(value: float) -> Estimate:
    return Estimate.exact(value)


@st.composite
def calibrations(draw: st.DrawFn) -> Calibration:
    """Any mixture of protocols, port disciplines, stripes and reduction costs."""
    meeting = (NETWORK, NETWORK_BIDIRECTIONAL, NETWORK_RING)
    host = (NODE, NODE_OVERSUBSCRIBED, CROSS_SOCKET, *meeting, "self")
    cuda = (SAME_GPU, NVLINK, PCIE, CROSS_SOCKET, *meeting, "self", "staging")
    names = [(name, HOST) for name in host] + [(name, CUDA) for name in cuda]
    some = draw(st.sets(st.sampled_from(names)))
    folding = {
        name: ReductionCost(_exact(draw(TIMES)), _exact(1 / draw(RATES)))
        for name in (HOST, CUDA, "cuda_by_cpu")
    }
    return Calibration(
        "random",
        "none",
        {name: draw(path_costs()) for name in sorted(some)},
        folding,
        {MEMORY_BUS: _exact(draw(RATES))} if draw(st.booleans()) else {},
        port_sharing_threshold=draw(st.sampled_from([0.0, 200.0, 5000.0, math.inf])),
        separate_network_port=draw(st.booleans()),
        striping_threshold=draw(st.sampled_from([0.0, 500.0, math.inf])),
        pointer_query_seconds=draw(TIMES),
        header_bytes=draw(st.sampled_from([0.0, 16.0])),
        nominal=True,
    )


@st.composite
def calls(draw: st.DrawFn, p: int) -> tuple[Schedule, int]:
    """A schedule and its message size."""
    collective, name = draw(st.sampled_from(EVERYTHING))
    nbytes = draw(st.sampled_from([0, 1, 7, 100, 1000, 10_000, 100_000]))
    params = {"segment": draw(st.sampled_from([0, 64, 3000]))}
    known = algorithms.describe(collective, name).params
    chosen = {key: value for key, value in params.items() if key in known and nbytes <= 64 * value}
    root = draw(st.integers(0, p - 1)) if collective.is_rooted else 0
    return algorithms.build(collective, name, p, root=root, nbytes=nbytes, params=chosen), nbytes


@st.composite
def tangles(draw: st.DrawFn, p: int) -> tuple[Schedule, int]:
    """Rows at random, local ones too: they compute nothing, but have a price like any others."""
    n_chunks, rounds = draw(st.integers(1, 4)), []
    for rows in draw(st.lists(st.integers(1, 8), max_size=5)):
        columns = st.lists(st.integers(0, 2**15), min_size=rows, max_size=rows).map(np.array)
        first = draw(columns) % n_chunks
        rounds.append(
            Round.of(
                draw(columns) % p,
                draw(columns) % p,
                first + n_chunks * (draw(columns) % 2),
                first,
                count=1 + draw(columns) % (n_chunks - first),
                reduce=draw(columns) % 3,
            )
        )
    nbytes = draw(st.sampled_from([0, 1, 7, 1000, 10_000]))
    made = make_schedule(Collective.BCAST, p, n_chunks, rounds)
    return replace(made, staged=draw(st.booleans()), in_network=draw(st.booleans())), nbytes
