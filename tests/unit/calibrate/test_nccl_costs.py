"""Costs that are fitted to output of nccl-tests reach everything that predicts NCCL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.nccl_tests_files import COLUMNS, UNITS
from tuner.base.errors import InputError
from tuner.calibrate.nccl_costs import calibrate_nccl, calibrated_record, nccl_runs
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.machines import preset
from tuner.machines.loader import load_machine
from tuner.mpi_libraries.nccl import NcclPredictor
from tuner.topology import NcclCosts, Placement

TRUE = NcclCosts(launch=6.4e-6, hop=1.2e-6, simple=11e-6, copy_rate=600e9, full_channel=3e-6)
COLUMN = "    20.50    0.05    0.09      0"
SIZES = [1 << power for power in range(10, 30, 2)]


def run(
    gpus: int, times: Mapping[int, float], program: str = "all_reduce_perf", library: int = 22907
) -> str:
    """Return the output of a program of nccl-tests on GPUs of one node; times are in seconds."""
    ranks = [
        f"#  Rank {one:2d} Group  0 Pid   77 on n1 device {one:2d} [0000:{one:02x}:00] NVIDIA H100"
        for one in range(gpus)
    ]
    rows = [
        f"{size:12d} {size // 4:12d} float sum -1 {seconds * 1e6:10.2f}  0.05  0.09  0{COLUMN}"
        for size, seconds in times.items()
    ]
    head = [
        f"# nccl-tests version 2.17 nccl-headers=22907 nccl-library={library}",
        f"# Collective test starting: {program}",
        f"# nThread 1 nGpus {gpus} minBytes 1024 maxBytes 536870912 step: 4(factor)",
        *ranks,
    ]
    foot = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.09\n#\n"
    return "\n".join([*head, COLUMNS, UNITS, *rows, foot])


def times_of(
    gpus: int,
    collective: Collective = Collective.ALLREDUCE,
    sizes: Iterable[int] = SIZES,
    version: str = "2.29.7",
) -> dict[int, float]:
    """Return what NCCL of a version takes on GPUs of a DGX H100 whose costs are `TRUE`."""
    placement = Placement.block(preset("dgx-h100", 1).topology, gpus)
    predictor = NcclPredictor(placement, costs=TRUE, version=version)
    found = {}
    for nbytes in sizes:
        chosen = predictor.chosen_algo_proto(collective, nbytes)
        found[nbytes] = predictor.predicted_seconds(collective, nbytes)[chosen]
    return found


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A file with a run on two GPUs and one on eight."""
    path = tmp_path / "nccl.txt"
    path.write_text(run(2, times_of(2)) + run(8, times_of(8)))
    return path


def test_costs_are_found_in_twenty_times(runs: Path) -> None:
    measured = nccl_runs(runs)
    assert measured is not None
    found = calibrate_nccl(measured, preset("dgx-h100", 1).topology)
    assert found.calls == 20
    assert found.after.launch == pytest.approx(TRUE.launch, rel=0.03)
    assert found.after.hop == pytest.approx(TRUE.hop, rel=0.03)
    assert found.after.simple == pytest.approx(TRUE.simple, rel=0.05)
    assert found.after.full_channel == pytest.approx(TRUE.full_channel, rel=0.05)
    assert found.error_after < 0.01 < found.error_before
    assert not found.is_ambiguous


def test_calls_count_in_what_their_version_of_nccl_chose(tmp_path: Path) -> None:
    """2.20.5 chooses as 2.20.3: NVLS from 512 KiB on, where the newest takes LL up to 1 MiB."""
    path, sizes = tmp_path / "nccl.txt", range(512 << 10, 1 << 20, 64 << 10)
    times = times_of(8, sizes=sizes, version="2.20.3")
    path.write_text(run(8, times, library=22005))
    measured = nccl_runs(path)
    assert measured is not None
    of_own, of_newest = (
        calibrate_nccl(replace(measured, library=library), preset("dgx-h100", 1).topology)
        for library in (measured.library, "nccl 2.32.3")
    )
    assert of_own.error_after < 0.01 < of_newest.error_after


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("nbytes", [1 << 10, 32 << 10])
def test_estimate_simulation_and_study_read_the_costs(
    nbytes: int, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They do so below the size that occupies all threads of a channel, and from it on."""
    machine = tmp_path / "mine.yaml"
    main(["calibrate", str(runs), "--topology", "preset:dgx-h100:1", "--out", str(machine)])
    said = " ".join(capsys.readouterr().out.split())
    assert "fitted to 20 calls" in said
    assert f"tuner nccl estimate --topology {machine}" in said
    call = ["--topology", str(machine), "--ppn", "8", "--collective", "allreduce"]
    call += ["--sizes", str(nbytes)]
    (one,) = answered(capsys, "nccl", "estimate", *call, "--ranks", "8")[:1]
    assert one["predicted_seconds"] == pytest.approx(times_of(8, sizes=[nbytes])[nbytes], rel=0.02)
    (two,) = answered(capsys, "simulate", *call, "--algorithm", "nccl_ring", "--memory", "cuda")
    study = tmp_path / "study.yaml"
    asked = {"name": "x", "topology": str(machine), "collectives": ["allreduce"]}
    vary = {"nodes": [1], "ppn": [8], "memory": ["cuda"]}
    further = {"sizes": [nbytes], "algorithms": ["nccl_ring"], "vary": vary}
    study.write_text(json.dumps({**asked, **further}))
    (point,) = answered(capsys, "study", str(study))["points"]
    seconds = point["candidates"][0]["seconds"]
    assert seconds == two["seconds"] == one["predicted_seconds"]


def test_one_number_of_gpus_is_said_not_to_tell_a_launch_from_hops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nccl.txt"
    path.write_text(run(8, times_of(8)))
    main(["calibrate", str(path), "--topology", "preset:dgx-h100:1"])
    assert "add a run on fewer GPUs, such as -g 2" in " ".join(capsys.readouterr().out.split())


def test_results_of_which_no_time_is_predicted_are_said_to_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nccl.txt"
    path.write_text(run(8, times_of(8)) + run(8, times_of(8), "gather_perf"))
    main(["calibrate", str(path), "--topology", "preset:dgx-h100:1"])
    said = " ".join(capsys.readouterr().out.split())
    assert "Results of gather are left out" in said
    assert "fitted to 10 calls" in said


def test_an_all_to_all_tells_no_costs_of_rings(tmp_path: Path) -> None:
    """These are Simple and copy; a launch and its full channel are right together."""
    path = tmp_path / "nccl.txt"
    times = {gpus: times_of(gpus, Collective.ALLTOALL) for gpus in (2, 8)}
    path.write_text("".join(run(gpus, own, "alltoall_perf") for gpus, own in times.items()))
    measured = nccl_runs(path)
    assert measured is not None
    found = calibrate_nccl(measured, preset("dgx-h100", 1).topology)
    assert found.calls == 20
    told, true = (one.launch + (one.full_channel or 0.0) for one in (found.after, TRUE))
    assert told == pytest.approx(true, rel=0.03)
    assert found.after.hop == pytest.approx(TRUE.hop, rel=0.1)
    assert found.after.copy_rate == pytest.approx(found.before.copy_rate, rel=1e-3)
    assert found.after.simple == pytest.approx(found.before.simple, rel=1e-3)
    assert found.error_after < 0.01 < found.error_before


def test_what_programs_make_of_messages_is_no_choice_of_nccls(tmp_path: Path) -> None:
    path = tmp_path / "nccl.txt"
    path.write_text(run(8, times_of(8), "gather_perf"))
    measured = nccl_runs(path)
    assert measured is not None
    with pytest.raises(InputError, match="chose an algorithm for"):
        calibrate_nccl(measured, preset("dgx-h100", 1).topology)


def test_an_all_to_all_of_rccl_has_no_known_time(tmp_path: Path) -> None:
    path = tmp_path / "rccl.txt"
    path.write_text(run(8, times_of(8, Collective.ALLTOALL), "alltoall_perf"))
    measured = nccl_runs(path)
    assert measured is not None
    with pytest.raises(InputError, match="no all-to-all whose time is known"):
        calibrate_nccl(measured, preset("mi300x", 1).topology)


def test_results_without_a_machine_are_refused(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", str(runs)]) == 2
    assert "with --topology, the machine that it is of" in " ".join(capsys.readouterr().err.split())


def test_a_machine_of_another_format_is_combined_with_the_costs(tmp_path: Path) -> None:
    """It is named relative to the new file; a YAML file keeps its keys."""
    matrix = tmp_path / "topo.txt"
    matrix.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n")
    out = tmp_path / "machines" / "mine.yaml"
    out.parent.mkdir()
    record = calibrated_record(matrix, TRUE, "nccl.txt", out)
    assert record["combine"] == {"fabric": "../topo.txt"}
    out.write_text(yaml.safe_dump(record))
    assert load_machine(out).topology.nccl == TRUE
    flat = tmp_path / "flat.yaml"
    flat.write_text("{name: flat, nodes: 2, latency: 2us, bandwidth: 1GB/s}")
    record = calibrated_record(flat, TRUE, "nccl.txt", out)
    assert record["name"] == "flat"
    out.write_text(yaml.safe_dump(record))
    assert load_machine(out).topology.nccl == TRUE


def test_a_file_that_names_others_needs_its_folder(tmp_path: Path) -> None:
    combined = tmp_path / "combined.yaml"
    combined.write_text("combine: {fabric: topo.txt}")
    with pytest.raises(InputError, match=r"write mine\.yaml beside it"):
        calibrated_record(combined, TRUE, "nccl.txt", tmp_path / "further" / "mine.yaml")
    record = calibrated_record(combined, TRUE, "nccl.txt", tmp_path / "mine.yaml")
    assert record["combine"] == {"fabric": "topo.txt"}
