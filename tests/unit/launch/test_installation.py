"""Which MPI an interpreter has, and which launcher belongs to it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tuner.base.errors import ProbeError
from tuner.launch import Installation, Launcher, inspect_interpreter
from tuner.launch.executables import find_launcher_executable, find_mpicc, launcher_version
from tuner.mpi_libraries.capabilities import Capabilities
from tuner.mpi_libraries.products import identify
from tuner.runtime.control_variables import parse_enum_values

OPENMPI = "mpirun (Open MPI) {}\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
HYDRA = "HYDRA build details:\n    Version:                                 {}\n"
INTEL = "Intel(R) MPI Library for Linux* OS, Version {} Build 20250101 (id: x)\n"


def executable(path: Path, said: str) -> Path:
    """A launcher that tells a version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\n")
    path.chmod(0o755)
    return path


def installed(root: Path, said: str, libmpi: str = "lib/libmpi.so.40") -> Installation:
    """An interpreter of an environment of its own, with a library in the directory `root`."""
    return Installation(
        root / "venv" / "bin" / "python",
        identify(said),
        root / libmpi,
        said,
        "3.11.2",
        "4.1.2",
        "1.26.4",
        "MPI.so",
        Capabilities({}),
    )


@pytest.fixture(autouse=True)
def no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def test_the_launcher_of_the_library_goes_before_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Debian: one prefix has two libraries, and PATH leads to a third."""
    executable(tmp_path / "usr" / "bin" / "mpirun", HYDRA.format("4.0.2"))
    other = executable(tmp_path / "other" / "mpirun", OPENMPI.format("5.0.3"))
    wanted = executable(tmp_path / "usr" / "bin" / "mpirun.openmpi", OPENMPI.format("4.1.4"))
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    place = installed(
        tmp_path,
        "Open MPI v4.1.4, package: Debian OpenMPI",
        "usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4",
    )
    assert find_launcher_executable(place) == wanted


def test_a_launcher_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = executable(tmp_path / "path" / "mpirun", OPENMPI.format("5.0.3"))
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    place = installed(tmp_path, "Open MPI v4.1.4, package: x")
    with pytest.raises(ProbeError, match=r"loads Open MPI 4\.1\.4, but the launchers here are of"):
        find_launcher_executable(place)
    other.unlink()
    with pytest.raises(ProbeError, match="there is no mpirun of it"):
        find_launcher_executable(place)


@pytest.mark.parametrize(
    ("said", "version", "fits"),
    [
        ("Intel(R) MPI Library 2021.18.1 for Linux* OS", INTEL.format("2021.18"), True),
        ("Intel(R) MPI Library 2021.18.1 for Linux* OS", INTEL.format("2021.15"), False),
        ("MPICH Version: 4.0.2\n", HYDRA.format("4.0.2"), True),
        ("MPICH Version: 4.0.2\n", HYDRA.format("4.0.20"), False),
        ("MVAPICH Version:\t3.0\n", HYDRA.format("4.0a1"), True),  # has versions of its own
    ],
)
def test_versions_of_launchers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: str, fits: bool
) -> None:
    path = executable(tmp_path / "path" / "mpiexec", version)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    if fits:
        assert find_launcher_executable(installed(tmp_path, said)) == path
    else:
        with pytest.raises(ProbeError, match="of other versions"):
            find_launcher_executable(installed(tmp_path, said))


def test_srun_starts_ranks_of_what_has_no_launcher_in_jobs_of_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srun = executable(tmp_path / "path" / "srun", "slurm 23.02.7\n")
    monkeypatch.setenv("PATH", f"{srun.parent}:/usr/bin:/bin")
    place = installed(tmp_path, "MPI VERSION    : CRAY MPICH version 8.1.28.2 (ANL base 3.4a2)\n")
    with pytest.raises(ProbeError, match="there is no mpiexec of it"):
        find_launcher_executable(place)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert find_launcher_executable(place) == srun


@pytest.mark.parametrize(
    ("launcher", "compiler"),
    [
        ("mpirun", "mpicc"),
        ("mpirun.openmpi", "mpicc.openmpi"),
        ("mpiexec.mpich", "mpicc.mpich"),
        ("mpiexec.hydra", "mpicc"),
        ("orterun", "mpicc"),
    ],
)
def test_the_compiler_of_a_library_is_named_as_its_launcher(
    tmp_path: Path, launcher: str, compiler: str
) -> None:
    path = executable(tmp_path / launcher, "")
    assert find_mpicc(path) is None
    for name in ("mpicc", "mpicc.openmpi", "mpicc.mpich"):
        executable(tmp_path / name, "")
    assert find_mpicc(path) == tmp_path / compiler
    assert find_mpicc(executable(tmp_path / "srun", "")) is None


def test_a_launcher_that_hangs_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.launch.executables.VERSION_TIMEOUT_S", 0.3)
    path = tmp_path / "mpirun"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    assert launcher_version(path, "openmpi") == ""


def test_an_interpreter_says_what_it_has(launcher: Launcher) -> None:
    place = inspect_interpreter(Path(sys.executable))
    assert place.library.startswith("openmpi 5.0.")
    assert place.libmpi.is_file()
    assert find_launcher_executable(place) == launcher.executable
    assert place.capabilities.variables["coll_tuned_use_dynamic_rules"].settable


def test_what_an_interpreter_prints_at_its_start_does_not_matter(
    launcher: Launcher, tmp_path: Path
) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\necho welcome\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    assert inspect_interpreter(wrapper).library == inspect_interpreter(Path(sys.executable)).library
    with pytest.raises(ProbeError, match="no Python interpreter there"):
        inspect_interpreter(tmp_path)


def test_the_library_is_what_the_interpreter_has(launcher: Launcher) -> None:
    assert Launcher.find().library == "openmpi"
    with pytest.raises(ProbeError, match=r"loads Open MPI 5\.\S+, which is not mpich: give an"):
        Launcher.find("mpich", Path(sys.executable))


def test_an_interpreter_without_mpi_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('libmpi.so.99: no')\n")
    lonely = tmp_path / "python"
    lonely.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    lonely.chmod(0o755)
    with pytest.raises(
        ProbeError, match=r"cannot load its MPI library \(ImportError: libmpi.so.99"
    ):
        inspect_interpreter(lonely)
    lonely.write_text(f"#!/bin/sh\nexec {sys.executable} -S -s -E -c 'import mpi4py'\n")
    with pytest.raises(ProbeError, match="lacks mpi4py"):
        inspect_interpreter(lonely)


def test_enumerations_of_mpich_are_read_from_descriptions() -> None:
    """As MPICH 4.3 and 4.0.2 describe them: those have lost the ends of their lines."""
    lines = (
        "Variable to select allreduce algorithm\n"
        "auto - Internal algorithm selection (can be overridden with MPIR_CVAR_COLL_...)\n"
        "nb                       - Force nonblocking algorithm\n"
        "recursive_multiplying    - Force recursive multiplying algorithm\n"
        "k_reduce_scatter_allgather - Force reduce scatter allgather algorithm"
    )
    assert parse_enum_values(lines) == {
        "auto": 0,
        "nb": 1,
        "recursive_multiplying": 2,
        "k_reduce_scatter_allgather": 3,
    }
    joined = (
        "Variable to select bcast algorithmauto - Internal algorithm selection (can be overridden"
        " with MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE)binomial     - Force Binomial Treenb"
        "   - Force nonblocking algorithmsmp          - Force smp algorithm"
        "scatter_recursive_doubling_allgather    - Force Scatter Recursive-Doubling Allgather"
        "scatter_ring_allgather                  - Force Scatter Ring"
    )
    assert parse_enum_values(joined) == {
        "auto": 0,
        "binomial": 1,
        "nb": 2,
        "smp": 3,
        "scatter_recursive_doubling_allgather": 4,
        "scatter_ring_allgather": 5,
    }
    assert parse_enum_values("Defines the location of tuning file.") == {}
