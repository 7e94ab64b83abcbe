"""Files of the forms that users meet: what they state is used, or named as what it is."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from tuner.cli.main import main

IMPORT = "import-results allreduce.txt --cluster here --out m.ndjson"
CASES = [  # case, command, its status, and what it says
    (
        "imb-wrong-results",
        "import-results reduce_scatter.txt --ppn 4 --library 'mpich 4.2' --cluster here --out m",
        0,
        ("2 series", "1 of IMB Reduce_scatter: the result was wrong"),
    ),
    (
        "launcher-labels-of-mpich",
        f"{IMPORT} --ranks 4 --nodes 1 --library 'mpich 4.2'",
        0,
        ("2 series of 2 readings",),
    ),
    ("nccl-tests-with-debug-lines", IMPORT, 0, ("2 series of 2 readings", "line 11")),
    (
        "nccl-tests-without-mpi",
        f"{IMPORT} --collective allreduce",
        1,
        ("2 of nccl-tests allreduce", "built without MPI"),
    ),
    (
        "osu-several-datatypes",
        f"{IMPORT} --ranks 4 --nodes 1 --library 'openmpi 5.0.6'",
        0,
        ("2 series", "of MPI_CHAR; float was measured too"),
    ),
    (
        "osu-rocm-and-ze-memory",
        "import-results ze.txt --ranks 4 --nodes 1 --library 'mpich 4' --cluster here --out m",
        0,
        ("1 series of 1 readings",),
    ),
    ("rccl-tests-called-nccl", f"{IMPORT} --library 'rccl 2.22'", 0, ("rccl 2.22 on here",)),
    (
        "table-rate-in-gigabits",
        "import-results gigabits.csv --library 'ucx 1.16' --cluster here --out m",
        0,
        ("1 series of 1 readings",),
    ),
    (
        "pass-osu-tail-columns",
        f"{IMPORT} --ranks 8 --nodes 2 --library 'mpich 4.3'",
        0,
        ("1 series of 1 readings",),
    ),
    (
        "pass-openmpi-rules-unsorted",
        "table check openmpi.rules --table table.json",
        1,
        ("communicator size 5 follows 16",),
    ),
    ("pass-slurm-spaces", "topology show topology.conf", 0, ("4 nodes of 1 core, 3 switches",)),
    ("slurm-block-without-nodes", "topology show topology.conf", 0, ("7 nodes",)),
    ("slurm-topology-yaml", "topology show topology.yaml", 0, ("8 nodes",)),
    ("nvidia-smi-sys-on-one-socket", "topology show topo.txt", 0, ("says SYS of", "cpu")),
    (
        "nvidia-smi-gpu-cannot-be-named",
        "nccl estimate --topology topo.txt --sizes 1MiB --gpu GH200",
        0,
        ("1MiB",),
    ),
    (
        "nvidia-smi-gpu-cannot-be-named",
        "nccl estimate --topology topo.txt --sizes 1MiB",
        1,
        ("with --gpu of `tuner nccl estimate`",),
    ),
    ("rccl-xml-mi250", "topology show topo.xml", 0, ("gfx90a", "36 GB/s")),
    (
        "hwloc-console-display-as-gpu",
        "simulate --topology node.xml --ppn 1 --memory cuda --collective allreduce --sizes 1MiB",
        1,
        ("has no GPU: price host memory",),
    ),
    ("rocm-smi-showtopo", "topology show topo.txt", 0, ("gpu",)),
    ("chakra-control-parent-left-out", "training run workload.yaml --no-limits", 0, ("16",)),
    (
        "profiler-trace-nccl-without-gpu",
        "training run workload.yaml --no-limits",
        1,
        ("ProfilerActivity.CUDA",),
    ),
    (
        "profiler-trace-uneven-group",
        "training run workload.yaml --no-limits",
        0,
        ("group 12 of trace has the ranks", "at unequal distances"),
    ),
    ("profiler-trace-uneven-group", "training run workload_groups.yaml --no-limits", 0, ("16",)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "command", "status", "words"), CASES)
def test_a_file_from_the_field(
    case: str,
    command: str,
    status: int,
    words: tuple[str, ...],
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(shared / "cases" / case, tmp_path / case)
    monkeypatch.chdir(tmp_path / case)
    assert main(shlex.split(command)) == status
    captured = capsys.readouterr()
    said = " ".join((captured.out + captured.err).split())
    assert [each for each in words if each not in said] == []
