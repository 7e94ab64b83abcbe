"""Explanations of a prediction: shares of the time, limits, published results, memory, trace."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.workloads import RECORD, workload
from tuner.base.errors import InputError
from tuner.training.call_times import CallTimes
from tuner.training.iteration import predict_iteration
from tuner.training.memory_need import needed_memory, require_memory
from tuner.training.perfetto_trace import trace_text
from tuner.training.published import PublishedResult, parse_published
from tuner.training.scaling import counted_unit, predict_scaling, scaling_record
from tuner.training.time_shares import time_shares
from tuner.training.timeline import BACKWARD, CALL, FORWARD, WAIT
from tuner.training.training_limits import COMMUNICATION, COMPUTATION, limiting_factor
from tuner.training.workload import workload_from_record
from tuner.whatif.machine_resources import NICS

SLOW = {"name": "slow", "nodes": 8, "latency": "2us", "bandwidth": "100MB/s"}
SOME = ["ring", "recursive_doubling", "binomial"]
FRAMEWORKS = ("ddp", "horovod", "zero", "fsdp", "parameter-server", "s-caffe", "shm-learn-dist")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("noise", [0, "5%"])
def test_shares_add_up_to_the_iteration(framework: str, noise: Any) -> None:
    asked = workload(framework=framework, noise=noise, algorithms=SOME)
    found = predict_iteration(asked, 4)
    shares = time_shares(found)
    assert sum(shares.values()) == pytest.approx(found.seconds)
    assert min(shares.values()) >= 0.0
    assert shares[FORWARD] + shares[BACKWARD] <= found.seconds
    if not noise and framework in ("ddp", "horovod"):
        assert shares[CALL] + shares[WAIT] + shares["copy"] == pytest.approx(
            found.exposed, rel=0.01
        )


def test_nothing_is_waited_for_on_one_rank() -> None:
    shares = time_shares(predict_iteration(workload(), 1))
    assert shares[CALL] == 0.0
    assert shares[WAIT] == pytest.approx(0.0, abs=1e-12)


def test_a_slow_network_limits_and_a_fast_one_does_not() -> None:
    (slow,) = predict_scaling(workload(topology=SLOW, ranks=8))
    assert slow.limit == "NICs"
    assert 1.5 < slow.limits[NICS] <= slow.limits[COMMUNICATION] + 0.01 <= 2.01
    assert slow.limits[COMPUTATION] < 1.3
    fast = {"name": "fast", "nodes": 8, "latency": "1us", "bandwidth": "1TB/s"}
    (quick,) = predict_scaling(workload(topology=fast, ranks=8, rate=50))
    assert quick.limit == "computation"
    assert quick.limits[COMPUTATION] > 1.9


def test_doubling_the_links_gains_what_the_limits_say() -> None:
    own = {"framework": "shm-learn-dist", "algorithms": SOME, "ranks": 8}
    (found,) = predict_scaling(workload(topology=SLOW, **own))
    faster = predict_iteration(workload(topology={**SLOW, "bandwidth": "200MB/s"}, **own), 8)
    assert found.limits[NICS] == pytest.approx(found.found.seconds / faster.seconds, rel=0.02)


def test_limits_are_found_for_ranks_that_wait_for_cycles_and_servers() -> None:
    waits = {"name": "horovod", "cycle_time": "300ms"}
    (cycles,) = predict_scaling(workload(framework=waits, ranks=8))
    assert cycles.limit == "slow ranks or cycles"
    servers = {"name": "parameter-server", "rate": "100MB/s"}
    (served,) = predict_scaling(workload(framework=servers, ranks=8))
    assert served.limit == "parameter servers"
    assert predict_scaling(workload(ranks=8), explains_limits=False)[0].limit == ""


def test_limiting_factor_names_communication_that_no_resource_explains() -> None:
    found = predict_iteration(workload(topology=SLOW), 8)
    limits = {COMPUTATION: 1.1, COMMUNICATION: 1.8, NICS: 1.0}
    assert limiting_factor(limits, found) == "communication"


def test_shared_times_give_the_same_prediction() -> None:
    asked = workload()
    machine, placement = asked.placement(4)
    times = CallTimes(placement, machine.calibration, asked.memory, asked.policy)
    assert predict_iteration(asked, 4, times).seconds == predict_iteration(asked, 4).seconds


def test_published_results_are_compared_as_efficiencies() -> None:
    entry = [
        {"ranks": 4, "efficiency": "90%", "source": "a page"},
        {"ranks": 8, "rate": 3000},
        {"ranks": 2, "speedup": 1.9},
    ]
    found = parse_published("published", entry)
    assert found[0] == PublishedResult(4, "efficiency", 0.9, "a page")
    assert [one.efficiency(500.0) for one in found] == [0.9, 0.75, 0.95]
    asked = workload(published=entry, ranks=[1, 8])
    record = scaling_record(asked, predict_scaling(asked))
    assert record["points"][0]["published"] is None
    alone = record["points"][1]["samples_per_second"] / record["points"][1]["speedup"]
    assert record["points"][1]["published"]["efficiency"] == pytest.approx(3000 / 8 / alone)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("90%", "published must be a list of results, not '90%'"),
        ([{"ranks": 4}], "published: result 1 must have one of rate, efficiency, speedup"),
        ([{"ranks": 4, "rate": -1}], "published: result 1: rate must be a number above 0, not -1"),
        ([{"ranks": 0, "rate": 1}], "published: result 1: ranks must be a whole number"),
        (
            [{"ranks": 4, "efficiency": 90}],
            "published: result 1: efficiency is a share from 0 to 1.5, such as 2%, not 90",
        ),
    ],
)
def test_published_results_are_checked(entry: Any, reason: str) -> None:
    with pytest.raises(InputError) as error:
        workload(published=entry)
    assert str(error.value).startswith(reason)


def test_tokens_are_counted_for_transformers() -> None:
    assert counted_unit(workload()) == ("images", 1)
    assert counted_unit(workload(model="gpt2_small")) == ("tokens", 1024)


def a100(model: str, framework: Any, **changed: Any) -> Any:
    record = {**RECORD, "model": model, "framework": framework, "topology": "preset:dgx-a100"}
    record |= {"precision": "amp", "algorithms": "default", **changed}
    return workload_from_record(record, None)  # type: ignore[arg-type]


def test_a_model_has_to_fit_into_its_gpus() -> None:
    """Weights and gradients of two bytes, a copy of four, and two moments: 16 bytes in all."""
    asked = a100("llama2_7b", "ddp")
    assert needed_memory(asked, 8) == 16 * asked.model.elements
    with pytest.raises(InputError) as error:
        require_memory(asked, 8)
    assert str(error.value) == (
        "llama2_7b needs 100GiB on each of 8 ranks for parameters, gradients and the optimizer's"
        " state, and a GPU of dgx-a100 has 74.5GiB: take more ranks with ZeRO, FSDP or"
        " model parallelism, larger GPUs, or a smaller model"
    )
    require_memory(a100("llama2_7b", "fsdp"), 8)
    elements = asked.model.elements
    assert needed_memory(a100("llama2_7b", {"name": "zero", "stage": 1}), 8) == 5.5 * elements
    assert needed_memory(a100("llama2_7b", {"name": "zero", "stage": 2}), 8) == 3.75 * elements
    assert needed_memory(a100("llama2_7b", "fsdp"), 8) == 2 * elements
    with pytest.raises(InputError, match="a GPU of dgx-a100 has"):
        predict_scaling(asked)


def test_images_are_trained_with_momentum() -> None:
    asked = a100("resnet50", "ddp", precision="fp32")
    assert needed_memory(asked, 8) == 12 * asked.model.elements
    require_memory(workload(model="gpt3_175b"), 8)  # this machine does not say how much it has


@pytest.mark.parametrize("framework", ["ddp", "parameter-server"])
def test_the_trace_is_what_perfetto_opens(framework: str) -> None:
    found = predict_iteration(workload(framework=framework), 8)
    events = json.loads(trace_text(found))["traceEvents"]
    names = {one["args"]["name"]: one["pid"] for one in events if one["name"] == "process_name"}
    spans = [one for one in events if one["ph"] == "X"]
    assert {one["pid"] for one in spans} == set(names.values())
    assert min(one["ts"] for one in spans) == 0.0
    computed = sum(one["dur"] for one in spans if one["cat"] in (FORWARD, BACKWARD))
    assert 1e-6 * computed == pytest.approx(found.compute, rel=0.2)
    if framework == "ddp":
        assert names == {"compute": 0, "communication": 1}
        (first, *_) = [one for one in spans if one["name"] == "allreduce"]
        assert first["args"]["algorithm"] in (
            "ring via schedule",
            "recursive_doubling via schedule",
        )
        assert first["args"]["bytes"] > 0
        assert first["args"]["ranks"] == 8
    else:
        assert "parameter servers" in names
