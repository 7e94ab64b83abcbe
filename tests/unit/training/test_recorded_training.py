"""Predictions of recorded iterations, and their calls as a profile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.core.call_profile import ProfiledCall, read_call_profile
from tuner.training.iteration import PredictedIteration, predict_recorded
from tuner.training.perfetto_trace import trace_text
from tuner.training.profile_export import write_profile
from tuner.training.recorded import COMMUNICATION, COMPUTE, HOST, RecordedStep, RecordedWorkload
from tuner.training.recorded_training import RecordedTraining, recording_warnings
from tuner.training.time_shares import time_shares
from tuner.training.timeline import COMPUTATION, WAIT
from tuner.training.workload import read_training, read_workload, recorded_from_record

SIMAI = """\
HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 8
1
layer -1 1000000 ALLREDUCE 4194304 2000000 NONE 0 3000000 ALLREDUCE 8388608 100
"""
RECORD: dict[str, Any] = {
    "recorded": "own.txt",
    "topology": "preset:dgx-1v",
    "ranks": 8,
    "algorithms": "default",
}


def training(folder: Path, **more: Any) -> RecordedTraining:
    (folder / "own.txt").write_text(SIMAI)
    return recorded_from_record({**RECORD, **more}, folder)


def predicted(given: RecordedTraining) -> PredictedIteration:
    return predict_recorded(given, *given.ranks)


def test_an_iteration_takes_its_computation_and_the_calls_it_waits_for(tmp_path: Path) -> None:
    found = predicted(training(tmp_path, batch=2))
    assert [(one.call.operation, one.call.group.size, one.count) for one in found.calls] == [
        ("allreduce", 4, 1),
        ("allreduce", 2, 1),
    ]
    assert found.compute == pytest.approx(6e-3)
    waited = sum(one.seconds for one in found.calls)  # the last one is not overlapped either
    assert found.seconds == pytest.approx(6e-3 + waited)
    assert found.exposed == pytest.approx(waited)
    assert found.samples == 16
    assert found.rate == pytest.approx(16 / found.seconds)
    assert found.efficiency == pytest.approx(found.compute / found.seconds)


def test_without_a_batch_iterations_are_counted(tmp_path: Path) -> None:
    found = predicted(training(tmp_path))
    assert found.rate == pytest.approx(1 / found.seconds)


def test_a_call_overlaps_with_what_does_not_wait_for_it(tmp_path: Path) -> None:
    steps = (
        RecordedStep("a", COMPUTE, 1e-3),
        RecordedStep("b", COMMUNICATION, 0.0, "allreduce", 1 << 20, "world", (0,)),
        RecordedStep("c", COMPUTE, 1.0),
        RecordedStep("d", COMPUTE, 1e-3, after=(1,)),
    )
    given = replace(
        training(tmp_path), recorded=RecordedWorkload("own", steps, {"world": (0, 1)}, bubble=0.5)
    )
    found = predicted(given)
    assert found.calls[0].call.group.size == 8
    assert found.seconds == pytest.approx(1.002 * 1.5)


def test_the_host_works_beside_the_gpu(tmp_path: Path) -> None:
    steps = (
        RecordedStep("launch", HOST, 1e-3),
        RecordedStep("gemm", COMPUTE, 3e-3, after=(0,)),
        RecordedStep("launch", HOST, 2e-3),
        RecordedStep("gemm", COMPUTE, 1e-3, after=(2,)),
    )
    given = replace(training(tmp_path), recorded=RecordedWorkload("own", steps, {"world": (0, 1)}))
    found = predicted(given)
    assert found.seconds == pytest.approx(5e-3)  # one after the other they took 7 ms
    assert found.compute == pytest.approx(4e-3)
    shares = time_shares(found)
    assert (shares[COMPUTATION], shares[WAIT]) == pytest.approx((4e-3, 1e-3))
    events = json.loads(trace_text(found))["traceEvents"]
    processes = {one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert processes == {"host", "compute"}


def test_bytes_of_one_rank_count_for_all_of_the_group(tmp_path: Path) -> None:
    steps = (RecordedStep("b", COMMUNICATION, 0.0, "allgather", 1024, "TP", per_rank=True),)
    given = replace(training(tmp_path), recorded=RecordedWorkload("own", steps, {"TP": (2, 1)}))
    assert predicted(given).calls[0].call.nbytes == 2048


def test_a_group_of_unknown_ranks_is_asked_for_and_can_be_given(tmp_path: Path) -> None:
    steps = (RecordedStep("b", COMMUNICATION, 0.0, "allreduce", 1024, "7"),)
    given = replace(training(tmp_path), recorded=RecordedWorkload("own", steps, {}))
    with pytest.raises(InputError, match=r"which ranks are in group 7: add `groups: \{7: "):
        predict_recorded(given, 8)
    assert given.recorded.with_groups({"7": (4, 2)}).groups["7"] == (4, 2)
    own = training(tmp_path, groups={"TP": {"size": 4, "stride": 2}})
    assert own.recorded.groups["TP"] == (4, 2)
    with pytest.raises(InputError, match=r"own has no group 7; it has \['DP', .*'TP'\]"):
        training(tmp_path, groups={7: {"size": 4}})


def test_an_uneven_group_is_predicted_as_an_even_one_unless_it_is_given(tmp_path: Path) -> None:
    steps = (
        RecordedStep("a", COMMUNICATION, 0.0, "allreduce", 1024, "7"),
        RecordedStep("b", COMMUNICATION, 0.0, "allgather", 384, per_rank=True),
    )
    recorded = RecordedWorkload("own", steps, {"world": (0, 1)}, uneven={"7": (0, 1, 4, 5)})
    given = replace(training(tmp_path), recorded=recorded)
    assert {one.call.group.size for one in predicted(given).calls} == {4, 8}
    (caution,) = recording_warnings(given)
    assert "group 7 of own has the ranks [0, 1, 4, 5], at unequal distances" in caution
    assert "has 25.0% of the bytes" in caution
    own = replace(given, recorded=recorded.with_groups({"7": (2, 4)}))
    assert {one.call.group for one in predicted(own).calls} == {(2, 4, 0), (8, 1, 0)}
    assert not list(recording_warnings(own))
    with pytest.raises(InputError, match="group 7 has rank 5, and the job has 4 ranks"):
        predict_recorded(given, 4)


def test_calls_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    given, one = training(tmp_path), RecordedStep("a", COMPUTE, 1e-3)
    silent = RecordedWorkload("own", (one,), {})
    for unread, said in [
        ((), "has no collective calls, so that computation alone is predicted: record a rank"),
        (("mpi:reduce",), "left out: mpi:reduce; computation alone is predicted"),
        (tuple("abcdefghi"), "left out: a, b, c, d, e, f, g, h, ...; computation"),
    ]:
        (caution,) = recording_warnings(replace(given, recorded=replace(silent, unread=unread)))
        assert said in caution
    partly = replace(given.recorded, unread=("mpi:reduce",))
    (caution,) = recording_warnings(replace(given, recorded=partly))
    assert caution.endswith("left out: mpi:reduce")


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ("NVIDIA A100-SXM4-80GB", "own was recorded on NVIDIA A100-SXM4-80GB, and dgx-1v has V100"),
        ("Tesla V100-SXM2-16GB", ""),
        ("", ""),
    ],
    ids=["another", "the same", "unknown"],
)
def test_a_recording_of_another_gpu_is_said(gpu: str, said: str, tmp_path: Path) -> None:
    given = training(tmp_path)
    cautions = [*recording_warnings(replace(given, recorded=replace(given.recorded, gpu=gpu)))]
    assert [said in one for one in cautions] == ([True] if said else [])


def test_what_a_file_says_and_the_prediction_does_not_follow_is_a_caution(tmp_path: Path) -> None:
    given = training(tmp_path)
    noted = replace(given, recorded=replace(given.recorded, notes=("calls of odd blocks",)))
    assert [*recording_warnings(noted)] == ["caution: own: calls of odd blocks"]


def test_groups_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="6 ranks cannot be divided into groups of 4 ranks"):
        predicted(training(tmp_path, ranks=6))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": "resnet50"}, "unknown key 'model'"),
        ({"batch": -1}, "batch must be a number above 0"),
        ({"recorded": "none.txt"}, r"none\.txt: expected the path of a file"),
        ({"groups": [1]}, "groups is a mapping"),
        ({"groups": {"TP": {"stride": 1}}}, "group TP lacks 'size'"),
    ],
)
def test_malformed_records_are_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        training(tmp_path, **more)


def test_models_and_recorded_iterations_are_told_apart(tmp_path: Path) -> None:
    training(tmp_path)
    (tmp_path / "own.csv").write_text("name,forward_ms,backward_ms,elements\na,1,2,3\n")
    (tmp_path / "w.yaml").write_text("{recorded: own.txt, topology: 'preset:dgx-1v', ranks: 8}")
    assert isinstance(read_training(tmp_path / "w.yaml"), RecordedTraining)
    with pytest.raises(InputError, match=r"w\.yaml: has a recorded iteration, and a model"):
        read_workload(tmp_path / "w.yaml")
    with pytest.raises(InputError, match=r"own\.csv holds the layers of a model"):
        training(tmp_path, recorded="own.csv")
    base = "batch: 4, framework: ddp, topology: 'preset:dgx-1v', ranks: 8"
    (tmp_path / "m.yaml").write_text(f"{{model: {{file: own.txt}}, {base}}}")
    with pytest.raises(InputError, match=r"own\.txt holds the steps of an iteration"):
        read_workload(tmp_path / "m.yaml")
    (tmp_path / "m.yaml").write_text(f"{{model: {{file: own.csv}}, {base}}}")
    assert read_workload(tmp_path / "m.yaml").model.elements == 3


def test_calls_are_written_as_a_profile(tmp_path: Path) -> None:
    found = predicted(training(tmp_path))
    write_profile(tmp_path / "calls.json", found, "own", "cuda")
    assert read_call_profile(tmp_path / "calls.json").calls == (
        ProfiledCall("allreduce", 1, 4, 8388608, 1, "cuda"),
        ProfiledCall("allreduce", 1, 2, 4194304, 1, "cuda"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a profile of calls"),
        ("[]", "expected kind: profile"),
        ('{"kind": "profile", "calls": [], "library": 5}', "expected texts as name and library"),
        ('{"kind": "profile", "calls": [1]}', "each of calls is a mapping"),
        ('{"kind": "profile", "calls": [{"collective": "x"}]}', "not a profile of calls"),
    ],
)
def test_damaged_profiles_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "calls.json").write_text(text)
    with pytest.raises(InputError, match=rf"calls\.json: .*{said}"):
        read_call_profile(tmp_path / "calls.json")


def test_calls_of_no_bytes_are_not_profiled() -> None:
    with pytest.raises(InputError, match="at least 1"):
        ProfiledCall("bcast", 1, 2, 0, 1)
