"""Which GPUs ranks have, what lies between them, and what NVIDIA's driver says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.core.collective import Collective
from tuner.core.path_classes import CUDA, NVLINK, PCIE, SAME_GPU
from tuner.probe.device_points import device_collective_points, device_points, nccl_candidates
from tuner.probe.nccl import environment_variables
from tuner.probe.probe_plan import ProbeCandidate, ProbePlan, ProbePoint
from tuner.probe.rank_gpus import first_pair_of_class
from tuner.runtime.nvidia import driver_version, has_driver, has_nvlink


def joined(one: str, other: str) -> bool:
    return {one, other} == {"a", "b"}


@pytest.mark.parametrize(
    ("buses", "between", "expected"),
    [
        ("aa", SAME_GPU, (0, 1)),
        ("abab", SAME_GPU, (0, 2)),
        ("abab", NVLINK, (0, 1)),
        ("acb", NVLINK, (0, 2)),
        ("acb", PCIE, (0, 1)),
        ("ab", PCIE, None),
        ("abc", SAME_GPU, None),
        ("a", SAME_GPU, None),
    ],
)
def test_the_first_two_ranks_of_a_kind(
    buses: str, between: str, expected: tuple[int, int] | None
) -> None:
    assert first_pair_of_class(buses, between, joined) == expected


def test_every_point_of_devices_is_one_and_in_their_memory() -> None:
    call = ProbePoint(
        "collective", "allreduce", 4, 1024, (ProbeCandidate("default"),), 1.0, nodes=2, ppn=2
    )
    points = [*device_points(2, 2), *device_collective_points([call])]
    assert len({point.key for point in points}) == len(points)
    assert {point.memory for point in points} == {CUDA}
    alone = list(device_points(1, 1))
    assert {point.p for point in alone} == {1}


def test_what_nccl_is_told() -> None:
    said = [dict(arm.settings) for arm in nccl_candidates(Collective.ALLREDUCE, 2)]
    assert said[0] == {}
    assert {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL128"} in said
    assert {"NCCL_ALGO": "NVLSTree", "NCCL_PROTO": "Simple"} in said
    assert {"NCCL_ALGO": "NVLS", "NCCL_PROTO": "LL"} not in said
    one_node = {arm.algorithm for arm in nccl_candidates(Collective.ALLREDUCE, 1)}
    assert one_node == {"default", "ring", "tree", "nvls"}
    assert {arm.algorithm for arm in nccl_candidates(Collective.BCAST, 2)} == {"default", "ring"}


def test_an_environment_is_what_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.delenv("NCCL_PROTO", raising=False)
    with environment_variables({"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}):
        assert (os.environ["NCCL_ALGO"], os.environ["NCCL_PROTO"]) == ("Ring", "LL")
    assert os.environ["NCCL_ALGO"] == "Tree"
    assert "NCCL_PROTO" not in os.environ


def test_what_was_not_there_is_not_called_wrong() -> None:
    arms = (ProbeCandidate("default"), ProbeCandidate("ring"))
    here = ProbePoint("collective", "bcast", 2, 4, arms, 1.0)
    there = ProbePoint("collective", "bcast", 2, 4, arms, 1.0, memory=CUDA)
    plan = ProbePlan("openmpi", 2, 2, 0.03, "commutative", (there, here))
    measured = [here.to_measurement(arm, (1e-6,)) for arm in arms]
    assert plan.list_exclusions(measured) == []
    assert plan.drop_measured(measured).points == (there,)
    partly = [*measured, there.to_measurement(arms[0], (1e-6,))]
    assert plan.list_exclusions(partly) == ["collective bcast p=2 4 B cuda: ring: wrong result"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n", "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65  Release\n", "580.65"),
        ("", "unknown"),
    ],
)
def test_the_kernel_says_the_drivers_version(tmp_path: Path, text: str, version: str) -> None:
    (tmp_path / "version").write_text(text)
    assert driver_version(tmp_path / "version") == version


def test_without_nvml_no_gpus_are_joined() -> None:
    assert not has_nvlink("0000:01:00.0", "0000:02:00.0", "libnvidia-ml-that-is-not.so")


def test_a_driver_that_is_not_there_does_not_load() -> None:
    assert not has_driver("libcuda-that-is-not.so")
    assert has_driver("libc.so.6")  # a library is one
