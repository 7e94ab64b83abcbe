"""Workloads from records: what is refused, and what settings mean together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.base.errors import InputError
from tuner.core.calibration import write_calibration
from tuner.core.table import AlgorithmChoice
from tuner.machines.loader import load_machine
from tuner.prediction.call_predictor import CallPredictor
from tuner.training import groups
from tuner.training.groups import Call
from tuner.training.iteration import predict_iteration
from tuner.training.memory_need import activation_memory, activation_warning, needed_memory
from tuner.training.policies import FastestKnown
from tuner.training.sweep_spec import read_sweep
from tuner.training.training_limits import COMMUNICATION, training_limits
from tuner.training.workload import Workload, read_training, read_workload, workload_from_record

FLAT: dict[str, Any] = {
    "model": "alexnet",
    "batch": 64,
    "rate": 1000,
    "framework": "ddp",
    "topology": {"name": "flat", "nodes": 16, "latency": "2us", "bandwidth": "10GB/s"},
    "ranks": 16,
    "algorithms": ["ring", "recursive_doubling"],
}
GPUS: dict[str, Any] = {
    "model": {"kind": "mixtral", "layers": 8, "width": 1024, "heads": 16, "sequence": 1024}
    | {"vocabulary": 32000, "experts": 8, "active_experts": 2},
    "batch": 1,
    "passes": 4,
    "precision": "amp",
    "framework": {"name": "megatron", "pipeline": 2, "expert": 8},
    "topology": "preset:dgx-a100:2",
    "ranks": 16,
}


def workload(base: dict[str, Any], **changed: Any) -> Workload:
    return workload_from_record({**base, **changed}, Path())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ranks": []}, "ranks must be a number of ranks or a list of them"),
        ({"ranks": 17}, "17 ranks need 17 nodes of 1 rank, and flat has 16"),
        ({"calibration": 5}, "calibration is the name of a file, not 5"),
        ({"defaults": None}, "defaults is the name of a file, not None"),
        ({"algorithms": ["ring", "foo"]}, "unknown algorithm 'foo'"),
        ({"topology": "preset:dgx-h100:2", "ppn": 16}, "which has 8 GPUs"),
        ({"batch": 0}, "batch must be a whole number from 1"),
        ({"passes": (1 << 12) + 1}, "passes must be a whole number from 1 to 4096"),
        ({"precision": "fp8"}, "precision is one of fp32, amp, not 'fp8'"),
        ({"scaling": "none"}, "scaling is one of weak, strong, not 'none'"),
        ({"memory": "gpu"}, "memory is one of host, cuda, not 'gpu'"),
        ({"noise": 2}, "noise is a share from 0 to 1"),
        ({"algorithms": 5}, "algorithms is default, best, the file of a tuning table or a list"),
        ({"rate": 0}, "rate must be a number above 0 and at most"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        workload(FLAT, **changed)


def test_a_file_that_is_too_long_is_refused_with_all_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text("# é\n" * 500_000, encoding="utf-8")
    with pytest.raises(InputError, match="2500000 bytes of YAML are too many: at most 1048576"):
        read_training(path)


def test_what_a_file_holds_is_refused_with_its_name(tmp_path: Path) -> None:
    missing, binary, steps = (tmp_path / name for name in ("none.yaml", "bytes.yaml", "own.yaml"))
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=f"{missing}: cannot be read: No such file"):
        read_training(missing)
    with pytest.raises(InputError, match=f"{binary}: not text in UTF-8; see `tuner training run"):
        read_training(binary)
    with pytest.raises(InputError, match=f"{binary}: not text in UTF-8; see `tuner training sweep"):
        read_sweep(binary)
    (tmp_path / "layers.csv").write_text("name,forward_ms,backward_ms,elements\nfc,1,2,10\n")
    record = {"recorded": "layers.csv", "topology": FLAT["topology"], "ranks": 2}
    steps.write_text(yaml.safe_dump(record))
    with pytest.raises(InputError, match=f"{steps}: recorded: layers.csv holds the layers of a"):
        read_training(steps)


def test_a_table_of_layers_may_stand_in_the_workload(tmp_path: Path) -> None:
    text = "name,forward_ms,backward_ms,elements\na,1,2,10\nb,1,1,\n"
    (tmp_path / "own.csv").write_text(text)
    here = workload(FLAT, model={"table": text, "name": "own"})
    there = workload_from_record({**FLAT, "model": {"file": "own.csv"}}, tmp_path)
    assert here.model == there.model


def test_a_recorded_iteration_is_no_model(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 5, "pid": 1, "tid": 1}
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [event]}))
    path = tmp_path / "own.yaml"
    record = {"recorded": "trace.json", "topology": FLAT["topology"], "ranks": 2}
    path.write_text(yaml.safe_dump(record))
    assert read_training(path).ranks == (2,)
    with pytest.raises(InputError, match=f"{path}: has a recorded iteration, and a model is"):
        read_workload(path)
    with pytest.raises(InputError, match=r"trace\.json holds the steps of an iteration and no lay"):
        workload_from_record({**FLAT, "model": {"file": "trace.json"}}, tmp_path)


def test_times_of_calls_are_shared_where_all_is_the_same() -> None:
    asked = workload(FLAT)
    times = asked.call_times(16)
    assert replace(asked, batch=1).call_times(16) is times
    assert asked.call_times(8).nodes == 8
    for changed in (
        replace(asked, ppn=2),
        replace(asked, memory="cuda"),
        replace(asked, policy=FastestKnown()),
        replace(asked, link_values={"bandwidth": 1e9}),
    ):
        assert changed.call_times(16) is not times
    faster = asked.call_times(16, "latency")
    assert faster is not times
    assert faster.latency_factor == 0.5
    assert asked.call_times(16, "nics").latency_factor == 1.0


def test_what_is_left_out_has_defaults() -> None:
    plain, mixed = workload(FLAT, ranks=[16, 2, 16]), workload(FLAT, precision="amp", ppn=4)
    assert plain.name == "alexnet on flat"
    assert (plain.ranks, plain.ppn, plain.memory) == ((2, 16), 1, "host")
    assert (plain.element_bytes, mixed.element_bytes) == (4, 2)
    assert (plain.passes, plain.noise, plain.rank_batch(16)) == (1, 0.0, 64)
    assert mixed.placement(16)[1].shape == (4, 4)
    assert workload(GPUS).ppn == 8
    assert workload(GPUS).memory == "cuda"
    times = {"file": "layers.csv"}
    assert isinstance(workload(FLAT, algorithms="best").policy, FastestKnown)
    with pytest.raises(InputError, match=r"layers\.csv: expected the path of a file"):
        workload(FLAT, model=times)


def test_images_have_no_rate_by_the_peak_of_a_gpu() -> None:
    own = {key: value for key, value in GPUS.items() if key != "framework"}
    changed = {"model": "resnet50", "topology": "preset:dgx-h100:2", "framework": "ddp"}
    with pytest.raises(InputError, match="how fast H100 trains resnet50 in amp is not known"):
        workload(own, **changed)


def test_strong_scaling_divides_the_batch_over_the_replicas() -> None:
    strong = workload(GPUS, batch=16, scaling="strong")
    assert strong.rank_batch(16) == 2  # eight replicas of two stages
    assert workload(FLAT, scaling="strong").rank_batch(16) == 4
    with pytest.raises(InputError, match="a batch of 64 cannot be divided over 5 ranks"):
        workload(FLAT, scaling="strong").rank_batch(5)


def test_cycles_may_follow_one_another_at_once() -> None:
    none = workload(FLAT, framework={"name": "horovod", "cycle_time": "0s"})
    usual = workload(FLAT, framework={"name": "horovod", "cycle_time": "5ms"})
    assert predict_iteration(none, 16).seconds <= predict_iteration(usual, 16).seconds


def test_experts_and_the_state_of_the_optimizer_are_divided() -> None:
    plain = needed_memory(workload(GPUS, framework={"name": "megatron", "pipeline": 2}), 16)
    experts = needed_memory(workload(GPUS), 16)
    framework = {"name": "megatron", "pipeline": 2, "expert": 8, "distributed": True}
    divided = needed_memory(workload(GPUS, framework=framework), 16)
    assert divided < experts < plain


def test_faster_communication_shortens_messages_and_exchanges_of_tokens() -> None:
    here = workload(GPUS)
    times = here.call_times(16)
    found = predict_iteration(here, 16, times)
    exchanged = sum(
        one.count * one.seconds for one in found.calls if one.call.operation == "alltoall"
    )
    assert exchanged > 0.05 * found.seconds
    limits = training_limits(here, found, times)
    assert limits[COMMUNICATION] > 1.02
    assert max(value for name, value in limits.items() if name != COMMUNICATION) > 1.0


FRAMEWORKS = ("ddp", "horovod", "zero", "fsdp", "parameter-server", "s-caffe", "caffe", "cntk")


@pytest.mark.parametrize("noise", [0, "5%"])
@pytest.mark.parametrize("framework", [*FRAMEWORKS, "shm-learn-dist"])
def test_one_rank_alone_has_its_given_rate(framework: str, noise: Any) -> None:
    alone = predict_iteration(workload(FLAT, framework=framework, noise=noise, ranks=1), 1)
    assert alone.rate == pytest.approx(1000, rel=1e-12)
    assert alone.efficiency == pytest.approx(1.0, rel=1e-12)


def test_a_given_calibration_counts_on_any_number_of_nodes(tmp_path: Path) -> None:
    machine = load_machine("preset:dgx-a100", tmp_path)
    slower = replace(machine.calibration, pointer_query_seconds=1.0)
    write_calibration(slower, tmp_path / "own.json")
    record = {**FLAT, "topology": "preset:dgx-a100", "calibration": "own.json", "ppn": 1}
    asked = workload_from_record(record, tmp_path)
    assert len(machine.topology.nodes) != 16
    assert predict_iteration(asked, 16).communication > 1.0


def test_links_with_other_values_count_on_any_number_of_nodes() -> None:
    asked = replace(workload(FLAT), link_values={"bandwidth": 1e9})
    for ranks in (2, 16):
        slower, faster = (predict_iteration(one, ranks) for one in (asked, workload(FLAT)))
        assert slower.communication > 3 * faster.communication


def test_numbers_of_ranks_share_the_simulations_of_some_of_their_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulated = []
    own = groups.simulate_groups

    def counted(call: Call, choice: AlgorithmChoice, predictor: CallPredictor, *more: Any) -> float:
        simulated.append((call, choice, predictor.placement.p))
        return own(call, choice, predictor, *more)

    monkeypatch.setattr("tuner.training.call_times.simulate_groups", counted)
    flat = {**FLAT["topology"], "nodes": 64}
    asked = workload(FLAT, topology=flat, ranks=[32, 64], framework={"name": "ddp"})
    for ranks in asked.ranks:
        predict_iteration(asked, ranks)
    assert any(p < 32 for _, _, p in simulated)
    assert len(simulated) == len(set(simulated))


def test_gradients_averaged_at_a_root_go_through_host_memory() -> None:
    gpus = {"topology": "preset:dgx-1v", "framework": "shm-learn-dist", "ranks": 8}
    assert workload(FLAT, **gpus).memory == "host"
    with pytest.raises(InputError, match="memory: shm-learn-dist exchanges everything through"):
        workload(FLAT, **gpus, memory="cuda")


GPT: dict[str, Any] = {
    **GPUS,
    "model": {"kind": "gpt", "layers": 96, "width": 12288, "heads": 96}
    | {"sequence": 2048, "vocabulary": 51200},
}


@pytest.mark.parametrize(
    ("settings", "per_block"),
    [
        ({"tensor": 8}, 10 + 24 / 8 + 5 * 96 * 2048 / (12288 * 8)),
        ({"tensor": 8, "sequence_parallel": True}, (34 + 5 * 96 * 2048 / 12288) / 8),
        ({"tensor": 8, "recompute": True}, 2),
        ({"tensor": 8, "recompute": True, "sequence_parallel": True}, 2 / 8),
    ],
)
def test_activations_of_a_transformer(settings: dict[str, Any], per_block: float) -> None:
    asked = workload(GPT, framework={"name": "megatron", **settings})
    assert activation_memory(asked, 16) == pytest.approx(2048 * 12288 * 96 * per_block)
    # stages keep as many microbatches as there are stages: arXiv 2205.05198, section 4.2.3
    piped = workload(GPT, framework={"name": "megatron", "pipeline": 2, **settings})
    assert activation_memory(piped, 16) == pytest.approx(2048 * 12288 * 96 * per_block)
    chunks = {"name": "megatron", "pipeline": 2, "interleaved": 3, **settings}
    more = 1 + (2 - 1) / (2 * 3)
    kept = activation_memory(workload(GPT, framework=chunks), 16)
    assert kept == pytest.approx(2048 * 12288 * 96 * per_block * more)


def test_activations_that_do_not_fit_are_told() -> None:
    model = {**GPT["model"], "layers": 24, "width": 2048, "heads": 32}
    plain, again = (
        workload(GPT, model=model, batch=8, framework={"name": "megatron", "recompute": recompute})
        for recompute in (False, True)
    )
    assert activation_warning(plain, 16).startswith("caution: with all activations (")
    assert activation_warning(again, 16) == ""
    assert activation_memory(workload(FLAT), 16) == 0
