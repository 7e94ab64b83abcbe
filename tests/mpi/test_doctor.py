"""`tuner doctor` with real MPIs: healthy ones, and ones that somebody broke."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import MPICH_PYTHON
from tuner.cli.main import main
from tuner.diagnosis.examine import diagnose
from tuner.formats.registry import FORMATS
from tuner.launch import Launcher
from tuner.mpi_libraries.capabilities import Capabilities
from tuner.mpi_libraries.mpich import DEVICE_RULES_FILE_VARIABLE

HANGING = """
#include <unistd.h>
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    for (;;) sleep(60);
}
"""


def test_a_healthy_mpi_has_no_problems(
    launcher: Launcher, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MPI4PY_RC_THREAD_LEVEL")
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert said.rstrip().endswith("no problems")
    for expected in (
        f"MPI         Open MPI {launcher.version().partition(' ')[2]}",
        "2 start and meet",
        "btl: ",
        "threads: multiple",
        "compiles and links a program",
        "table export --format openmpi",
    ):
        assert expected in said


def test_programs_are_told_the_same(
    mpich_launcher: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--python", str(MPICH_PYTHON), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["able"]
    assert told["problems"] == []
    assert told["findings"]["MPI"][0].startswith("MPICH ")
    assert told["findings"]["works"][1] == "table export --format mpich or mpich-device"


def test_an_mpich_without_a_device_layer_is_offered_no_file_of_it(mpich_launcher: Launcher) -> None:
    place = mpich_launcher.installation
    variables = dict(place.capabilities.variables)
    assert FORMATS["mpich-device"].is_read_by(place)
    del variables[DEVICE_RULES_FILE_VARIABLE]
    assert not FORMATS["mpich-device"].is_read_by(
        replace(place, capabilities=Capabilities(variables))
    )


def test_an_interpreter_without_mpi4py_is_told_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = tmp_path / "bare" / "bin" / "python"
    assert main(["doctor", "--python", str(bare)]) == 1
    said = capsys.readouterr().out
    assert "1 problem" in said
    assert f"{bare} lacks mpi4py" in " ".join(said.split())
    assert f"      MPICC=mpicc {bare} -m pip install --no-binary mpi4py mpi4py\n" in said
    assert str(diagnose(bare).problems[0]).startswith(f"{bare} lacks mpi4py: run ")
    assert main(["quickstart", "--python", str(bare), "--out", str(tmp_path / "out")]) == 1
    assert f"tuner: {bare} lacks mpi4py: run " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_intel_mpi_is_found_and_said_not_to_be_measured(
    intelmpi_launcher: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--python", str(intelmpi_launcher.python), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["findings"]["MPI"][0].startswith("Intel MPI 20")
    assert "can be forced for whole programs alone" in told["problems"][0]["text"]


@pytest.mark.extended
def test_an_mpi_that_hangs_is_given_up(
    launcher: Launcher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to make MPI_Init hang with")
    (tmp_path / "hang.c").write_text(HANGING)
    library = tmp_path / "hang.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "hang.c"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setattr("tuner.diagnosis.launch_checks.RANKS_TIMEOUT_S", 3.0)
    assert main(["doctor"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "MPI did not start 2 ranks within 3 s" in said
    assert "nothing can be measured before the problems below are solved" in said


def test_what_would_decide_for_every_launch_is_a_problem(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMPI_MCA_coll_tuned_bcast_algorithm", "6")
    assert main(["doctor"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "OMPI_MCA_coll_tuned_bcast_algorithm is set and would decide" in said


@pytest.mark.representative("cat")
@pytest.mark.parametrize("lines", ["cat", "tr -d '\\n'"])  # apart, and run together
def test_ranks_that_do_not_know_one_another_are_a_problem(
    launcher: Launcher,
    mpich_launcher: Launcher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lines: str,
) -> None:
    """A launcher that says the right version and is another library's."""
    fake = tmp_path / "mpirun"
    version = launcher.version().partition(" ")[2]
    fake.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && echo "mpirun (Open MPI) {version}" && exit\n'
        'while [ "${1#-}" != "$1" ]; do [ "$1" = -np ] && shift; shift; done\n'
        f'{mpich_launcher.executable} -n 2 "$@" | {lines}\n'
    )
    fake.chmod(0o755)
    monkeypatch.setattr("tuner.launch.executables._directories", lambda _: iter([tmp_path]))
    assert main(["doctor"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "do not know one another" in said or "ranks do not start" in said


@pytest.mark.extended
def test_a_template_needs_no_launcher_of_the_library(
    launcher: Launcher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ranks that it starts apart are a problem that is reported, not the end of the report."""
    words = f"{launcher.executable} {'--allow-run-as-root ' * (os.geteuid() == 0)}--oversubscribe"
    monkeypatch.setattr("tuner.launch.executables._directories", lambda _: iter([tmp_path]))
    main(["doctor", "--hosts", "a,b", "--launcher", f"{words} -np {{n}} {{program}}", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["findings"]["launcher"] == ["none"]
    assert [one["text"] for one in told["problems"] if one["fatal"]] == [
        "2 hosts were named, but ranks came up on 1 of them"
    ]
    apart = tmp_path / "srun"
    apart.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit\n'
        'while [ "${1#-}" != "$1" ]; do shift; done\n"$@" & exec "$@"\n'
    )
    apart.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for given in ([], ["--hosts", "a,b", "--launcher", f"{apart} {{program}}"]):
        assert main(["doctor", *given]) == 1
        said = " ".join(capsys.readouterr().out.split())
        assert "srun starts do not know one another" in said
        assert "export SLURM_MPI_TYPE=pmix" in said
