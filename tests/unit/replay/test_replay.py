"""Replays of training: plans, the streams of a rank, the command line."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.replay.__main__ import load_plan, main
from tests.replay.planned_steps import make_plan
from tests.replay.replay_plan import ReplayPlan, ReplayStep, plan_from_text, plan_text
from tests.replay.replay_report import print_report, replay_report
from tests.replay.streams import ComputeStream, Progress, StreamFailedError, sleep_until, spin_until
from tests.support.ladders import CLUSTER
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable, write_table
from tuner.training.iteration import predict_iteration
from tuner.training.workload import Workload, workload_from_record

RANKS = 4
KEY = RuleKey(Collective.ALLREDUCE, RANKS, 1)
DDP = {"name": "ddp", "bucket": "64KiB", "first_bucket": "16KiB"}
HOROVOD = {"name": "horovod", "fusion_threshold": "64KiB", "cycle_time": "2ms"}


def table() -> TuningTable:
    """Binomial trees for everything."""
    tree = AlgorithmChoice("recursive_doubling")
    rule = Rule(KEY, 0, float("inf"), tree, Evidence("measured"))
    return TuningTable(CLUSTER, "openmpi 5.0.11", (rule,))


def record(framework: Any = "ddp", **changes: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "model": {
            "kind": "gpt",
            "layers": 2,
            "width": 64,
            "heads": 2,
            "sequence": 16,
            "vocabulary": 100,
        },
        "batch": 2,
        "rate": 100,
        "framework": framework,
        "topology": {"name": "four", "nodes": RANKS, "latency": "20us", "bandwidth": "1Gbit/s"},
        "ranks": [RANKS],
        "algorithms": "table.json",
        **changes,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_table(table(), tmp_path / "table.json")
    return tmp_path


def workload(folder: Path, framework: Any = "ddp", **changes: Any) -> Workload:
    return workload_from_record(record(framework, **changes), folder)


def steps_of(**steps: Any) -> tuple[ReplayStep, ...]:
    """Steps by name, each with what differs from one that computes for no time."""
    made = ReplayStep("", True, 0.0)
    return tuple(replace(made, name=name, **own) for name, own in steps.items())


def test_a_plan_has_the_predicted_operations(folder: Path) -> None:
    given = workload(folder, DDP)
    plan, predicted = make_plan(given, RANKS), predict_iteration(given, RANKS)
    assert plan.seconds == predicted.seconds
    assert plan.cycles is None
    assert len(plan.steps) == len(predicted.timeline)
    calls = [(one.operation, one.nbytes, one.size) for one in plan.steps if one.operation]
    wanted = [one.call for one in predicted.timeline if one.call]
    assert calls == [(one.operation, one.nbytes, one.group.size) for one in wanted]
    computed = sum(one.seconds for one in plan.steps if one.computes)
    assert computed == pytest.approx(plan.compute)


def test_steps_wait_for_what_the_operations_wait_for(folder: Path) -> None:
    steps = make_plan(workload(folder, DDP), RANKS).steps
    calls = [number for number, step in enumerate(steps) if step.operation]
    assert all(steps[before].name == "copy" for at in calls for before in steps[at].after)
    (update,) = (step for step in steps if step.name == "update")
    assert update.after == tuple(calls)
    assert all(not step.before for step in steps if step.operation)


def test_parameters_of_the_iteration_before_are_waited_for(folder: Path) -> None:
    """ZeRO gathers what the forward pass of the next iteration needs."""
    framework = {"name": "zero", "stage": 1, "bucket": "64KiB"}
    given = workload(folder, framework, algorithms=["ring", "recursive_doubling"])
    plan = make_plan(given, RANKS, table_for_all())
    gathers = {at for at, step in enumerate(plan.steps) if step.operation == "allgather"}
    awaited = {other for step in plan.steps for other in step.before}
    assert gathers
    assert awaited & gathers


def table_for_all() -> TuningTable:
    """Rings for what ZeRO calls."""
    ring = AlgorithmChoice("ring", runner="schedule")
    rules = tuple(
        Rule(replace(KEY, collective=one), 0, float("inf"), ring, Evidence("measured"))
        for one in (Collective.ALLREDUCE, Collective.ALLGATHER, Collective.REDUCE_SCATTER)
    )
    return TuningTable(CLUSTER, "openmpi 5.0.11", rules)


def test_horovod_reduces_in_cycles(folder: Path) -> None:
    plan = make_plan(workload(folder, HOROVOD | {"cache": True}), RANKS)
    assert plan.cycles is not None
    assert plan.cycles.cache
    assert plan.cycles.cycle_time == pytest.approx(2e-3)
    assert plan.cycles.threshold >= 64 << 10
    assert all(step.computes for step in plan.steps)
    made = [one.made_by for one in plan.cycles.tensors]
    assert made == sorted(made)
    assert made[-1] == len(plan.steps) - 2
    assert plan.steps[-1].after == (len(plan.steps),)


def test_a_table_replaces_the_algorithms(folder: Path) -> None:
    given = workload(folder, DDP, algorithms="best")
    with pytest.raises(InputError, match="best"):
        make_plan(given, RANKS)
    assert make_plan(given, RANKS, table()).table is not None


def test_another_number_of_ranks_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"^3 ranks were started, and the workload is for 4$"):
        make_plan(workload(folder), 3)


def test_a_parameter_server_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="is not a collective call"):
        make_plan(workload(folder, "parameter-server"), RANKS)


def test_noise_is_drawn_by_the_ranks(folder: Path) -> None:
    plan = make_plan(workload(folder, DDP, noise="10%"), RANKS)
    even = make_plan(workload(folder, DDP), RANKS)
    assert plan.noise == pytest.approx(0.1)
    assert plan.seconds > even.seconds
    assert plan.steps == even.steps


@pytest.mark.parametrize("framework", [DDP, HOROVOD], ids=["ddp", "horovod"])
def test_a_plan_is_read_as_it_was_written(folder: Path, framework: Any) -> None:
    plan = make_plan(workload(folder, framework), RANKS)
    read = plan_from_text(plan_text(plan))
    assert read is not None
    assert read.steps == plan.steps
    assert read.cycles == plan.cycles
    assert read.table is not None
    assert read.table.rules == table().rules


def test_other_files_are_no_plans() -> None:
    assert plan_from_text("model: resnet50") is None
    assert plan_from_text('{"kind": "table"}') is None


@pytest.mark.parametrize(
    ("field", "value", "wrong"),
    [
        ("after", [9], "waits for one that is not before it"),
        ("before", [9], "waits for no step"),
        ("seconds", -1.0, "negative time"),
        ("seconds", "long", "cannot be 'long'"),
    ],
)
def test_a_damaged_plan_is_refused(folder: Path, field: str, value: Any, wrong: str) -> None:
    damaged = json.loads(plan_text(make_plan(workload(folder, DDP), RANKS)))
    damaged["steps"][0][field] = value if field != "before" else [len(damaged["steps"])]
    with pytest.raises(InputError, match=wrong):
        plan_from_text(json.dumps(damaged))


def test_a_plan_of_another_version_is_refused(folder: Path) -> None:
    text = plan_text(make_plan(workload(folder), RANKS)).replace('"version": 1', '"version": 2', 1)
    with pytest.raises(InputError, match="not of version 1"):
        plan_from_text(text)


def test_streams_wait_for_one_another() -> None:
    progress = Progress(2)
    assert progress.wait([(0, 0)]) is False
    thread = threading.Timer(0.05, progress.mark, [0])
    thread.start()
    assert progress.wait([(0, 1)]) is True
    assert progress.has_ended(0, 1)
    assert not progress.has_ended(1, 1)


def test_a_failure_ends_the_wait() -> None:
    progress = Progress(1)
    threading.Timer(0.05, progress.fail).start()
    with pytest.raises(StreamFailedError):
        progress.wait([(0, 1)])


@pytest.mark.parametrize("wait_until", [sleep_until, spin_until])
def test_computation_takes_its_time(wait_until: Any) -> None:
    steps = steps_of(one={"seconds": 0.02}, call={"computes": False}, two={"seconds": 0.01})
    stream = ComputeStream(steps, Progress(3), np.array([1.0, 2.0]), wait_until)
    begin = time.monotonic()
    stream.start()
    stream.join()
    assert time.monotonic() - begin >= 0.09
    assert np.diff(stream.ends) == pytest.approx([0.06])


def test_computation_waits_for_calls() -> None:
    steps = steps_of(call={"computes": False}, one={"seconds": 0.01, "after": (0,)})
    progress = Progress(2)
    stream = ComputeStream(steps, progress, np.ones(1), sleep_until)
    stream.start()
    called = time.monotonic()
    progress.mark(0)
    stream.join()
    assert stream.ends[0] >= called + 0.01


def test_a_stream_that_fails_stops_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: float) -> None:
        raise OSError("no clock")

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    progress = Progress(1)
    stream = ComputeStream(steps_of(one={}), progress, np.ones(1), fails)
    stream.start()
    with pytest.raises(StreamFailedError):
        progress.wait([(0, 1)])


def report(*seconds: float, hosts: int = 4) -> dict[str, Any]:
    plan = ReplayPlan("small", RANKS, 4, 0.11, 0.1, 0.0, ())
    return replay_report([plan], [seconds], "Open MPI v5.0.11", hosts, "sleep")


def test_the_report_compares_measured_with_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    record = report(0.12, 0.1, 0.11, 0.13, 0.11)
    (one,) = record["replays"]
    assert one["median_seconds"] == pytest.approx(0.11)
    assert one["ci95"] == [0.1, 0.13]
    assert one["exposed"] == pytest.approx(0.01)
    assert one["predicted_exposed"] == pytest.approx(0.01)
    print_report(record, as_json=False)
    assert capsys.readouterr().out.startswith("small, 4 ranks: 110ms an iteration (100ms to 130ms)")
    print_report(record, as_json=True)
    assert json.loads(capsys.readouterr().out) == record


def test_other_hosts_than_predicted_are_a_caution(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(report(0.11, hosts=1), as_json=False)
    assert "caution: the prediction is for 4 nodes" in capsys.readouterr().out


def test_the_command_writes_a_plan(folder: Path) -> None:
    (folder / "small.yaml").write_text(json.dumps(record(DDP)))
    out = folder / "plan.json"
    assert main([str(folder / "small.yaml"), "--ranks", "4", "--write-plan", str(out)]) == 0
    assert load_plan(out, 4, None).workload == "small"
    with pytest.raises(InputError, match="2 ranks were started, and the plan is for 4"):
        load_plan(out, 2, None)
    with pytest.raises(InputError, match="has its table already"):
        load_plan(out, 4, folder / "table.json")


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (None, "cannot be read: No such file"),
        ("model: resnet50", "small.yaml: the workload"),
        ('{"kind": "replay-plan", "version": 1, "table": null}', "not a plan of a replay"),
    ],
)
def test_bad_input_is_one_sentence(
    folder: Path, content: str | None, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "small.yaml"
    if content:
        path.write_text(content)
    assert main([str(path), "--ranks", "4", "--write-plan", str(folder / "out.json")]) == 1
    said = capsys.readouterr().err
    assert wrong in said
    assert said.count("\n") == 1
    assert not (folder / "out.json").exists()


@pytest.mark.parametrize("words", [["--ranks", "2"], ["--write-plan", "x"], ["--iterations", "0"]])
def test_options_that_do_not_fit_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["small.yaml", *words])
    assert left.value.code == 2
