"""What lets large calls be simulated: rounds that are not kept, and limits that are told."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tuner import algorithms
from tuner.algorithms.round_columns import column
from tuner.base.errors import LimitExceededError
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule
from tuner.machines import preset
from tuner.sim import connections, event_engine, finish_times, simulate
from tuner.sim.fast_engine import PreparedSimulation
from tuner.sim.rounds import round_types
from tuner.topology import CUDA, HOST, Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

ALLREDUCE, ALLTOALL = Collective.ALLREDUCE, Collective.ALLTOALL


def switch(nodes: int) -> Placement:
    record = {"name": "star", "nodes": nodes, "latency": "1us", "bandwidth": "1GB/s"}
    return Placement.block(topology_from_yaml(record), 1)


ALIKE: list[tuple[str, dict[str, int]]] = [
    ("linear", {}),
    ("spread_out", {"requests": 3}),
    ("pairwise", {}),
    ("pairwise_exchange", {}),
    ("bruck", {"radix": 2}),
    ("bruck", {"radix": 3}),
    ("hypercube", {}),
]


@pytest.mark.parametrize("p", [2, 3, 5, 8, 16, 19])
@pytest.mark.parametrize(("name", "params"), ALIKE)
def test_two_ranks_stand_for_all_where_all_are_alike(
    name: str, params: dict[str, int], p: int
) -> None:
    placement = switch(p)
    costs = nominal_calibration(placement.topology)
    alike = algorithms.build(ALLTOALL, name, p, params=params)
    all_of_them = replace(alike, make_rounds=lambda: alike.rounds())
    assert PreparedSimulation(alike, placement, costs, 1, HOST).all_alike
    for nbytes in (0, 4, 8 * p, 1000, 40_000 * p):
        told = finish_times(alike, placement, costs, nbytes)
        for engine in ("fast", "events"):
            expected = finish_times(all_of_them, placement, costs, nbytes, engine=engine)
            assert told == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["linear", "spread_out", "pairwise", "bruck"])
def test_as_many_ranks_as_summit_has_gpus(name: str) -> None:
    placement = switch(27_648)
    costs = nominal_calibration(placement.topology)
    made = algorithms.build(ALLTOALL, name, placement.p, verify_schedule=False)
    messages = {"linear": 1, "spread_out": -(-(placement.p - 1) // 32)}.get(name, placement.p - 1)
    expected = messages * 1e-6 + (placement.p - 1) * 1024 / 1e9
    if name == "bruck":
        expected = 15 * 1e-6 + sum(
            1024 / 1e9 * sum(d >> bit & 1 for d in range(placement.p)) for bit in range(15)
        )
    found = simulate(made, placement, costs, 1024 * placement.p)
    assert found == pytest.approx(expected, rel=1e-9)


def test_machines_on_which_ranks_are_not_alike() -> None:
    star = {"name": "star", "nodes": 8, "latency": "1us", "bandwidth": "1GB/s"}
    local = {"local": {"latency": "1us", "bandwidth": "9GB/s"}, "cores": 2}
    topology = topology_from_yaml(star | local)
    assert topology.is_star
    assert not preset("summit").topology.is_star
    alike = algorithms.build(ALLTOALL, "pairwise", 8)
    costs = nominal_calibration(topology)
    one, two = Placement.block(topology, 1), Placement.block(topology, 2, 8)
    assert PreparedSimulation(alike, one, costs, 1, HOST).all_alike
    assert not PreparedSimulation(alike, two, costs, 1, HOST).all_alike
    ends = [("node7", "node6"), ("node6", "node7")]
    on_the_way = [replace(topology.links[0], source=a, target=b) for a, b in ends]
    aside = [link for link in topology.links if "node7" not in (link.source, link.target)]
    assert not replace(topology, links=(*aside, *on_the_way)).is_star
    slower = replace(topology.links[0], capacity=topology.links[0].capacity / 2)
    assert not replace(topology, links=(slower, *topology.links[1:])).is_star


def test_too_many_messages_at_once_are_refused() -> None:
    placement = Placement.block(preset("summit").topology, 6, 6000)
    costs = nominal_calibration(placement.topology)
    made = algorithms.build(ALLTOALL, "linear", 6000, verify_schedule=False)
    with pytest.raises(LimitExceededError, match="36000000 messages at once, and at most 8388608"):
        simulate(made, placement, costs, 6000)


def test_rounds_are_not_kept() -> None:
    """A long schedule makes a column per round; only a few of them exist at a time."""
    made: list[weakref.ref[np.ndarray]] = []
    most_alive = 0

    def rounds() -> Iterator[Round]:
        nonlocal most_alive
        src, dst, count, fold = column([0, 1]), column([1, 0]), column(1, 2), column(0, 2)
        for _ in range(50):
            chunk = column([0, 1])
            made.append(weakref.ref(chunk))
            most_alive = max(most_alive, sum(one() is not None for one in made))
            yield Round(src, dst, chunk, chunk, count, fold)

    placement = switch(2)
    schedule = Schedule(ALLREDUCE, 2, 2, rounds)
    seconds = simulate(schedule, placement, nominal_calibration(placement.topology), 2000)
    assert seconds == pytest.approx(50 * 2e-6, rel=1e-9)
    assert most_alive < 5


def test_a_call_of_too_many_transfers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = switch(8)
    costs = nominal_calibration(placement.topology)
    monkeypatch.setattr(round_types, "MAX_CALL_TRANSFERS", 112)
    assert simulate(algorithms.build(ALLREDUCE, "ring", 8), placement, costs, 800) > 0.0
    monkeypatch.setattr(round_types, "MAX_CALL_TRANSFERS", 111)
    with pytest.raises(LimitExceededError, match=r"more than 111 transfers .* take fewer ranks"):
        simulate(algorithms.build(ALLREDUCE, "ring", 8), placement, costs, 800)


def test_rounds_of_too_many_different_pairs_are_refused_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each round of an all-to-all has other pairs, which are kept until all are routed."""
    placement = switch(8)
    costs = nominal_calibration(placement.topology)
    made = algorithms.build(Collective.ALLTOALL, "pairwise", 8)
    monkeypatch.setattr(round_types, "MAX_ROUTED_TRANSFERS", 64)
    assert simulate(replace(made, make_rounds=made.rounds), placement, costs, 800) > 0.0
    monkeypatch.setattr(round_types, "MAX_ROUTED_TRANSFERS", 39)
    asked = []

    def rounds() -> Iterator[Round]:
        for r in made.rounds():
            asked.append(r)
            yield r

    with pytest.raises(LimitExceededError, match=r"at least 40 transfers .* at most 39 can be"):
        simulate(replace(made, make_rounds=rounds), placement, costs, 800)
    assert len(asked) == 5


def test_routes_that_take_too_much_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 56 pairs crosses two links of the switch."""
    placement = switch(8)
    costs = nominal_calibration(placement.topology)
    made = algorithms.build(Collective.ALLTOALL, "pairwise", 8)
    monkeypatch.setattr(connections, "MAX_ROUTE_LINKS", 112)
    assert simulate(replace(made, make_rounds=made.rounds), placement, costs, 800) > 0.0
    monkeypatch.setattr(connections, "MAX_ROUTE_LINKS", 111)
    with pytest.raises(LimitExceededError, match=r"56 pairs .* up to 2 links .* at most 111 links"):
        simulate(replace(made, make_rounds=made.rounds), placement, costs, 800)


def test_flows_that_change_one_another_too_often_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Summit's nodes share their NICs, so that the event engine shares out rates."""
    machine = preset("summit", 8)
    placement = Placement.block(machine.topology, 6)
    call = (placement, machine.calibration, 1 << 20, 1, "fast", CUDA)
    made = algorithms.build(ALLREDUCE, "recursive_multiplying", placement.p)
    assert simulate(made, *call) > 0.0
    monkeypatch.setattr(event_engine, "MAX_RATE_UPDATES", 100)
    with pytest.raises(LimitExceededError, match=r"share links, .* take fewer ranks"):
        simulate(made, *call)


@pytest.mark.parametrize("nbytes", [1000, 1 << 22])
def test_paths_found_in_chunks_are_those_found_at_once(
    monkeypatch: pytest.MonkeyPatch, nbytes: int
) -> None:
    """Messages between Summit's nodes are striped over its NICs, and within a node they are not."""
    machine = preset("summit", 9)
    placement = Placement.block(machine.topology, 6)
    made = algorithms.build(ALLREDUCE, "rabenseifner", placement.p)
    whole = simulate(made, placement, machine.calibration, nbytes, memory=CUDA)
    monkeypatch.setattr(connections, "MAX_PATHS_PER_CHUNK", 5)
    assert simulate(made, placement, machine.calibration, nbytes, memory=CUDA) == whole


@pytest.mark.parametrize("name", ["rabenseifner", "two_level_rabenseifner", "bine"])
def test_halving_and_doubling_share_their_pairs(name: str) -> None:
    """So half as many connections have to be found."""
    made = algorithms.build(ALLREDUCE, name, 32)
    rounds = list(made.rounds())
    pairs = [(id(r.src), id(r.dst)) for r in rounds]
    inside = pairs[1:-1] if name.startswith("two_level") else pairs
    assert len(set(inside)) == len(inside) / 2
    assert inside == inside[::-1]
