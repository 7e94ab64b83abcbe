"""A call has a time by one of two models, or a reason why its time is unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError, LimitExceededError, MissingCostError, ScheduleError
from tuner.core.calibration import Calibration, PathCost
from tuner.core.collective import Collective
from tuner.core.table import LIBRARY, SCHEDULE, AlgorithmChoice
from tuner.machines import preset
from tuner.machines.model_accuracy import NCCL, SIMULATION
from tuner.prediction import call_predictor
from tuner.prediction.call_predictor import CallPredictor, NoPrediction, NoScheduleError
from tuner.sim import simulate, sweep
from tuner.topology import CUDA, HOST, Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml
from tuner.whatif.best_calls import BestCalls, PricedTask
from tuner.whatif.study_spec import FileResolver, study_from_record
from tuner.whatif.study_tasks import TaskEvaluator

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
FLAT = topology_from_yaml({"name": "x", "nodes": 8, "latency": "1us", "bandwidth": "10GB/s"})
COSTS = nominal_calibration(FLAT)
PLACEMENT = Placement.block(FLAT, 1)
FLAT_HOSTS = CallPredictor.of_machine(PLACEMENT, COSTS, HOST)
DGX = preset("dgx-a100", 2)
GPUS = Placement.block(DGX.topology, 8)


def reason_of(found: float | NoPrediction) -> type[Exception]:
    assert isinstance(found, NoPrediction)
    return type(found.reason)


@pytest.mark.parametrize(
    ("choice", "model"),
    [
        (AlgorithmChoice("nccl_ring", {}, SCHEDULE), NCCL),
        (AlgorithmChoice("nccl_ring", {"channels": 4}, SCHEDULE), SIMULATION),
        (AlgorithmChoice("nccl_ring", {"channels": 4}, LIBRARY), NCCL),  # of a table for NCCL
        (AlgorithmChoice("ring", {}, SCHEDULE), SIMULATION),
    ],
)
def test_nccls_model_is_of_algorithms_as_nccl_runs_them(
    choice: AlgorithmChoice, model: str
) -> None:
    predictor = CallPredictor.of_machine(GPUS, DGX.calibration, CUDA)
    assert predictor.model_of(ALLREDUCE, choice) == model
    without = CallPredictor.of_machine(GPUS, DGX.calibration, CUDA, with_nccl=False)
    assert without.model_of(ALLREDUCE, choice) == SIMULATION


def test_a_barrier_sends_from_the_host_whatever_size_is_asked_for() -> None:
    choice = AlgorithmChoice("dissemination", {}, SCHEDULE)
    on_gpus, on_hosts = (
        CallPredictor.of_machine(GPUS, DGX.calibration, memory) for memory in (CUDA, HOST)
    )
    times = on_gpus.predict_sizes(Collective.BARRIER, choice, [8, 1 << 20])
    assert times == on_hosts.predict_sizes(Collective.BARRIER, choice, [4, 4])
    made = on_gpus.schedule(Collective.BARRIER, choice, 8)
    assert [on_gpus.explain(made, 1 << 20).seconds] == pytest.approx(times[:1])


def test_a_changed_machine_that_nccl_does_not_know_has_no_cost() -> None:
    predictor = CallPredictor.of_machine(GPUS, DGX.calibration, CUDA)
    with pytest.raises(MissingCostError, match="NCCL's model does not hold on x"):
        predictor.on_changed(PLACEMENT, COSTS, (1.0, 1.0))


@pytest.mark.parametrize(
    ("choice", "error"),
    [
        (AlgorithmChoice("smp"), NoScheduleError),
        (AlgorithmChoice("smp", {}, SCHEDULE), NoScheduleError),
        (AlgorithmChoice("chain", {"chians": 2}, SCHEDULE), InputError),
    ],
)
def test_why_there_is_no_time(choice: AlgorithmChoice, error: type[Exception]) -> None:
    found = FLAT_HOSTS.predict(BCAST, choice, 1 << 20)
    assert reason_of(found) is error
    assert isinstance(found, NoPrediction)
    assert found.is_wrong_choice == (error is InputError)
    with pytest.raises(error):
        FLAT_HOSTS.seconds(BCAST, choice, 1 << 20)


def test_sizes_that_are_too_large_leave_times_at_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring, own = AlgorithmChoice("ring", {}, SCHEDULE), sweep

    def limited(made: Any, placed: Any, costs: Any, sizes: list[int], *more: Any) -> list[float]:
        if max(sizes) > 4096:
            raise LimitExceededError("too many transfers")
        return own(made, placed, costs, sizes, *more)

    monkeypatch.setattr(call_predictor, "sweep", limited)
    few, many, again = FLAT_HOSTS.predict_sizes(ALLREDUCE, ring, [64, 8192, 4096], [1.0] * 3)
    assert isinstance(few, float)
    assert isinstance(again, float)
    assert isinstance(many, NoPrediction)
    assert many.is_too_large


def test_a_missing_cost_is_an_error_unless_a_schedule_is_staged() -> None:
    device = CallPredictor.of_machine(GPUS, costs_of_device_memory(), CUDA, with_nccl=False)
    staged = AlgorithmChoice("ring_staged", {}, SCHEDULE)
    assert reason_of(device.predict(ALLREDUCE, staged, 1 << 20)) is MissingCostError
    nothing = replace(device, calibration=Calibration("x", "any", {}))
    with pytest.raises(MissingCostError):
        nothing.predict(ALLREDUCE, AlgorithmChoice("ring", {}, SCHEDULE), 1 << 20)


def costs_of_device_memory() -> Calibration:
    """Return the costs of the machine less those of messages in host memory."""
    known = DGX.calibration
    return replace(known, paths={key: cost for key, cost in known.paths.items() if key[1] == CUDA})


def test_rounds_that_cannot_be_made_are_no_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ScheduleError("a chunk number is too large")

    monkeypatch.setattr(call_predictor, "simulate", broken)
    found = FLAT_HOSTS.predict(ALLREDUCE, AlgorithmChoice("ring", {}, SCHEDULE), 64)
    assert reason_of(found) is ScheduleError


@pytest.mark.parametrize("itemsize", [1, 4])
@pytest.mark.parametrize("root", [0, 3])
@pytest.mark.parametrize("nbytes", [1 << 20, (1 << 20) + 4])
def test_roots_and_elements_are_those_of_the_call(itemsize: int, root: int, nbytes: int) -> None:
    own = replace(FLAT_HOSTS, root=root, itemsize=itemsize)
    choice = AlgorithmChoice("chain", {"segment": 65536}, SCHEDULE)
    made = own.schedule(BCAST, choice, nbytes)
    assert made.root == root
    expected = simulate(made, PLACEMENT, COSTS, nbytes, itemsize)
    assert own.seconds(BCAST, choice, nbytes) == expected
    assert own.schedule(BCAST, choice, nbytes, 2).root == 0  # of a part without it


def test_a_library_runs_its_own_variant() -> None:
    costs = Calibration(
        "x", "openmpi 5.0.11", {("network", "host"): PathCost.from_alpha_beta(1e-6, 1e-10)}
    )
    own = CallPredictor.of_machine(PLACEMENT, costs, HOST)
    ours, theirs = (
        own.seconds(BCAST, AlgorithmChoice("binomial", {}, runner), 1 << 20)
        for runner in (SCHEDULE, LIBRARY)
    )
    assert ours != theirs


def test_a_machine_of_a_study_is_placed_once() -> None:
    record = {"name": "x", "topology": "preset:dgx-a100", "collectives": ["bcast"], "sizes": [8]}
    evaluator = TaskEvaluator(
        study_from_record(record | {"vary": {"nodes": [2]}}, FileResolver(Path()))
    )
    assert evaluator.predictor(0) is evaluator.predictor(0)
    assert evaluator._cached_predictor.cache_info().misses == 1


def test_of_equally_fast_calls_the_first_candidate_is_the_best() -> None:
    """Times that differ beyond their 12th digit are equally fast, in any order of arrival."""
    slower, faster = (
        PricedTask(number, name, name, SIMULATION, (0,), (0,), (name,), (place,), (seconds,))
        for number, name, place, seconds in ((7, "a", 2, 1.0 + 1e-14), (3, "b", 5, 1.0))
    )
    for order in ((slower, faster), (faster, slower)):
        best = BestCalls()
        for one in order:
            best.add(one)
        assert best.of_all()[0].task == 7
