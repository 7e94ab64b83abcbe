"""What the engines are made of, each on its own; costs that a line of arithmetic gives."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.topologies import cluster, interior
from tuner import algorithms
from tuner.base.errors import LimitExceededError
from tuner.core.calibration import Calibration, Estimate, PathCost, ReductionCost
from tuner.core.collective import Collective
from tuner.core.schedule import DST_OP_ARRIVING, Round, Schedule, make_schedule
from tuner.machines import preset
from tuner.sim import event_engine, fast_engine, finish_times, simulate
from tuner.sim.contention import bottleneck_rates, contended_links
from tuner.sim.heap import empty_heap, pop, put
from tuner.sim.transfers import TransferTable, build_transfers
from tuner.sim.unique import unique_inverse
from tuner.topology import CUDA, Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
ENGINES = pytest.mark.parametrize("engine", ["fast", "events"])
ALPHA = 1e-6
BETA = 1e-9


def star(p: int) -> Placement:
    record = {"name": "star", "nodes": p, "latency": "1us", "bandwidth": "1GB/s"}
    return Placement.block(topology_from_yaml(record), 1)


@given(st.lists(st.tuples(st.integers(0, 7), st.none() | st.floats(0.0, 9.0)), max_size=60))
def test_the_heap_gives_the_earliest(moves: list[tuple[int, float | None]]) -> None:
    """Items are put in, moved to earlier and later times, and taken out."""
    heap, known = empty_heap(8), dict[int, float]()
    for item, time in moves:
        if time is not None:
            put(heap, item, time)
            known[item] = time
        elif known:
            earliest = min(known.values())
            assert known.pop(pop(heap)) == earliest
        assert heap.size[0] == len(known)
    rest = [known.pop(pop(heap)) for _ in range(len(known))]
    assert rest == sorted(rest)


@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 5), max_size=200), st.booleans())
def test_distinct_keys(values: list[int], many: bool) -> None:
    """Many of them do not fit into the first table."""
    values = [value ^ turn << 32 for turn in range(40 if many else 1) for value in values]
    keys = np.array(values, dtype=np.int64)
    found, number = unique_inverse(keys)
    assert found.tolist() == list(dict.fromkeys(values))
    assert found[number].tolist() == values


def meeting(capacity: float, *, shared: bool = False, ports: int = 3) -> bool:
    """Whether messages of 1 GB/s from `ports` ranks to as many others meet on one link."""
    sender = np.arange(ports, dtype=np.int32)
    found = contended_links(
        sender,
        sender + np.int32(ports),
        np.zeros((ports, 1), np.int32),
        np.ones((ports, 1)),
        np.full(ports, 1e9),
        np.array([capacity]),
        shared=shared,
    )
    return bool(found[0])


def test_links_that_messages_can_fill() -> None:
    assert meeting(2.9e9)
    assert not meeting(3e9)
    assert not meeting(math.inf)
    assert not meeting(1e6, ports=1)
    assert meeting(1e6, ports=1, shared=True)
    assert not meeting(1e9, ports=1, shared=True)


def test_a_link_behind_one_port_is_filled_by_one_message_at_a_time() -> None:
    """Three ranks send to one: its port takes the messages one after the other."""
    links, ones = np.zeros((3, 1), np.int32), np.ones((3, 1))
    ports = np.arange(3, dtype=np.int32), np.full(3, 7, np.int32)
    found = contended_links(*ports, links, ones, np.full(3, 1e9), np.array([1e8]), shared=False)
    assert not found.any()
    assert bottleneck_rates(links, 0.5 * ones, np.array([1e8])).tolist() == [2e8] * 3


def test_segments_that_a_path_lacks_are_no_free_ones() -> None:
    """A second segment on one class of paths makes no link of another one be competed for."""
    placement = Placement.block(star(2).topology, 2)
    one = PathCost.from_alpha_beta(ALPHA, BETA)
    two = PathCost.from_alpha_beta(ALPHA, BETA).segments[0]
    halves = PathCost((replace(two, stop_bytes=8.0), replace(two, start_bytes=8.0)))
    costs = Calibration(
        "x", "y", {("network", "host"): one, ("node_oversubscribed", "host"): halves}
    )
    made = algorithms.build(ALLREDUCE, "recursive_doubling", 4)
    wide = replace(
        placement.topology,
        links=tuple(replace(link, capacity=2e9) for link in placement.topology.links),
    )
    call = fast_engine.PreparedSimulation(made, replace(placement, topology=wide), costs, 1, "host")
    assert len(call.by_rounds.machine.slot) == 0


@ENGINES
@pytest.mark.parametrize("p", [2, 5, 40])
def test_the_network_replicates(engine: str, p: int) -> None:
    """Multicast on a star: alpha + m beta, however many listen."""
    m = 10_000
    made = make_schedule(BCAST, p, 1, [Round.of(0, np.arange(1, p), 0)])
    costs = nominal_calibration(star(p).topology)
    seconds = simulate(replace(made, in_network=True), star(p), costs, m, engine=engine)
    assert seconds == pytest.approx(ALPHA + m * BETA, rel=1e-12)
    plain = simulate(made, star(p), costs, m, engine=engine)
    assert plain == pytest.approx(ALPHA + (p - 1) * m * BETA, rel=1e-12)


@ENGINES
@pytest.mark.parametrize("p", [2, 5, 40])
def test_the_network_reduces(engine: str, p: int) -> None:
    """All parts arrive as one message, which is folded once."""
    m = 10_000
    made = make_schedule(
        Collective.REDUCE, p, 1, [Round.of(np.arange(1, p), 0, 0, reduce=DST_OP_ARRIVING)]
    )
    gamma = {"host": ReductionCost(Estimate.exact(3e-6), Estimate.exact(1e-10))}
    costs = replace(nominal_calibration(star(p).topology), reduction=gamma)
    seconds = simulate(replace(made, in_network=True), star(p), costs, m, engine=engine)
    assert seconds == pytest.approx(ALPHA + m * BETA + 3e-6 + m * 1e-10, rel=1e-12)


@ENGINES
def test_copies_run_beside_messages(engine: str) -> None:
    """A copy from device to host takes 2 us + m/4, while a message of m takes longer."""
    placement = Placement.block(cluster(interior(1), interior(1)), 1)
    rows = Round.of([0, 0], [1, 0], [0, 0], dst_chunk=[0, 2], count=[2, 1])
    made = Schedule(BCAST, 2, 2, lambda: [rows], staged=True)
    paths = {
        ("network", CUDA): PathCost.from_alpha_beta(0.0, BETA),
        ("staging", CUDA): PathCost.from_alpha_beta(2e-6, 0.25 * BETA),
    }
    costs = Calibration("x", "y", paths)

    def times(m: int) -> list[float]:
        seconds = finish_times(made, placement, costs, m, engine=engine, memory=CUDA)
        return [float(end) for end in seconds]

    assert times(8000) == pytest.approx([14e-6, 14e-6])  # six links of 1 us, and the message
    assert times(2) == pytest.approx([6e-6 + 2e-9] * 2)
    slow = replace(
        costs, paths=paths | {("staging", CUDA): PathCost.from_alpha_beta(1e-3, 0.25 * BETA)}
    )
    late = finish_times(made, placement, slow, 8000, engine=engine, memory=CUDA)
    assert late.tolist() == pytest.approx([1e-3 + 1e-6, 14e-6])


@ENGINES
def test_scratch_of_a_staged_schedule_travels_from_host_to_host(engine: str) -> None:
    placement = Placement.block(cluster(interior(1), interior(1)), 1)
    rows = Round.of(0, 1, [1], dst_chunk=[1])
    made = Schedule(BCAST, 2, 1, lambda: [rows], staged=True)
    paths = {
        ("network", CUDA): PathCost.from_alpha_beta(1.0, BETA),
        ("network", "host"): PathCost.from_alpha_beta(0, 0),
    }
    costs = Calibration("x", "y", paths)
    seconds = simulate(made, placement, costs, 1000, engine=engine, memory=CUDA)
    assert seconds == pytest.approx(6e-6 + 1e-6)
    straight = simulate(
        replace(made, staged=False), placement, costs, 1000, engine=engine, memory=CUDA
    )
    assert straight > 1.0


@ENGINES
@pytest.mark.parametrize(("own", "seconds"), [(False, 2e-6), (True, 1e-6)])
def test_a_port_of_its_own_for_the_network(engine: str, own: bool, seconds: float) -> None:
    """Rank 0 sends 1 us to its neighbour and 1 us to another node: one after the other, or not."""
    placement = Placement.block(star(2).topology, 2)
    made = make_schedule(BCAST, 4, 1, [Round.of(0, [1, 2], 0)])
    line = PathCost.from_alpha_beta(0.0, BETA)
    paths = {("node_oversubscribed", "host"): line, ("network", "host"): line}
    costs = Calibration("x", "y", paths, separate_network_port=own)
    times = finish_times(made, placement, costs, 1000, engine=engine)
    assert times[1] == pytest.approx(1e-6)
    assert times[2] == pytest.approx(seconds + ALPHA)


def test_more_than_can_be_played_event_by_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that share ports are never played round by round."""
    monkeypatch.setattr(fast_engine, "MAX_EVENT_TRANSFERS", 10)
    made = algorithms.build(ALLREDUCE, "ring", 8, nbytes=800)
    costs = nominal_calibration(star(8).topology)
    assert simulate(made, star(8), costs, 800) > 0.0
    with pytest.raises(
        LimitExceededError, match=r"112 transfers depends .* at most 10 can be played"
    ):
        simulate(made, star(8), replace(costs, port_sharing_threshold=0.0), 800)


def test_an_irregular_beginning_alone_is_played_event_by_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scatter whose messages overtake each other, then a ring in which ranks are in step."""
    machine = preset("summit", 32)
    placement = Placement.block(machine.topology, 6)
    made = algorithms.build(BCAST, "scatter_allgather_ring", placement.p, nbytes=1000)
    played = build_transfers(made, placement, machine.calibration, 1000, memory=CUDA)
    whole = event_engine.finish_times(played)
    parts: list[int] = []

    def outcome(part: TransferTable) -> event_engine.FinalState:
        parts.append(len(part.src))
        return original(part)

    original = event_engine.final_state
    monkeypatch.setattr(event_engine, "final_state", outcome)
    monkeypatch.setattr(fast_engine, "MAX_EVENT_ONLY_TRANSFERS", 0)
    ours = fast_engine.finish_times(made, placement, machine.calibration, [1000], memory=CUDA)[0]
    assert len(parts) == 1
    assert parts[0] < len(played.src) / 4
    np.testing.assert_allclose(ours, whole, rtol=1e-12)
