"""Cut-offs between the kernels of inference engines and NCCL, and how engines are told them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.backend_times import SIZES, Curves, write_times
from tuner.base.errors import InputError
from tuner.formats.inference_engines import (
    DEFAULT_CUT_OFFS,
    CutOff,
    cut_offs,
    for_gpu,
    sglang_setting,
    vllm_limits,
    write_vllm_plugin,
)
from tuner.importers.backend_times import BackendTime, read_backend_times

NCCL_TIMES = (10, 10, 20, 40)


def found_in(tmp_path: Path, curves: Curves) -> list[CutOff]:
    return cut_offs(read_backend_times([write_times(tmp_path / "times.csv", curves)])[0])


@pytest.mark.parametrize(
    ("own", "nbytes", "gain"),
    [
        ((5, 5, 10, 20), None, 0),
        ((5, 5, 10, 42), None, 0),  # within the noise
        ((5, 5, 10, 50), 1 << 20, 0.25),
        ((5, 5, 30, 50), 1 << 16, 0.5),
        ((5, 5, 30, 20), None, 0),  # what it loses at 1 MiB is less than what it gains at 4 MiB
        ((5, 5, 30, 39), 1 << 16, 0.5),
        ((20, 20, 40, 80), 0, 1),
        ((20, 8, 10, 20), None, 0),  # an engine has no lower limit
    ],
)
def test_the_cut_off_loses_least(
    tmp_path: Path, own: tuple[float, ...], nbytes: int | None, gain: float
) -> None:
    curves = {("H100", "nccl", 8): NCCL_TIMES, ("H100", "vllm", 8): own}
    (found,) = found_in(tmp_path, curves)
    assert replace(found, gain=0) == CutOff("H100", "vllm", "1.0", 8, nbytes, 4 << 20)
    assert found.gain == pytest.approx(gain)
    assert [found.runs_own(size) for size in SIZES] == [
        nbytes is None or size <= nbytes for size in SIZES
    ]


def test_the_newest_version_counts_by_its_medians() -> None:
    old = BackendTime("H100", "vllm", "0.9.2", 8, 1024, 1e-6)
    new = [replace(old, version="0.24.0", seconds=time * 1e-6) for time in (9, 30, 31)]
    nccl = replace(old, backend="nccl", seconds=20e-6)
    (found,) = cut_offs([new[0], old, nccl, *new[1:]])
    assert (found.version, found.nbytes) == ("0.24.0", 0)
    assert found.gain == pytest.approx(0.5)


def test_engines_without_nccl_at_their_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no engine was measured at the same sizes as NCCL"):
        found_in(tmp_path, {("H100", "vllm", 8): NCCL_TIMES, ("A100", "nccl", 8): NCCL_TIMES})


def named(*gpus: str) -> list[CutOff]:
    return [CutOff(gpu, "vllm", "1", 8, None, 1024) for gpu in gpus]


@pytest.mark.parametrize(
    ("known", "product", "gpu"),
    [
        (("h100_sxm", "b200_sxm"), "H100", "h100_sxm"),
        (("h100_sxm", "b200_sxm"), "b200_sxm", "b200_sxm"),
        (("h100_sxm", "h100_pcie"), "h100_sxm", "h100_sxm"),
        (("gb200", "NVIDIA B200"), "B200", "NVIDIA B200"),
        (("A100", "H100", "B200"), "H200", "H100"),
        (("A100", "B200"), "H100", "A100"),  # equally near: the older
        (("A100", "H100", "B200"), "GB200", "B200"),
        (("A100", "H100", "B200"), "B300", "B200"),
        (("A100", "H100", "B200"), "sm_120", "B200"),
    ],
)
def test_the_nearest_gpu_stands_for_others(known: tuple[str, ...], product: str, gpu: str) -> None:
    assert {one.gpu for one in for_gpu(named(*known), product)} == {gpu}


@pytest.mark.parametrize(
    ("known", "product", "sentence"),
    [
        (("h100_sxm", "h100_pcie"), "H100", "H100 is ambiguous: name one of h100_pcie, h100_sxm"),
        (("H100",), "H10", "unknown GPU 'H10'"),
        (("mine", "other"), "H100", "H100 was not measured: name one of mine, other"),
    ],
)
def test_gpus_that_cannot_be_meant(known: tuple[str, ...], product: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        for_gpu(named(*known), product)


def test_vllm_takes_what_is_below_its_limit() -> None:
    """Its kernels take multiples of 16 bytes: the next one above the cut-off is the limit."""
    (known,) = named("H200")
    lowered = [
        replace(known, nbytes=1 << 20),
        replace(known, gpus=4),
        replace(known, gpus=2, nbytes=0),
    ]
    assert vllm_limits(lowered, "H100") == {"9.0": {8: (1 << 20) + 16, 2: 16}}
    assert vllm_limits([known], "H100") == {}
    assert vllm_limits(lowered, "B200") == {}  # another generation, of which vLLM has its own
    assert vllm_limits([replace(one, gpu="A100") for one in lowered], "A100") == {}
    assert vllm_limits([replace(one, engine="sglang") for one in lowered], "H100") == {}


@pytest.mark.parametrize(
    ("nbytes", "setting"),
    [
        (None, ""),
        (0, "--disable-custom-all-reduce"),
        (1023, "--disable-custom-all-reduce"),
        (1 << 20, "SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB=1024"),
    ],
)
def test_sglang_takes_what_is_up_to_its_limit(nbytes: int | None, setting: str) -> None:
    found = CutOff("H200", "sglang", "1", 8, nbytes, 4 << 20)
    assert sglang_setting(found, "H100") == setting
    assert sglang_setting(found, "B200") == ""


ENGINE = """
CUSTOM_ALL_REDUCE_MAX_SIZES = {"9.0": {2: 64 << 20, 8: 1 << 18}, "10.0": {8: 1 << 20}}
SYMM_MEM_ALL_REDUCE_MAX_SIZES = {"9.0": {2: 64 << 20, 8: 64 << 20}}
"""
LOADING = """
from importlib.metadata import entry_points
from vllm.distributed.device_communicators import all_reduce_utils as engine

for plugin in entry_points(group="vllm.general_plugins"):
    plugin.load()()
print(engine.CUSTOM_ALL_REDUCE_MAX_SIZES, engine.SYMM_MEM_ALL_REDUCE_MAX_SIZES)
"""


def test_a_process_that_loads_plugins_gets_the_limits(tmp_path: Path) -> None:
    """vLLM's tables stand in a module of ours, which has its names and form."""
    tables = tmp_path / "engine/vllm/distributed/device_communicators/all_reduce_utils.py"
    tables.parent.mkdir(parents=True)
    tables.write_text(ENGINE)
    for _ in range(2):  # may be written again
        write_vllm_plugin(tmp_path / "plugin", {"9.0": {8: 1 << 19, 2: 1 << 20, 16: 1 << 20}})
    path = f"{tmp_path / 'plugin'}:{tmp_path / 'engine'}"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {path.split(':')!r}\n{LOADING}"],
        capture_output=True,
        text=True,
        check=True,
    )
    custom = {"9.0": {2: 1 << 20, 8: 1 << 18}, "10.0": {8: 1 << 20}}  # lowered, never raised
    assert done.stdout == f"{custom} {{'9.0': {{2: {1 << 20}, 8: {1 << 19}}}}}\n"


def test_the_defaults_are_those_of_the_published_times(shared: Path) -> None:
    folder = shared / "data/aiconfigurator"
    times, _ = read_backend_times([folder / "custom_allreduce.csv", folder / "nccl_one_node.csv"])
    found = {
        replace(one, gpu=one.gpu.partition("_")[0].upper(), gain=round(one.gain, 2))
        for one in cut_offs(times)
        if one.engine != "trtllm"
    }
    assert found == set(DEFAULT_CUT_OFFS)
