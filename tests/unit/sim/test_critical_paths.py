"""Where the time goes: closed forms, and a path without gaps on any machine."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.machines import calibrations, calls, memories, placements, tangles
from tests.support.properties import examples
from tuner import algorithms
from tuner.base.errors import InputError
from tuner.core.calibration import (
    ZERO_REDUCTION_COST,
    Calibration,
    Estimate,
    PathCost,
    ReductionCost,
)
from tuner.core.collective import Collective
from tuner.core.schedule import Round, make_schedule
from tuner.sim import critical_paths, simulate
from tuner.sim.critical_paths import TIME_COMPONENTS, critical_path, explain
from tuner.sim.event_engine import trace
from tuner.sim.reference_engine import finish_times
from tuner.sim.transfers import build_transfers
from tuner.topology import Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

ALLREDUCE, BCAST = Collective.ALLREDUCE, Collective.BCAST
ALPHA = 2e-6
BETA = 1 / 12.5e9
GAMMA = ReductionCost(Estimate.exact(0.0), Estimate.exact(1e-10))


def flat(p: int) -> Placement:
    record = {"name": "flat", "nodes": p, "latency": "2us", "bandwidth": "12.5GB/s"}
    return Placement.block(topology_from_yaml(record), 1)


def parts(
    collective: Collective,
    name: str,
    p: int,
    nbytes: int,
    reduction: ReductionCost = ZERO_REDUCTION_COST,
) -> dict[str, float]:
    """In seconds, with one rank per node."""
    placement = flat(p)
    costs = replace(nominal_calibration(placement.topology), reduction={"host": reduction})
    run = explain(algorithms.build(collective, name, p, nbytes=nbytes), placement, costs, nbytes)
    return dict(run.components)


def expected(**seconds: float) -> dict[str, Any]:
    return {
        part: pytest.approx(seconds.get(part, 0.0), rel=1e-9, abs=1e-15) for part in TIME_COMPONENTS
    }


@pytest.mark.parametrize("p", [2, 3, 8])
def test_a_ring(p: int) -> None:
    """2 (p-1) alpha + (p-1)/p m (2 beta + gamma)."""
    m = 1024 * p * 3
    found = parts(ALLREDUCE, "ring", p, m, reduction=GAMMA)
    share = (p - 1) / p * m
    assert found == expected(
        flight=2 * (p - 1) * ALPHA, bandwidth=2 * share * BETA, reduction=share * 1e-10
    )


@pytest.mark.parametrize("p", [8, 16])
def test_the_path_of_a_ring_goes_round_it(p: int) -> None:
    """Where a rank's own message arrives with its neighbour's, it waited for the latter."""
    made = algorithms.build(ALLREDUCE, "ring", p)
    run = explain(made, flat(p), nominal_calibration(flat(p).topology), 1 << 16)
    crossed = list(dict.fromkeys(span.transfer for span in run.path if span.transfer >= 0))
    assert len(crossed) == 2 * (p - 1)
    ends = [(run.transfers[number].src, run.transfers[number].dst) for number in crossed]
    assert all(dst == (src + 1) % p for src, dst in ends)
    assert all(before[1] == after[0] for before, after in pairwise(ends))


def test_recursive_doubling_and_a_tree() -> None:
    m = 1 << 16
    assert parts(ALLREDUCE, "recursive_doubling", 8, m) == expected(
        flight=3 * ALPHA, bandwidth=3 * m * BETA
    )
    assert parts(BCAST, "binomial", 16, m) == expected(flight=4 * ALPHA, bandwidth=4 * m * BETA)


def test_messages_behind_one_another_at_a_port_are_bandwidth() -> None:
    """alpha + (p-1) m beta: the root's port has all of them, one after the other."""
    m, p = 1 << 16, 5
    assert parts(BCAST, "linear", p, m) == expected(flight=ALPHA, bandwidth=(p - 1) * m * BETA)


def test_two_flows_that_share_a_link_contend() -> None:
    """Two pairs across one link as wide as a port: each flows at half its rate."""
    link = {"latency": "1us", "bandwidth": "10GB/s"}
    ends = [("a", "s"), ("b", "s"), ("c", "t"), ("d", "t"), ("s", "t")]
    topology = topology_from_yaml(
        {
            "name": "narrow",
            "nodes": ["a", "b", "c", "d"],
            "switches": ["s", "t"],
            "links": [{"between": list(pair), **link} for pair in ends],
        }
    )
    m = 10_000
    made = make_schedule(BCAST, 4, 1, [Round.of([0, 1], [2, 3], 0)])
    run = explain(made, Placement.block(topology, 1), nominal_calibration(topology), m)
    assert run.components == expected(flight=3e-6, bandwidth=m / 10e9, contention=m / 10e9)


def test_overheads_and_copies_and_queries() -> None:
    """Overhead keeps the ports busy before the bytes flow; a copy runs beside the transfers."""
    m = 1000
    cost = replace(PathCost.from_alpha_beta(1e-6, 1e-9), overhead=Estimate.exact(3e-7))
    costs = Calibration("one", "any", {("node", "host"): cost, ("self", "host"): cost})
    made = make_schedule(BCAST, 2, 2, [Round.of(0, 1, 0, count=2), Round.of(1, 1, 0, dst_chunk=2)])
    placement = Placement.block(
        topology_from_yaml(
            {"name": "one", "nodes": 1, "latency": "1us", "bandwidth": "1GB/s", "cores": 2}
        ),
        2,
    )
    run = explain(made, placement, costs, m)
    assert run.components == expected(
        flight=1e-6, overhead=3e-7, bandwidth=m * 1e-9, copying=1.3e-6 + m / 2 * 1e-9
    )


def test_messages_that_take_no_time_do_not_wait_for_themselves() -> None:
    """Two of them leave a port at the very instant at which the long one before them has."""
    topology = topology_from_yaml(
        {"name": "two", "nodes": 2, "latency": "2us", "bandwidth": "1GB/s", "cores": 3}
    )
    paths = {
        ("network", "host"): PathCost.from_alpha_beta(0.0, 1e-9),
        ("node", "host"): PathCost.from_alpha_beta(9e-6, 0),
    }
    made = make_schedule(BCAST, 4, 1, [Round.of(0, [3, 1, 2], 0)])
    placement = Placement(topology, np.array([0, 0, 0, 1]))
    run = explain(made, placement, Calibration("two", "any", paths), 1000)
    assert run.components == expected(bandwidth=1e-6, flight=9e-6)


def test_one_rank_has_nothing_to_wait_for() -> None:
    run = explain(algorithms.build(BCAST, "linear", 1), flat(1), Calibration("x", "y", {}), 8)
    assert (run.path, run.components, run.seconds) == ([], dict.fromkeys(TIME_COMPONENTS, 0.0), 0.0)


@settings(max_examples=examples(200))
@given(st.data())
def test_the_path_is_whole_and_its_parts_are_the_time(data: st.DataObject) -> None:
    """On any machine, with any protocol, discipline and schedule."""
    placement = data.draw(placements())
    made, nbytes = data.draw(calls(placement.p) | tangles(placement.p))
    calibration, memory = data.draw(calibrations()), data.draw(memories(placement))
    priced = build_transfers(made, placement, calibration, nbytes, memory=memory)
    path = critical_path(priced, trace(priced))
    end = float(finish_times(priced).max())
    assert all(before.end == after.begin for before, after in pairwise(path))
    if path:
        assert (path[0].begin, path[-1].end) == (0.0, end)
    run = explain(made, placement, calibration, nbytes, memory=memory)
    whole = simulate(made, placement, calibration, nbytes, engine="events", memory=memory)
    assert math.fsum(run.components.values()) == pytest.approx(whole, rel=1e-12, abs=1e-300)
    assert min(run.components.values()) >= 0.0


def test_too_much_to_trace_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(critical_paths, "MAX_TRACED_TRANSFERS", 10)
    with pytest.raises(InputError, match="more than 10 transfers, too many to trace: take fewer"):
        parts(ALLREDUCE, "ring", 8, 800)
