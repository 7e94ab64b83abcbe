"""A probe of real GPUs, by two ranks that may share one."""

from __future__ import annotations

import pytest

from tests.support.waiting import patience
from tuner.calibrate import calibrate
from tuner.core.measurement import Measurements
from tuner.launch import Launcher
from tuner.probe.device_points import COPY_SUBJECTS
from tuner.probe.driver import SingleHostSpec, probe


@pytest.fixture(scope="module")
def measured(
    stands_in: bool, launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> Measurements:
    return probe(
        tmp_path_factory.mktemp("probe") / "gpus.ndjson",
        SingleHostSpec(
            ranks=2,
            launches=1,
            ci_half_width=9.0 if stands_in else 0.03,  # its speed means nothing
            sizes=(1024,) if stands_in else (1024, 1 << 20),
            parts=("devices",),
        ),
        budget=patience(20.0) if stands_in else 30.0,
    )


def test_everything_about_the_gpu_is_measured(measured: Measurements) -> None:
    found = {(one.kind, one.subject) for one in measured.series}
    assert {one.memory for one in measured.series} == {"cuda"}
    assert {("pointer", "query"), ("launch", "kernel")} <= found
    assert {("copy", name) for name in COPY_SUBJECTS} <= found
    assert {("reduction", "sum_float32"), ("reduction", "max_int64")} <= found
    assert {name for kind, name in found if kind == "pingpong"} & {"same_gpu", "nvlink", "pcie"}
    assert {("collective", "bcast"), ("collective", "allreduce")} <= found


def test_provenance_names_the_gpu(measured: Measurements) -> None:
    gpus = measured.provenance["devices"]["gpus"]
    assert len(gpus) == 2
    for gpu in gpus:
        assert all(gpu[name] for name in ("name", "bus", "driver", "cuda", "cupy", "nccl"))


def test_a_calibration_of_it_is_plausible(measured: Measurements, stands_in: bool) -> None:
    """Memory of the GPU is faster than the way to it, and no kernel is free."""
    if stands_in:
        pytest.skip("the stand-in's memory is the host's")
    found = calibrate(measured)
    inside = found.path_cost("self", "cuda").segments[-1].beta.value
    outside = found.path_cost("staging", "cuda").segments[-1].beta.value
    assert 0 < inside < outside < 1e-8
    assert 0 < found.reduction["cuda"].launch.value < 1e-2
    assert 0 < found.pointer_query_seconds < 1e-3
