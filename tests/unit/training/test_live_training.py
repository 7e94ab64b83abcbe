"""Training that is predicted in steps: the same numbers as `tuner training`, in a known order."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.workloads import RECORD, workload
from tuner.base.errors import InputError
from tuner.training.frameworks.fusion import Ddp
from tuner.training.iteration import predict_iteration
from tuner.training.live_training import LiveTraining
from tuner.training.policies import FastestKnown
from tuner.training.scaling import predict_scaling, scaling_record
from tuner.training.timeline_record import timeline_record

HEADER = "name,forward_ms,backward_ms,elements\n"
GPUS = {
    "model": "resnet50",
    "batch": 64,
    "framework": "horovod",
    "topology": "preset:dgx-a100",
    "ranks": [8, 16],
}


def record(**changes: Any) -> dict[str, Any]:
    return {**RECORD, "detail": 4, "vary": {}, **changes}


def all_lines(training: LiveTraining) -> list[dict[str, Any]]:
    lines, step = [training.first_line()], 1
    while step < len(training.steps):
        step, made = training.lines(step, 0.0)
        assert len(made) <= 1  # there was no time for more
        lines += made
    assert len(lines) == len(training.steps)
    assert lines[-1]["done"] == 1.0
    return lines


def test_points_and_limits_are_those_of_the_scaling() -> None:
    lines = all_lines(LiveTraining(record()))
    assert [line["ranks"] for line in lines if line["kind"] == "point"] == [4, 1, 8]
    asked = workload()
    expected = {
        one["ranks"]: one for one in scaling_record(asked, predict_scaling(asked))["points"]
    }
    for line in lines:
        if line["kind"] == "point":
            own = expected[line["ranks"]]
            for name in ("seconds", "exposed", "efficiency", "calls", "shares"):
                assert line[name] == own[name], name
            assert 0.0 <= line["hidden"] <= line["communication"]
    (limits,) = (line for line in lines if line["kind"] == "limits")
    assert limits["limits"] == expected[4]["limits"]
    assert limits["limit"] == expected[4]["limit"]


def test_the_accuracy_is_that_of_the_calls_that_are_shown() -> None:
    told = LiveTraining({**GPUS, "detail": 8, "vary": {}}).outline()["accuracy"]
    assert told.startswith("Accuracy on dgx-a100: simulated times were not compared")
    assert "; times of NCCL were off by" in told
    assert "to 512MiB on one node" in told


def test_hidden_and_exposed_communication_are_all_of_it() -> None:
    point = LiveTraining(record()).first_line()
    exposed = point["shares"]["communication"] + point["shares"]["copy"]
    assert point["hidden"] + exposed == pytest.approx(point["communication"], rel=0.01)


def test_variants_are_other_buckets_and_algorithms() -> None:
    training = LiveTraining(record(framework={"name": "ddp", "bucket": "3MiB"}))
    lines = [line for line in all_lines(training) if line["kind"] == "variant"]
    buckets = sorted({line["settings"]["bucket"] for line in lines})
    assert buckets == sorted({1 << power for power in range(20, 29)} | {3 << 20})
    assert {line["algorithms"] for line in lines} == {"best"}
    one = next(line for line in lines if line["settings"]["bucket"] == 4 << 20)
    asked = replace(workload(), framework=Ddp(bucket=4 << 20), policy=FastestKnown())
    found = predict_iteration(asked, 4)
    assert one["seconds"] == pytest.approx(found.seconds, rel=1e-12)


def test_nccl_is_tried_alone_and_as_it_chooses() -> None:
    training = LiveTraining({**GPUS, "detail": 16, "vary": {"bandwidth": ["400Gb/s"]}})
    tried = [argument.algorithms for kind, argument in training.steps if kind == "variant"]
    assert list(dict.fromkeys(tried)) == ["default", "nccl_ring", "nccl_tree", "best"]
    assert training.outline()["settings"]["fusion_threshold"] == 128 << 20


def test_a_later_question_knows_the_calls_of_an_earlier_one() -> None:
    first = LiveTraining(record())
    first.first_line()
    later = LiveTraining(record(framework={"name": "ddp", "bucket": "1MiB"}, batch=32))
    assert later.workload.call_times(4) is first.workload.call_times(4)
    other = LiveTraining(record(vary={"latency": ["9us"]}))
    assert other.workload.call_times(4) is not first.workload.call_times(4)


def test_a_preset_has_as_many_nodes_as_are_needed() -> None:
    training = LiveTraining({**GPUS, "detail": 2048, "ranks": [2048], "vary": {}})
    assert len(training.workload.machine.topology.nodes) == 256


def test_numbers_of_ranks_that_cannot_be_predicted_are_named() -> None:
    training = LiveTraining(record(scaling="strong", batch=12, ranks=[1, 4, 8]))
    problem = next(line for line in all_lines(training) if "problem" in line)
    assert (problem["kind"], problem["ranks"]) == ("point", 8)
    assert "cannot be divided" in problem["problem"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"detail": 64, "ranks": [64]}, "64 ranks need 64 nodes"),
        ({"model": {"table": f"layer,{HEADER}0,a,1,1,4\n2,c,1,1,4"}}, "line 3: layer"),
        ({"model": {"table": f"{HEADER}a,-1,1,4"}}, "model: table: line 2: forward_ms"),
        ({"model": {"table": ""}}, "model: table: line 1"),
    ],
)
def test_what_cannot_be_predicted_is_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        LiveTraining(record(**changes)).first_line()


def test_a_model_that_does_not_fit_is_refused_at_once() -> None:
    large = {"model": "gpt3_175b", "precision": "amp", "batch": 1, "framework": "ddp"}
    training = LiveTraining({**GPUS, **large, "detail": 8, "vary": {}})
    with pytest.raises(InputError, match="take more ranks"):
        training.outline()


def test_the_timeline_and_the_trace_have_the_same_bars() -> None:
    training = LiveTraining(record())
    found = predict_iteration(workload(), 4)
    made = timeline_record(found)
    assert made["streams"][0] == "compute"
    events = json.loads(training.trace())["traceEvents"]
    starts = sorted(event["ts"] / 1e6 for event in events if event["ph"] == "X")
    assert [bar[3] for bar in made["bars"]] == pytest.approx(starts, abs=1e-9)
    assert made["omitted"] == 0


def test_of_too_many_bars_the_first_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.training.timeline_record.MAX_BARS", 5)
    made = timeline_record(predict_iteration(workload(), 4))
    assert len(made["bars"]) == 5
    assert made["omitted"] > 0


def test_steps_that_are_left_out_have_names() -> None:
    training = LiveTraining(record())
    names = training.names(1)
    assert names[:3] == ["timeline of 4 ranks", "point of 1 rank", "point of 8 ranks"]
    assert names[-1] == "bucket=256MiB with best"


def test_an_iteration_that_takes_long_is_refused() -> None:
    with pytest.raises(InputError, match="take too long to be watched"):
        LiveTraining({**GPUS, "detail": 16, "vary": {}, "passes": 4096})
