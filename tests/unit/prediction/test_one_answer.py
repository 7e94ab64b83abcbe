"""All who ask for the fastest algorithm of a call get the same answer and the same time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tuner.algorithms import describe
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.machines import PRESETS, Machine
from tuner.machines.loader import load_machine
from tuner.machines.model_accuracy import NCCL, SIMULATION
from tuner.prediction.ordering import rounded_seconds
from tuner.select.dataset import CallPoint
from tuner.select.simulated_times import Simulator
from tuner.topology import CONFIGURED_CAPABILITIES, Placement
from tuner.training.call_times import CallTimes
from tuner.training.groups import Call
from tuner.training.policies import FastestKnown
from tuner.whatif.axes import apply_axes
from tuner.whatif.best_calls import BestCalls
from tuner.whatif.live_study import LiveStudy
from tuner.whatif.study_result import StudyPoint, TimedCandidate
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import FileResolver, study_from_record
from tuner.whatif.traced_call import trace_call

SIZES = [8, 512, 4096, 1 << 15, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26]
NODES = (pytest.param(1, marks=pytest.mark.weekly), 2, pytest.param(4, marks=pytest.mark.weekly))
PPN = 2


class Answer(NamedTuple):
    """The fastest algorithm, its parameters and seconds."""

    algorithm: str
    params: dict[str, int]
    seconds: float

    @classmethod
    def of(cls, best: TimedCandidate) -> Answer:
        return cls(best.algorithm, dict(best.params), best.seconds)


def record(preset: str, nodes: int, collective: Collective, **changes: Any) -> dict[str, Any]:
    own = {"name": "x", "topology": f"preset:{preset}", "collectives": [collective.value]}
    axes = {"nodes": [nodes], "ppn": [PPN], "memory": ["cuda"]}
    return own | {"sizes": SIZES, "vary": axes, "limits": False} | changes


def studied(asked: dict[str, Any]) -> list[StudyPoint]:
    return list(run_study(study_from_record(asked, FileResolver(Path()))).points)


def simulated(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> list[Answer]:
    """Return what `tuner simulate` prints; parameters that are defaults are left out."""
    topology = f"{asked['topology']}:{asked['vary']['nodes'][0]}"
    words = ["simulate", "--topology", topology, "--ppn", str(PPN), "--memory", "cuda", "--json"]
    sizes = ["--sizes", ",".join(map(str, SIZES)), "--collective", *asked["collectives"]]
    assert main([*words, *sizes]) == 0
    first: dict[int, Answer] = {}
    for one in json.loads(capsys.readouterr().out):
        params = {k: v for k, v in one["params"].items() if (k, v) != ("segment", 0)}
        first.setdefault(one["nbytes"], Answer(one["algorithm"], params, one["seconds"]))
    (collective,) = map(Collective, asked["collectives"])
    return [first[collective.call_bytes(nbytes)] for nbytes in SIZES]


def shown(asked: dict[str, Any]) -> list[tuple[str, float]]:
    """Return the best calls of the page on what-if."""
    study, best = LiveStudy.from_record(asked), BestCalls()
    study.price(study.order(()), float("inf"), best)
    fastest = best.of_all()
    return [
        (str(study.calls[one.task][one.call].candidate), one.seconds)
        for one in (fastest[index] for index in range(len(SIZES)))
    ]


def trained(machine: Machine, placement: Placement, collective: Collective) -> list[Answer]:
    """Return what training takes for the fastest, among what needs no configuration."""
    times = CallTimes(placement, machine.calibration, "cuda", FastestKnown())
    chosen = [times.timed(Call(collective.value, nbytes, times.world)) for nbytes in SIZES]
    return [
        Answer(one.choice.algorithm, dict(one.choice.params), one.seconds)
        if one.choice
        else Answer(one.algorithm, {}, one.seconds)
        for one in chosen
    ]


def unconfigured(point: StudyPoint) -> Answer:
    offered = (
        one
        for one in point.candidates
        if CONFIGURED_CAPABILITIES.isdisjoint(describe(point.collective, one.algorithm).requires)
    )
    return Answer.of(next(offered))


def fastest_of_table(machine: Machine, point: StudyPoint, nodes: int) -> Answer:
    """Return the fastest of the simulated candidates, as the building of a table orders them."""
    simulate = Simulator(machine.calibration, machine.topology)
    call = CallPoint(point.collective, nodes, PPN, "cuda", point.nbytes)
    timed = [
        Answer(one.algorithm, dict(one.params), simulate(call, one.choice))
        for one in point.candidates
        if one.predicted_by == SIMULATION
    ]
    return min(timed, key=lambda one: rounded_seconds(one.seconds))


def traced(asked: dict[str, Any], point: StudyPoint) -> float:
    """Return the seconds of the best call on the page that shows it from inside."""
    one = asked | {"sizes": [point.nbytes], "algorithms": [point.best.algorithm]}
    call = trace_call(one, point.best.params)
    return call.run.seconds if call.nccl_seconds is None else call.nccl_seconds


@pytest.mark.slow
@pytest.mark.representative("2-dgx-a100", "2-kesch")
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("nodes", NODES)
def test_all_name_the_same_fastest_algorithm_and_time(
    preset: str, nodes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = apply_axes(load_machine(f"preset:{preset}:{nodes}"), {"nodes": nodes})
    placement = Placement.block(machine.topology, PPN)
    for collective in Collective:
        asked = record(preset, nodes, collective)
        points = studied(asked)
        expected = [Answer.of(point.best) for point in points]
        assert simulated(asked, capsys) == expected
        assert shown(asked) == [(str(point.best), point.best.seconds) for point in points]
        assert trained(machine, placement, collective) == list(map(unconfigured, points))
        largest = points[-1]
        assert traced(asked, largest) == pytest.approx(largest.best.seconds, rel=1e-9)
        for point in points:
            simulations = [one for one in point.candidates if one.predicted_by == SIMULATION]
            assert fastest_of_table(machine, point, nodes) == Answer.of(simulations[0])


@pytest.mark.slow
def test_the_model_of_nccl_is_among_what_is_compared() -> None:
    (*_, last) = studied(record("dgx-a100", 2, Collective.ALLREDUCE))
    assert {one.predicted_by for one in last.candidates} == {NCCL, SIMULATION}
