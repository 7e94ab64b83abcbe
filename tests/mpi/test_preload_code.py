"""All lines of the preloaded library are reached, and what observes its memory finds no fault."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.support.preload import SUPPORT
from tests.support.preload_code import VALGRIND, Situation, built, findings, lines_reached
from tests.support.preload_situations import (
    CALLS,
    FORCED,
    SCHEDULE,
    SITUATIONS,
    SWEEPS,
    corner,
    failing,
    recording,
    with_evidence,
)
from tuner.launch import Launcher
from tuner.preload.compilation import SOURCES
from tuner.preload.report import read_counts
from tuner.preload.run_record import read_record

FIXTURES = {"openmpi": "launcher", "mpich": "mpich_launcher"}
COVERAGE = ("-O0", "--coverage", "-std=gnu11")  # in C11 itself, execve would lose the counts
# Counts are written before it, and it does not come back.
UNCOUNTED = {"start.c": ['execve("/proc/self/exe", words, environ);']}
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
OBSERVED = (
    "a session",
    "copies within a rank",
    "groups, recorded",
    "truncation",
    "delete functions",
)


@pytest.fixture(params=FIXTURES)
def own(request: pytest.FixtureRequest) -> Launcher:
    found: Launcher = request.getfixturevalue(FIXTURES[request.param])
    return found


def run_all(
    launcher: Launcher,
    other: Launcher,
    library: Path,
    folder: Path,
    before: str = "",
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run programs in every situation, with a tool, of another MPI, and with each call failing.

    before      libraries to be loaded before the dispatcher
    """

    def run(situation: Situation, after: str = "", under: Launcher = launcher) -> str:
        given = {**situation.environment, **(environment or {})}
        preload = f"{before}{library}{after}"
        return replace(situation, environment=given).run(under, preload, folder).stderr

    for situation in SITUATIONS.values():
        if launcher.library in situation.libraries:
            run(situation)
    run(corner("threads"), f":{compiled_tool(launcher, folder)}")
    run(replace(CALLS, says="uses another MPI than its launcher"), under=other)
    by_name = {"LD_PRELOAD": f"{before}{library.name}", "LD_LIBRARY_PATH": str(library.parent)}
    run(Situation("preload_version.c", environment=by_name), under=other)
    for situation, function in SWEEPS:
        for number in count(1) if launcher.library in situation.libraries else ():
            if f"failed: {function}" not in run(failing(situation, f"{function} {number}")):
                break


def compiled_tool(launcher: Launcher, folder: Path) -> Path:
    """Return a library that counts calls before MPI makes them, as a profiler does."""
    tool = folder / f"{launcher.library}-tool.so"
    command = [launcher.compiler, "-shared", "-fPIC", "-o", tool, SUPPORT / "count_calls.c"]
    subprocess.run([str(word) for word in command], check=True)
    return tool


@pytest.mark.weekly
def test_all_lines_are_reached(
    launcher: Launcher, mpich_launcher: Launcher, tmp_path: Path
) -> None:
    reached = Counter[tuple[str, int]]()
    for one, other in ((launcher, mpich_launcher), (mpich_launcher, launcher)):
        library = built(one, tmp_path / one.library, *COVERAGE)
        run_all(one, other, library, tmp_path)
        reached.update(lines_reached(library.parent))
    unreached = defaultdict(list)
    for (name, number), times in sorted(reached.items()):
        if times == 0:
            folder = SOURCES if (SOURCES / name).exists() else library.parent
            unreached[name].append((folder / name).read_text().splitlines()[number - 1].strip())
    assert unreached == UNCOUNTED


@pytest.mark.weekly
def test_sanitizers_find_nothing(
    own: Launcher, launcher: Launcher, mpich_launcher: Launcher, tmp_path: Path
) -> None:
    other = mpich_launcher if own is launcher else launcher
    library = built(own, tmp_path / "library", *SANITIZERS)
    runtime = subprocess.run(
        ["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    run_all(own, other, library, tmp_path, f"{Path(runtime).resolve()}:", options)


@pytest.mark.weekly
def test_valgrind_finds_nothing(own: Launcher, tmp_path: Path) -> None:
    if not shutil.which("valgrind"):
        pytest.skip("valgrind is not installed")
    library = built(own, tmp_path / "library")
    situations = [SITUATIONS[name] for name in OBSERVED]
    situations += [corner("profiled", table) for table in (SCHEDULE, FORCED)]
    for situation in situations:
        situation.run(own, str(library), tmp_path, VALGRIND)
    assert len(list(tmp_path.glob("valgrind.*.xml"))) == sum(one.ranks for one in situations)
    assert [one for one in findings(tmp_path) if one.is_ours] == []


def test_a_record_has_all_sizes_without_further_communicators(
    own: Launcher, tmp_path: Path
) -> None:
    """The first of them is that of the record."""
    library = built(own, tmp_path / "library")
    situation = failing(recording(CALLS), "PMPI_Comm_split 2", "no further communicators")
    record = {**situation.environment, "TUNER_RECORD": "FOLDER/record"}
    replace(situation, environment=record).run(own, str(library), tmp_path)
    found = read_record(tmp_path / "record", ("default", *map(str, range(100)))).kinds
    sizes = {(one.collective.value, one.nbytes) for one in found}
    assert {("bcast", 63), ("bcast", 64), ("allreduce", 8), ("allgather", 8)} <= sizes
    assert {collective for collective, nbytes in sizes if nbytes == 0} == {"barrier"}


def test_a_rank_without_memory_for_packed_data_leaves_nobody_waiting(
    own: Launcher, tmp_path: Path
) -> None:
    library = built(own, tmp_path / "library")
    SITUATIONS["no memory for packed data on a rank"].run(own, str(library), tmp_path)


def test_decimal_commas_of_the_program(own: Launcher, tmp_path: Path) -> None:
    place = tmp_path / "de_DE.UTF-8"
    command = ["localedef", "--no-archive", "-i", "de_DE", "-f", "UTF-8", str(place)]
    if not shutil.which("localedef") or subprocess.run(command, check=False).returncode:
        pytest.skip("the locale de_DE cannot be made")
    library = built(own, tmp_path / "library")
    situation = recording(corner("locale", with_evidence), says="by its evidence that saved")
    commas = {**situation.environment, "LOCPATH": str(tmp_path), "LC_ALL": "de_DE.UTF-8"}
    replace(situation, environment=commas).run(own, str(library), tmp_path)
    assert sum(read_counts(tmp_path / "report").values()) > 0
    record = read_record(tmp_path / "record", ("default", "binomial"))
    assert record.ranks == situation.ranks
    assert 0 < record.share < 1
