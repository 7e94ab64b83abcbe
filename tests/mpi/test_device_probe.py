"""A probe of GPUs on real ranks, with everything but the GPUs; and on a computer without any."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tuner.calibrate import calibrate
from tuner.cli.main import main
from tuner.core.measurement import Measurements, read_measurements
from tuner.launch import Launcher
from tuner.probe import driver
from tuner.probe.device_points import COPY_SUBJECTS
from tuner.probe.driver import SingleHostSpec, probe

PROGRAM = ROOT / "tests" / "gpu" / "probe_program.py"
Probed = Callable[..., Measurements]


@pytest.fixture
def probed(launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probed:
    """`probed("aware", ranks=2)`: devices of this computer, pretended so."""

    def measured(*how: str, ranks: int = 2, out: str = "m.ndjson") -> Measurements:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(PROGRAM.parent)]))
        monkeypatch.setenv("TUNER_TEST_DEVICES", " ".join(how))
        monkeypatch.setattr(driver, "RANK_MODULE", PROGRAM.stem)
        return probe(
            tmp_path / out,
            SingleHostSpec(
                ranks=ranks, sizes=(1024,), launches=1, parts=("devices",), ci_half_width=0.5
            ),
            budget=30.0,
        )

    return measured


def found(measured: Measurements) -> Mapping[tuple[str, str], int]:
    """Kind and subject -> how many series."""
    names = [(one.kind, one.subject) for one in measured.series]
    return {name: names.count(name) for name in names}


def test_staged_devices_have_copies_kernels_messages_and_collectives(probed: Probed) -> None:
    measured = probed(ranks=3)
    assert {one.memory for one in measured.series} == {"cuda"}
    counted = found(measured)
    assert {("copy", subject) for subject in (*COPY_SUBJECTS, "ipc_same_gpu")} <= {*counted}
    assert counted["launch", "kernel"] == counted["pointer", "query"] == 1
    assert counted["reduction", "sum_float64"] > 3
    assert ("reduction", "max_float64") not in counted  # the pretended device has no such kernel
    assert ("pingpong", "same_gpu") in counted
    assert not {"eager", "burst", "nccl"} & {kind for kind, _ in counted}
    assert {(one.ppn, one.p) for one in measured.series if one.kind == "collective"} == {
        (2, 2),
        (3, 3),
    }
    about = measured.provenance["devices"]
    assert about["messages"].startswith("staged")
    assert [gpu["bus"] for gpu in about["gpus"]] == ["bus0"] * 3
    assert any("NCCL is left out" in note for note in measured.provenance["notes"])
    assert measured.provenance["excluded"] == []


@pytest.mark.extended
def test_what_an_aware_library_does_with_two_devices(probed: Probed) -> None:
    counted = found(measured := probed("aware", "two", "nccl", ranks=4))
    for between in ("same_gpu", "nvlink"):
        assert ("pingpong", between) in counted
        assert counted["burst", between] == 2
        assert counted["eager", between] == 1
        assert ("copy", f"ipc_{between}") in counted
    assert ("pingpong", "pcie") not in counted
    assert measured.provenance["devices"]["messages"] == "direct"
    ways = {
        (one.algorithm, one.params.get("protocol"))
        for one in measured.series
        if (one.kind, one.subject) == ("nccl", "allreduce")
    }
    assert {("default", None), ("ring", 0), ("tree", 1), ("nvls", 2)} <= ways
    assert ("tree", 0) not in ways
    assert all("tree(protocol=0)" in line for line in measured.provenance["excluded"])


@pytest.mark.extended
def test_a_calibration_comes_of_it(probed: Probed) -> None:
    calibration = calibrate(probed("aware"))
    assert {("same_gpu", "cuda"), ("self", "cuda"), ("staging", "cuda")} <= {*calibration.paths}
    assert {"cuda", "cuda sum_float64"} <= {*calibration.reduction}
    assert calibration.pointer_query_seconds > 0
    assert {*COPY_SUBJECTS, "ipc_same_gpu"} <= {*calibration.provenance["copies"]}


@pytest.mark.extended
def test_a_probe_of_devices_goes_on_where_it_stopped(probed: Probed, tmp_path: Path) -> None:
    whole = probed("aware", out="whole")
    lines = (tmp_path / "whole").read_text().splitlines(keepends=True)
    kept = len(lines) // 2
    header = json.loads(lines[0])
    del header["provenance"]["devices"], header["provenance"]["notes"]
    (tmp_path / "half").write_text("".join([json.dumps(header) + "\n", *lines[1:kept]]))
    resumed = probed("aware", out="half")
    assert found(resumed) == found(whole)
    assert resumed.series[: kept - 2] == whole.series[: kept - 2]
    assert resumed.provenance["devices"] == whole.provenance["devices"]


def test_without_a_device_it_says_so_and_the_rest_goes_on(
    launcher: Launcher,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tuner.cli.terminal.progress.LINE_INTERVAL_S", 0.0)
    out = tmp_path / "m.ndjson"
    words = ["probe", "--ranks", "2", "--sizes", "64B", "--launches", "1", "--budget", "2s"]
    assert main([*words, "--measure", "devices,collectives", "--out", str(out)]) == 0
    said, progress = capsys.readouterr()
    measured = read_measurements(out)
    if "missing" not in measured.provenance["devices"]:
        pytest.skip("there is a GPU here")
    (note,) = measured.provenance["notes"]
    assert note.startswith("no CUDA device here: ")
    assert "caution: no CUDA device here: " in said
    assert "collective bcast p=2 64B" in progress
    assert "cuda" not in progress  # as in the plan
    assert {(one.kind, one.memory) for one in measured.series} == {("collective", "host")}
    assert measured.provenance["excluded"] == []
