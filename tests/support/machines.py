"""Random machines and calls for property tests."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from tests.support.calls import ALL
from tuner import algorithms
from tuner.collective import Collective
from tuner.cost import Calibration, Estimate, PathCost, ReductionCost, Segment
from tuner.schedule import Round, Schedule, schedule
from tuner.topology import MEMORY_BUS, NODE, NODE_OVERSUBSCRIBED, Link, Node, Placement, Topology

TIMES = st.sampled_from([0.0, 1e-7, 1e-6, 3.3e-6, 2e-5])
RATES = st.sampled_from([1e8, 7e8, 1e9, 1.25e10])


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """A tree of switches with nodes at random places and a few extra links."""
    nodes = [Node(f"n{i}", draw(st.integers(1, 3))) for i in range(draw(st.integers(1, 5)))]
    switches = [f"s{i}" for i in range(draw(st.integers(1, 3)))]
    pairs = [(switches[i], switches[draw(st.integers(0, i - 1))]) for i in range(1, len(switches))]
    pairs += [(node.name, draw(st.sampled_from(switches))) for node in nodes]
    if len(switches) == 3 and draw(st.booleans()):
        pairs.append((switches[1], switches[2]))
    ends = {end for a, b in pairs for end in ((a, b), (b, a))}
    links = [Link(a, b, draw(RATES), draw(TIMES)) for a, b in sorted(ends)]
    return Topology(
        "random", tuple(nodes), tuple(switches), tuple(links), draw(TIMES), draw(RATES), draw(RATES)
    )


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """Up to nine ranks anywhere on a random topology."""
    topology = draw(topologies())
    where = st.integers(0, len(topology.nodes) - 1)
    return Placement(topology, np.array(draw(st.lists(where, min_size=1, max_size=9))))


@st.composite
def path_costs(draw: st.DrawFn) -> PathCost:
    """Two segments with a jump between them, eager below some size."""
    bound = draw(st.sampled_from([100.0, 1000.0]))
    lower, upper = (
        (Estimate.exact(draw(TIMES)), Estimate.exact(1 / draw(RATES))) for _ in range(2)
    )
    segments = (Segment(0.0, bound, *lower), Segment(bound, math.inf, *upper))
    return PathCost(segments, draw(st.sampled_from([0.0, 64.0, 500.0, math.inf])),
                    Estimate.exact(draw(TIMES)))  # fmt: skip


@st.composite
def calibrations(draw: st.DrawFn) -> Calibration:
    """Any mixture of protocols, port disciplines and reduction costs."""
    names = (NODE, NODE_OVERSUBSCRIBED, "self")
    local = {(name, "host"): draw(path_costs()) for name in names}
    bus = {MEMORY_BUS: Estimate.exact(draw(RATES))} if draw(st.booleans()) else {}
    reduction = ReductionCost(Estimate.exact(draw(TIMES)), Estimate.exact(1 / draw(RATES)))
    return Calibration(
        "random", "none", local if draw(st.booleans()) else {}, {"host": reduction}, bus,
        shared_from=draw(st.sampled_from([0.0, 200.0, 5000.0, math.inf])),
        envelope=draw(st.sampled_from([0.0, 16.0])), given=True,
    )  # fmt: skip


@st.composite
def calls(draw: st.DrawFn, p: int) -> tuple[Schedule, int]:
    """A schedule and its message size."""
    collective, name = draw(st.sampled_from(ALL))
    nbytes = draw(st.sampled_from([0, 1, 7, 100, 1000, 10_000, 100_000]))
    params = {"segment": draw(st.sampled_from([0, 64, 3000]))}
    known = algorithms.describe(collective, name).params
    chosen = {key: value for key, value in params.items() if key in known and nbytes <= 64 * value}
    root = draw(st.integers(0, p - 1)) if collective.rooted else 0
    return algorithms.build(collective, name, p, root=root, nbytes=nbytes, params=chosen), nbytes


@st.composite
def tangles(draw: st.DrawFn, p: int) -> tuple[Schedule, int]:
    """Rows at random, local ones too: they compute nothing, but have a price like any others."""
    n_chunks, rounds = draw(st.integers(1, 4)), []
    for rows in draw(st.lists(st.integers(1, 8), max_size=5)):
        columns = st.lists(st.integers(0, 2**15), min_size=rows, max_size=rows).map(np.array)
        first = draw(columns) % n_chunks
        rounds.append(Round.of(
            draw(columns) % p, draw(columns) % p, first,
            count=1 + draw(columns) % (n_chunks - first), reduce=draw(columns) % 3,
        ))  # fmt: skip
    nbytes = draw(st.sampled_from([0, 1, 7, 1000, 10_000]))
    return schedule(Collective.BCAST, p, n_chunks, rounds), nbytes
