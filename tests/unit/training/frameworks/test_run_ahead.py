"""Horovod's cycles where a host runs ahead of its GPU, and where it does not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.training.frameworks import framework_from_record
from tuner.training.frameworks.fusion import Horovod
from tuner.training.iteration import PredictedIteration, predict_iteration
from tuner.training.workload import Workload, workload_from_record


def dgx(framework: Horovod | None = None, **more: object) -> Workload:
    record = {
        "model": "resnet50",
        "batch": 64,
        "framework": "horovod",
        "topology": "preset:dgx-1v",
        "ranks": 8,
        **more,
    }
    return replace(workload_from_record(record, Path()), framework=framework or Horovod())


def number_of_calls(found: PredictedIteration) -> int:
    return sum(one.count for one in found.calls)


def test_a_host_that_runs_ahead_announces_gradients_in_few_large_buckets() -> None:
    ahead = predict_iteration(dgx(), 8)
    in_step = predict_iteration(dgx(Horovod(launch=1.0)), 8)
    assert number_of_calls(ahead) < 5
    assert number_of_calls(in_step) > 10


def test_the_last_bucket_is_exposed() -> None:
    last = max(predict_iteration(dgx(), 8).calls, key=lambda one: one.call.nbytes)
    assert last.call.nbytes > 30 << 20


def test_a_gradient_in_host_memory_is_announced_when_it_is_computed() -> None:
    host = {"memory": "host", "algorithms": ["ring"]}
    found = [predict_iteration(dgx(Horovod(launch=one), **host), 8) for one in (1e-6, 1.0)]
    assert found[0].seconds == found[1].seconds


def test_noise_costs_more_on_more_ranks() -> None:
    noisy = dgx(noise="3%", topology="preset:summit:8", algorithms=["nccl_tree"])
    few, many = (predict_iteration(noisy, ranks).efficiency for ranks in (6, 48))
    assert many < few < 0.97


def test_a_buffer_holds_at_most_the_fusion_threshold() -> None:
    found = predict_iteration(dgx(Horovod(fusion_threshold=8 << 20)), 8)
    assert max(one.call.nbytes for one in found.calls) <= 9 << 20  # the largest tensor


def test_requests_of_a_thousand_ranks_delay_versions_without_a_cache_alone() -> None:
    large: dict[str, Any] = {"topology": "preset:dgx-a100", "ranks": 1024}
    few = predict_iteration(dgx(**large), 16)
    now, before = (
        predict_iteration(dgx(one, **large), 1024) for one in (None, Horovod(cache=False))
    )
    assert now.seconds < 1.02 * few.seconds
    assert before.seconds > 1.3 * few.seconds


def test_reductions_that_block_delay_the_next_cycle() -> None:
    slow = dgx(Horovod(blocking=True), topology="preset:ri2", algorithms=["ring"], ppn=1)
    free = replace(slow, framework=Horovod())
    assert predict_iteration(slow, 4).seconds >= predict_iteration(free, 4).seconds


@pytest.mark.parametrize("launch", ["fast", "-1us"])
def test_an_invalid_launch_time_is_refused(launch: str) -> None:
    with pytest.raises(InputError, match="framework horovod: launch"):
        framework_from_record({"name": "horovod", "launch": launch})
