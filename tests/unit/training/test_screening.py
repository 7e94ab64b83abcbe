"""The choice of the fastest algorithm where only parts of a machine are simulated."""

from pathlib import Path

import pytest

from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.training import call_times
from tuner.training.call_times import CallTimes, part_of, simulated_sizes
from tuner.training.groups import Call
from tuner.training.policies import FastestKnown
from tuner.training.workload import workload_from_record

RABENSEIFNER = AlgorithmChoice("rabenseifner", runner=SCHEDULE)


def times(nodes: int, policy: FastestKnown) -> CallTimes:
    record = {
        "model": "resnet50",
        "batch": 64,
        "framework": "ddp",
        "topology": {"name": "flat", "nodes": nodes, "latency": "1us", "bandwidth": "10GB/s"},
        "ranks": nodes,
        "rate": 100,
        "memory": "host",
    }
    workload = workload_from_record(record, Path())
    machine, placement = workload.placement(nodes)
    return CallTimes(placement, machine.calibration, "host", policy)


def test_a_part_is_a_power_of_two_smaller() -> None:
    assert [part_of(nodes, 64) for nodes in (64, 100, 256, 1536)] == [64, 50, 64, 48]


def test_sizes_above_a_megabyte_are_simulated_at_powers_of_four() -> None:
    mib = 1 << 20
    assert simulated_sizes(1000) == (512, 1024)
    assert simulated_sizes(1024) == (1024, 1024)
    assert simulated_sizes(5 * mib) == (4 * mib, 16 * mib)
    assert simulated_sizes(8 * mib) == (4 * mib, 16 * mib)
    assert simulated_sizes(16 * mib) == (16 * mib, 16 * mib)


def test_a_size_between_two_gets_a_time_on_the_line_between_theirs() -> None:
    here = times(8, FastestKnown())
    found = [
        here.simulated(Call("allreduce", nbytes << 20, here.world), RABENSEIFNER)
        for nbytes in (4, 10, 16)
    ]
    assert found[1] == pytest.approx((found[0] + found[2]) / 2)


@pytest.mark.slow
def test_an_extrapolated_time_is_near_the_simulated_one() -> None:
    here = times(256, FastestKnown())
    call = Call("allreduce", 4 << 20, here.world)
    whole, from_part = here.simulated(call, RABENSEIFNER), here.extrapolated(64, call, RABENSEIFNER)
    assert from_part == pytest.approx(whole, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("nbytes", [4 << 10, 4 << 20])
def test_the_chosen_algorithm_is_nearly_the_fastest_of_all(nbytes: int) -> None:
    policy = FastestKnown()
    here = times(32, policy)
    call = Call("allreduce", nbytes, here.world)
    chosen = here.seconds(call)
    possible = [
        here.simulated(call, choice)
        for choice in policy._candidates(call, here)
        if choice.algorithm not in ("shared_memory",)
    ]
    assert chosen <= 1.05 * min(possible)


def test_few_ranks_are_compared_without_any_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallTimes, "on_fewer_nodes", None)
    here = times(4, FastestKnown())
    assert here.seconds(Call("allreduce", 1 << 20, here.world)) > 0


def test_a_call_is_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[Call]()

    def simulate(call: Call, *_: object) -> float:
        made.append(call)
        return 1.0

    monkeypatch.setattr(call_times, "simulate_groups", simulate)
    here = times(4, FastestKnown(("ring",)))
    for _ in range(2):
        here.seconds(Call("allreduce", 1 << 20, here.world))
    assert len(made) == 1
