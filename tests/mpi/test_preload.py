"""C programs get right results under the preloaded library, with every MPI, and equal errors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.mpi4py_suite import SHARED_CORES
from tests.support.mpich_suite import preload_tables
from tests.support.preload import compiled, device_driver, preload_environment
from tests.support.waiting import patience
from tuner.launch import Launcher
from tuner.preload.report import read_counts

RANKS = 3
TABLES = ("schedule", "forced")
FOLLOWING = {"TUNER_TUNE_AFTER_US": "0", "TUNER_QUIET": "1", **SHARED_CORES}
LEFT_FOR_DEVICES = "cannot be run on buffers that may be on a device"
COLLECTIVES, WRONG_CALLS = "collectives_program.c", "wrong_calls_program.c"


@dataclass(frozen=True)
class Compilers:
    """The launcher of an MPI, and what compiles programs and the library for it."""

    launcher: Launcher
    program: Path
    library: Path


def intel_compilers(intel: Launcher, mpich: Path, folder: Path) -> Compilers:
    """Return those for PyPI's Intel MPI, which has MPICH's binary interface but no headers.

    The library is MPICH's: it comes behind the program in the search for libmpi.so.12.
    """
    prefix = intel.python.absolute().parents[1]
    words = f"-I{mpich.parents[1]}/include -L{prefix}/lib -Wl,-rpath,{prefix}/lib"
    program = folder / "mpicc"
    program.write_text(f'#!/bin/sh\nexec cc {words} "$@" -lmpi\n')
    program.chmod(0o755)
    return Compilers(intel, program, mpich)


@pytest.fixture
def compilers(request: pytest.FixtureRequest, tmp_path: Path) -> Compilers:
    name = "launcher" if request.param == "openmpi" else "mpich_launcher"
    launcher: Launcher = request.getfixturevalue(name)
    compiler = launcher.compiler
    if compiler is None:
        pytest.skip(f"{launcher.version()} has no mpicc")
    if request.param == "intelmpi":
        return intel_compilers(request.getfixturevalue("intelmpi_launcher"), compiler, tmp_path)
    if request.param == "mpich_abi":
        compiler = compiler.with_name("mpicc_abi")
    return Compilers(launcher, compiler, compiler)


@pytest.mark.parametrize(
    ("compilers", "name"),
    [
        *((mpi, name) for mpi in ("openmpi", "mpich", "mpich_abi") for name in TABLES),
        ("intelmpi", "schedule"),  # its own algorithms cannot be forced from a program
    ],
    indirect=["compilers"],
)
def test_all_collectives(compilers: Compilers, name: str, tmp_path: Path) -> None:
    launcher = compilers.launcher
    program = compiled(launcher, COLLECTIVES, tmp_path, compilers.program)
    table = preload_tables(launcher.version(), RANKS)[name]
    environment = {**preload_environment(launcher, table, tmp_path, compilers.library), **FOLLOWING}
    done = launcher.run(
        RANKS, [], program=program, environment=environment, timeout=patience(20), check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "No Errors"), done.stderr
    assert "tuner:" not in done.stderr
    counts = read_counts(tmp_path / "report")
    assert sum(map(bool, counts.values())) > 50


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("library", ["launcher", "mpich_launcher"])
def test_wrong_calls_fail_as_without(
    request: pytest.FixtureRequest, library: str, name: str, tmp_path: Path
) -> None:
    launcher: Launcher = request.getfixturevalue(library)
    program = compiled(launcher, WRONG_CALLS, tmp_path)
    table = preload_tables(launcher.version(), 2)[name]
    environment = {**preload_environment(launcher, table, tmp_path), **FOLLOWING}
    alone, followed = (
        launcher.run(2, [], program=program, environment=one, timeout=patience())
        for one in (SHARED_CORES, environment)
    )
    assert followed.stdout == alone.stdout
    assert alone.stdout.count("sum 3\n") == 3
    assert sum(read_counts(tmp_path / "report").values()) > 0


@pytest.mark.parametrize("library", ["launcher", "mpich_launcher"])
@pytest.mark.parametrize(
    ("source", "arguments"),
    [("deleting_program.c", []), ("preload_corners.c", ["lengths"])],
    ids=["calls of delete functions", "blocks of other lengths"],
)
def test_what_programs_seldom_do(
    request: pytest.FixtureRequest, library: str, source: str, arguments: list[str], tmp_path: Path
) -> None:
    launcher: Launcher = request.getfixturevalue(library)
    program = compiled(launcher, source, tmp_path)
    table = preload_tables(launcher.version(), RANKS)["schedule"]
    environment = {**preload_environment(launcher, table, tmp_path), **FOLLOWING}
    done = launcher.run(
        RANKS, arguments, program=program, environment=environment, timeout=patience(), check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "No Errors"), done.stderr
    assert sum(read_counts(tmp_path / "report").values()) > 0


@pytest.mark.parametrize("library", ["launcher", "mpich_launcher"])
@pytest.mark.parametrize("driver_name", ["libcuda.so.1", "libze_loader.so.1"])
@pytest.mark.parametrize(("moment", "said"), [("late", ""), ("first", LEFT_FOR_DEVICES)])
def test_buffers_on_devices(
    request: pytest.FixtureRequest,
    library: str,
    moment: str,
    said: str,
    driver_name: str,
    tmp_path: Path,
) -> None:
    launcher: Launcher = request.getfixturevalue(library)
    program = compiled(launcher, "preload_devices.c", tmp_path)
    driver = device_driver(tmp_path, driver_name)
    table = preload_tables(launcher.version(), RANKS)["schedule"]
    environment = {**preload_environment(launcher, table, tmp_path), **FOLLOWING}
    environment["TUNER_QUIET"] = ""
    done = launcher.run(
        RANKS,
        [str(driver), moment],
        program=program,
        environment=environment,
        timeout=patience(),
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "No Errors"), done.stderr
    assert said in done.stderr
    followed = sum(read_counts(tmp_path / "report").values())
    last = RANKS if driver_name == "libcuda.so.1" else 0  # the sum of errors, on the host
    assert followed > last if moment == "late" else followed == last
