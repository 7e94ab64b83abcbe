"""What lets large calls be simulated: rounds that are not kept, and limits that are told."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tuner import algorithms
from tuner.algorithms.round_columns import column
from tuner.base.errors import InputError, LimitExceededError
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule
from tuner.machines import preset
from tuner.sim import connections, event_engine, simulate
from tuner.sim.rounds import round_types
from tuner.topology import CUDA, Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

ALLREDUCE = Collective.ALLREDUCE


def switch(nodes: int) -> Placement:
    record = {"name": "star", "nodes": nodes, "latency": "1us", "bandwidth": "1GB/s"}
    return Placement.block(topology_from_yaml(record), 1)


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
    assert simulate(made, placement, costs, 800) > 0.0
    monkeypatch.setattr(round_types, "MAX_ROUTED_TRANSFERS", 39)
    asked = []

    def rounds() -> Iterator[Round]:
        for r in made.rounds():
            asked.append(r)
            yield r

    with pytest.raises(LimitExceededError, match=r"at least 40 transfers .* at most 39 can be"):
        simulate(replace(made, make_rounds=rounds), placement, costs, 800)
    assert len(asked) == 5


def test_a_round_of_too_many_messages_is_refused() -> None:
    with pytest.raises(InputError, match=r"10000 ranks would exchange .* fewer requests"):
        algorithms.build(Collective.ALLTOALL, "linear", 10000, verify_schedule=False)


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
