"""OC-Caffe: models beyond the memory of a GPU."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.workloads import workload as small_workload
from tuner.base.errors import InputError
from tuner.training.frameworks.caffe import OutOfCore, footprint
from tuner.training.iteration import make_job, predict_iteration
from tuner.training.workload import Workload, workload_from_record


def workload(framework: OutOfCore, batch: int = 64) -> Workload:
    record = {
        "model": "resnet50",
        "batch": batch,
        "framework": "oc-caffe",
        "topology": "preset:dgx-1v:1",
        "ranks": 1,
    }
    return replace(workload_from_record(record, Path()), framework=framework)


def test_a_model_that_fits_moves_nothing() -> None:
    found = predict_iteration(workload(OutOfCore(memory=64 << 30)), 1)
    assert found.seconds == pytest.approx(found.compute)


def test_a_footprint_grows_with_the_batch() -> None:
    few, many = (footprint(make_job(workload(OutOfCore(), batch), 1)) for batch in (32, 64))
    assert many - few == pytest.approx(few, rel=0.2)


@pytest.mark.parametrize("optimized", [True, False])
def test_what_is_beyond_the_memory_crosses_the_link_twice(optimized: bool) -> None:
    framework = OutOfCore(memory=1, link_rate=1e9, fault_rate=1e9, optimized=optimized)
    found = predict_iteration(workload(framework), 1)
    moved = 2 * (footprint(make_job(workload(framework), 1)) - 1) / 1e9
    expected = max(moved, found.compute) if optimized else moved + found.compute
    assert found.seconds == pytest.approx(expected, rel=0.02)


def test_moving_ahead_is_faster_than_faults() -> None:
    naive, optimized = (
        predict_iteration(workload(OutOfCore(16 << 30, optimized=one), 256), 1).seconds
        for one in (False, True)
    )
    assert optimized < naive / 1.5


def test_the_memory_is_that_of_the_machines_gpus() -> None:
    by_default, given = (
        predict_iteration(workload(OutOfCore(memory, optimized=False), 256), 1).seconds
        for memory in (0, 32 * 10**9)
    )
    assert by_default == given
    unknown = replace(workload(OutOfCore()), machine=small_workload().machine)
    with pytest.raises(InputError, match="oc-caffe: how much memory a GPU has here is not known"):
        predict_iteration(unknown, 1)
