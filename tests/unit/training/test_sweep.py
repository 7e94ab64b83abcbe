"""Sweeps: configurations over axes, time and cost of an epoch, and what steps gain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.workloads import RECORD
from tuner.base.errors import InputError
from tuner.training.iteration import predict_iteration
from tuner.training.sweep import SweepResult, run_sweep, summarise_sweep, sweep_record
from tuner.training.sweep_spec import HOURS_PER_YEAR, sweep_from_record

HERE = Path("/nonexistent")
SWEEP: dict[str, Any] = {
    **RECORD,
    "ranks": [4, 8],
    "vary": {"bandwidth": ["1GB/s", "2GB/s"], "latency": ["1us", "2us"]},
    "epoch": 1_000_000,
}
DGX: dict[str, Any] = {
    "model": "resnet50",
    "batch": 64,
    "framework": "ddp",
    "topology": "preset:dgx-a100",
    "ranks": [64],
    "vary": {"bandwidth": ["100Gb/s", "200Gb/s"], "nics": [4, 8]},
}
MANY = [f"{number}us" for number in range(1, 3335)]


def swept(**changed: Any) -> SweepResult:
    record = {key: value for key, value in {**SWEEP, **changed}.items() if value is not None}
    return run_sweep(record, HERE, processes=1)


def test_every_configuration_is_predicted_as_by_itself() -> None:
    result = swept()
    assert len(result.points) == 8
    assert list(result.sweep.axes) == ["ranks", "latency", "bandwidth"]
    for at, point in zip(result.sweep.grid, result.points, strict=True):
        workload, ranks = result.sweep.configuration(at)
        assert point.axis_values == at
        assert (point.ranks, point.nodes) == (ranks, ranks)
        assert point.seconds == predict_iteration(workload, ranks).seconds
        assert point.epoch == pytest.approx(1_000_000 / point.rate)
        assert point.cost is None


def test_nodes_train_with_all_their_ranks() -> None:
    result = swept(ranks=None, vary={"nodes": [2, 4], "ppn": [1, 2]})
    assert [point.ranks for point in result.points] == [2, 4, 4, 8]
    assert [point.nodes for point in result.points] == [2, 2, 4, 4]


def test_a_step_gains_at_least_and_at_most() -> None:
    result = swept()
    (step,) = [step for step in result.steps if step.axis == "bandwidth"]
    rates = {tuple(point.axis_values.values()): point.rate for point in result.points}
    gains = [rates[(*key[:2], 2e9)] / rate for key, rate in rates.items() if key[2] == 1e9]
    assert step.min_speedup == min(gains)
    assert step.max_speedup == max(gains) > 1.2
    sentence = f"Bandwidth 2GB/s against 1GB/s: {min(gains):.2f} to {max(gains):.2f} times as fast"
    assert sentence in summarise_sweep(result)
    assert "The fastest is ranks 8, latency 1us, bandwidth 2GB/s." in summarise_sweep(result)
    assert "Latency 1us to 2us changes nothing." in summarise_sweep(result)


def test_the_fastest_machine_is_named_and_the_first_that_is_hardly_slower() -> None:
    result = swept(rate=1, vary={"bandwidth": ["1GB/s", "2GB/s"]})
    assert result.fastest.rate == max(point.rate for point in result.points)
    assert (
        "The fastest is ranks 8, bandwidth 2GB/s; ranks 8, bandwidth 1GB/s is within 0.5% of it."
    ) in summarise_sweep(result)
    same = swept(rate=1, ranks=[1], vary={"latency": ["1us", "2us"]})
    assert "All configurations are equally fast, within 0.5%." in summarise_sweep(same)
    assert "The fastest" not in summarise_sweep(same)


def test_line_rates_are_said_as_they_were_written() -> None:
    record = sweep_record(run_sweep(DGX, HERE, processes=1))
    assert [point["bandwidth"] for point in record["points"]] == ["100Gb/s", "200Gb/s"] * 2
    assert [point["nics"] for point in record["points"]] == [4, 4, 8, 8]
    assert record["points"][0]["epoch_seconds"] is None


def test_a_price_for_an_hour_counts_every_gpu() -> None:
    record = {**DGX, "epoch": 1_281_167, "cost": {"gpu_hour": 2.5}}
    for point in run_sweep(record, HERE, processes=1).points:
        assert point.cost == pytest.approx(64 * 2.5 * point.epoch / 3600)


def test_prices_of_parts_are_spread_over_the_years_of_use() -> None:
    cost = {"node": 200_000, "nic": {"100Gb/s": 800, "200Gb/s": 1500}, "years": 5}
    result = run_sweep({**DGX, "epoch": 1_281_167, "cost": cost}, HERE, processes=1)
    first = result.points[0]
    price = 8 * (200_000 + 4 * 800)
    assert first.cost == pytest.approx(price / 5 / HOURS_PER_YEAR * first.epoch / 3600)
    assert result.cheapest is not None
    assert result.cheapest.axis_values["bandwidth"] < 2e10  # type: ignore[operator]
    assert "An epoch costs least with nics 4, bandwidth 100Gb/s" in summarise_sweep(result)


def test_gpus_have_rates_of_their_own() -> None:
    record = {
        **DGX,
        "precision": "amp",
        "model": "gpt2_medium",
        "batch": 4,
        "vary": {"gpu": ["A100", "H100"]},
        "epoch": 10_000,
        "cost": {"gpu_hour": {"A100": 2, "H100": 4}},
    }
    result = run_sweep(record, HERE, processes=1)
    old, new = result.points
    assert new.rate > 1.5 * old.rate
    assert new.cost == pytest.approx(64 * 4 * new.epoch / 3600)


@pytest.mark.slow
def test_processes_give_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.training.sweep.MAX_SERIAL_S", 0.0)
    told: list[float] = []
    record = {**DGX, "epoch": 1000}
    result = run_sweep(record, HERE, lambda fraction, _: told.append(fraction), processes=2)
    assert result.points == run_sweep(record, HERE, processes=1).points
    assert told == [0.25, 0.5, 0.75, 1.0]


def test_frameworks_are_compared_by_the_settings_in_which_they_differ() -> None:
    vary = {"framework": [{"name": "ddp", "bucket": "1MiB"}, {"name": "ddp"}, "horovod"]}
    result = swept(framework=None, ranks=[4], vary=vary, epoch=None)
    names = ["ddp, bucket 1MiB", "ddp", "horovod"]
    assert [point.axis_values["framework"] for point in result.points] == names
    for entry, point in zip(vary["framework"], result.points, strict=True):
        alone = sweep_from_record({**SWEEP, "framework": entry, "ranks": [4], "vary": {}}, HERE)
        assert point.seconds == predict_iteration(alone.workload, 4).seconds
    assert result.steps == ()
    assert summarise_sweep(result).startswith("The fastest is framework ")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"vary": [4]}, "vary must be a mapping with bandwidth, fabric, framework, gpu"),
        ({"vary": None}, "the sweep needs vary, such as `vary: {bandwidth: [100Gb/s, 200Gb/s]}`"),
        ({"vary": {"colour": [1]}}, "vary"),
        ({"ranks": None, "vary": {}}, "the sweep needs ranks, or nodes under vary"),
        ({"vary": {"nodes": [4]}}, "vary nodes or give ranks, not both"),
        ({"vary": {"placement": ["cyclic"]}}, "vary has an unknown key 'placement'; known: "),
        ({"vary": {"nccl_version": ["2.26.2"]}}, "vary has an unknown key 'nccl_version'; known: "),
        ({"vary": {"bandwidth": ["fast"]}}, "vary: bandwidth: 'fast' is not a bandwidth"),
        ({"vary": {"gpu": ["A100"]}}, "rate holds for one GPU: leave it out where gpu varies"),
        ({"vary": {"framework": ["ddp"]}}, "give framework, or vary it, not both"),
        (
            {"framework": None, "vary": {"framework": "ddp"}},
            "vary: framework must be a list of one or more frameworks, not 'ddp'",
        ),
        (
            {"framework": None, "vary": {"framework": ["ddp", "none"]}},
            "framework: 'none' is none of",
        ),
        (
            {
                "framework": None,
                "vary": {"framework": ["ddp", {"name": "ddp", "order": "backward"}]},
            },
            "vary: framework: order backward is there twice: leave one out",
        ),
        ({"epoch": 0}, "epoch must be a whole number from 1"),
        ({"cost": 5}, "cost must be a mapping with cable, gpu"),
        ({"cost": {"gpu_hour": -1}}, "cost: gpu_hour must be a number from 0"),
        ({"cost": {"gpu_hour": 1, "node": 2}}, "cost: give gpu_hour or prices of parts, not both"),
        ({"cost": {"node": 1, "years": 0}}, "cost: years must be a number above 0, not 0"),
        ({"vary": {"ranks": [2, 4, 8], "latency": MANY}}, "the sweep has 10002 configurations"),
        ({"batch": None}, "the workload"),
    ],
)
def test_bad_sweeps_are_refused_in_one_sentence(changed: dict[str, Any], reason: str) -> None:
    record = {key: value for key, value in {**SWEEP, **changed}.items() if value is not None}
    with pytest.raises(InputError) as error:
        sweep_from_record(record, HERE)
    assert str(error.value).startswith(reason)
    assert "\n" not in str(error.value)


def test_a_configuration_that_cannot_be_is_named() -> None:
    vary = {"nics": [1, 2]}
    with pytest.raises(InputError, match=r"^ranks 4, nics 1: topology flat has no costs"):
        swept(vary=vary)
