"""The record of a program's calls says what the program does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.calls import EVEN
from tests.support.preload import compiled
from tests.support.waiting import patience, until
from tuner.core.call_profile import read_call_profile
from tuner.core.collective import Collective
from tuner.launch import Launcher
from tuner.preload.compilation import build_library
from tuner.preload.run_record import RunRecord, read_record

P = 2
SLOW_S = 0.03  # what an Allreduce of this library takes, at least
REFUSED = """
#include <mpi.h>
int main(int count, char **words)
{
    MPI_Init(&count, &words);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Bcast(&count, -1, MPI_INT, 0, MPI_COMM_WORLD);
    return MPI_Finalize();
}
"""
BEHIND_US = """
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int PMPI_Allreduce(const void *a, void *b, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    int (*library)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
    library = dlsym(RTLD_NEXT, "PMPI_Allreduce");
    DELAY
    return library(a, b, count, type, op, comm);
}
int MPI_Allreduce(const void *a, void *b, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return PMPI_Allreduce(a, b, count, type, op, comm);
}
"""
STUCK_AFTER = 9  # calls of at least 512 elements, which ours among guidelines have, too
STUCK = f"""
static int calls;
if (count >= 512 && ++calls > {STUCK_AFTER}) {{ fclose(fopen("stuck", "w")); pause(); }}
"""


def library_behind(launcher: Launcher, folder: Path, delay: str) -> Path:
    """Return a library whose Allreduces do this first, in C, to be loaded after ours."""
    source, target = folder / "behind.c", folder / "behind.so"
    source.write_text(BEHIND_US.replace("DELAY", delay), encoding="utf-8")
    command = [str(launcher.compiler), "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", str(target)]
    subprocess.run([*command, source, "-ldl"], check=True)
    return target


def recorded(
    launcher: Launcher,
    folder: Path,
    calls: str,
    late_on_rank_1: int = 0,
    preload: str = "",
    **variables: str,
) -> RunRecord:
    """Return the record of a program that makes calls, before which rank 1 waits so many us.

    preload     further libraries to be loaded, each after a colon
    """
    assert launcher.compiler is not None
    (folder / "calls").write_text(calls)
    run = launcher.run(
        P,
        [str(folder / "calls"), str(late_on_rank_1)],
        program=compiled(launcher, "preload_calls.c", folder),
        environment={
            "LD_PRELOAD": f"{build_library(launcher.compiler).path}{preload}",
            "TUNER_RECORD": str(folder / "record"),
            "TUNER_WAITING": "1",
            **variables,
        },
    )
    assert run.stdout.split() == ["done"]
    return read_record(folder / "record")


def started(launcher: Launcher, *words: str, folder: Path) -> subprocess.Popen[str]:
    """Start a command where the launcher is found by its name."""
    path = f"{launcher.executable.parent}:{os.environ['PATH']}"
    return subprocess.Popen(
        [sys.executable, "-m", "tuner", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PATH": path},
    )


def tuner(launcher: Launcher, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    running = started(launcher, *words, folder=folder)
    said, errors = running.communicate(timeout=patience())
    return subprocess.CompletedProcess(words, running.returncode, said, errors)


@pytest.mark.parametrize("fixture", ["launcher", "mpich_launcher"])
def test_each_call_is_counted(request: pytest.FixtureRequest, fixture: str, tmp_path: Path) -> None:
    calls = [
        (collective, 0 if not collective.has_data else 16 * n, commutes)
        for collective in EVEN
        for n in range(20)
        for commutes in ((False, True) if collective.is_reduction else (False,))
        for _ in range(1 + n % 3)
    ]
    text = "".join(f"{c.value} {n} {int(commutes)}\n" for c, n, commutes in calls)
    found = recorded(request.getfixturevalue(fixture), tmp_path, text)
    expected = Counter(calls)
    assert {(k.collective, k.nbytes, k.commutes): k.rank_calls for k in found.kinds} == {
        kind: P * number for kind, number in expected.items()
    }
    assert {(kind.nodes, kind.ppn) for kind in found.kinds} == {(1, P)}
    assert (found.ranks, found.unrecorded) == (P, 0)
    in_profile = {(one.collective, one.nbytes): one.calls for one in found.profile()}
    assert in_profile["bcast", 16] == expected[Collective.BCAST, 16, False]
    assert in_profile["barrier", 4] == expected[Collective.BARRIER, 0, False]
    assert ("bcast", 0) not in in_profile  # there is nothing to measure
    assert 0 < found.share < 1


def test_waiting_is_told_from_work(launcher: Launcher, tmp_path: Path) -> None:
    """Rank 1 comes a tenth of a second late each time, for which rank 0 waits."""
    found = recorded(launcher, tmp_path, "allreduce 8 1\n" * 8, late_on_rank_1=100_000)
    (kind,) = found.kinds
    assert kind.waiting is not None
    assert 0 < kind.waiting <= 1
    rows = [line.split() for line in (tmp_path / "record").read_text().splitlines()]
    waited = {row[0]: int(row[12]) for row in rows if row[1] == "allreduce"}
    assert waited["0"] > waited["1"]


def test_kinds_beyond_those_that_are_kept_are_counted_together(
    launcher: Launcher, tmp_path: Path
) -> None:
    found = recorded(launcher, tmp_path, "".join(f"bcast {n} 0\n" for n in range(3000)))
    assert len(found.kinds) == 2048
    assert found.unrecorded == P * (3000 - 2048)


def test_the_command_lists_the_calls_and_writes_their_profile(
    launcher: Launcher, tmp_path: Path
) -> None:
    program = compiled(launcher, "preload_calls.c", tmp_path)
    (tmp_path / "calls").write_text("bcast 4096 0\n" * 5 + "barrier 0 0\n")
    command = launcher.command(P, [str(tmp_path / "calls")], program=program)
    done = tuner(launcher, "record", "--out", "solver.profile", "--", *command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    row = next(line for line in lines if line[:1] == ["bcast"])  # others are on guidelines
    assert row[:4] == ["bcast", "1x2", "4KiB", "5"]
    text = " ".join(done.stdout.split())
    profile = read_call_profile(tmp_path / "solver.profile")
    assert (profile.name, profile.library) == ("preload_calls", launcher.version())
    assert "of the time in collectives" in text
    assert "tuner tune --profile solver.profile --hosts localhost --ppn 2" in text
    calls = {(one.collective, one.nbytes): one.calls for one in profile.calls}
    assert calls == {("bcast", 4096): 5, ("barrier", 4): 1}
    assert re.search(r"\d of the 2 calls that were repeated would be faster as other calls", text)
    in_json = tuner(
        launcher, "record", "--no-guidelines", "--json", "--", *command, folder=tmp_path
    )
    record = json.loads(in_json.stdout)
    assert [kind["rank_calls"] for kind in record["kinds"] if kind["nbytes"]] == [P * 5]
    assert (record["tried"], record["broken"]) == (0, [])


@pytest.mark.representative("launcher")
@pytest.mark.parametrize("fixture", ["launcher", "mpich_launcher"])
def test_a_slow_collective_breaks_a_guideline(
    request: pytest.FixtureRequest, fixture: str, tmp_path: Path
) -> None:
    """A library behind ours makes Allreduce slow; what does the same is not slow."""
    own: Launcher = request.getfixturevalue(fixture)
    slow = library_behind(own, tmp_path, f"usleep({SLOW_S * 1e6:.0f});")
    calls = "allreduce 4096 1\n" * 9 + "bcast 64 0\nbarrier 0 0\n"
    found = recorded(own, tmp_path, calls, preload=f":{slow}", TUNER_GUIDELINES="1")
    assert found.tried == 3
    (broken,) = (one for one in found.broken if one.collective is Collective.ALLREDUCE)
    assert broken.instead in {"+".join(others) for others in Collective.ALLREDUCE.substitutes}
    assert (broken.nodes, broken.ppn, broken.nbytes) == (1, P, 4096)
    assert broken.seconds[0] > SLOW_S
    assert broken.speedup[1] > 1


def test_calls_are_repeated_on_ranks_of_their_layout(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    """Ranks 0 and 2 are on one node, 1 and 3 on another."""
    layouts = {"0,1,2,3": (2, 2, 1), "0,2,1,3": (2, 2, 0), "2,0": (1, 2, 0), "0,1,3,2": None}
    assert mpich_launcher.compiler is not None
    mpich_launcher.run(
        4,
        [*layouts],
        program=compiled(mpich_launcher, "preload_layouts.c", tmp_path),
        environment={
            "LD_PRELOAD": str(build_library(mpich_launcher.compiler).path),
            "TUNER_RECORD": str(tmp_path / "record"),
            "TUNER_GUIDELINES": "1",
            "MPIR_CVAR_NUM_CLIQUES": "2",
        },
    )
    lines = [line.split() for line in (tmp_path / "record").read_text().splitlines()]
    found = {tuple(map(int, line[3:7])) for line in lines if line[1] == "guideline"}
    assert found == {(*layout, n) for n, layout in enumerate(layouts.values(), 1) if layout}
    assert read_record(tmp_path / "record").tried == 3


def test_a_refused_call_is_not_repeated(launcher: Launcher, tmp_path: Path) -> None:
    """Its size is negative, and the library would end the program for it."""
    assert launcher.compiler is not None
    (tmp_path / "program.c").write_text(REFUSED, encoding="utf-8")
    program = tmp_path / "program"
    subprocess.run([launcher.compiler, "-o", program, tmp_path / "program.c"], check=True)
    launcher.run(
        P,
        [],
        program=program,
        environment={
            "LD_PRELOAD": str(build_library(launcher.compiler).path),
            "TUNER_RECORD": str(tmp_path / "record"),
            "TUNER_GUIDELINES": "1",
        },
    )
    found = read_record(tmp_path / "record")
    assert (found.tried, [kind.nbytes for kind in found.kinds]) == (0, [-1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_among_guidelines_keeps_the_calls(
    launcher: Launcher, tmp_path: Path, number: signal.Signals
) -> None:
    behind = library_behind(launcher, tmp_path, STUCK)
    (tmp_path / "calls").write_text("allreduce 4096 1\n" * STUCK_AFTER + "bcast 64 0\n")
    program = compiled(launcher, "preload_calls.c", tmp_path)
    first, *rest = launcher.command(P, [str(tmp_path / "calls")], program=program)
    command = [first, "-x", f"LD_PRELOAD={behind}", *rest]
    words = ["record", "--out", "solver.profile", "--", *command]
    running = started(launcher, *words, folder=tmp_path)
    until((tmp_path / "stuck").exists)
    running.send_signal(number)
    said, errors = running.communicate(timeout=patience())
    assert running.returncode == 128 + number, errors
    assert "tuner tune --profile solver.profile" in said
    found = {
        (one.collective, one.nbytes) for one in read_call_profile(tmp_path / "solver.profile").calls
    }
    assert found == {("allreduce", 4096), ("bcast", 64)}


def test_a_command_of_several_programs_says_whose_record_it_is(
    launcher: Launcher, tmp_path: Path
) -> None:
    program = compiled(launcher, "preload_calls.c", tmp_path)
    (tmp_path / "calls").write_text("bcast 4096 0\n")
    command = launcher.command(P, [str(tmp_path / "calls")], program=program)
    words = ["record", "--no-guidelines", "--", "sh", "-c", '"$@" && "$@"', "sh", *command]
    done = tuner(launcher, *words, folder=tmp_path)
    assert done.returncode == 0
    said = "tuner: the command runs several MPI programs: the record is that of the last one"
    assert done.stderr.count(said) == 1


@pytest.mark.representative("launcher-crash", "mpich_launcher-exit")
@pytest.mark.parametrize("ending", ["crash", "exit"])
@pytest.mark.parametrize("fixture", ["launcher", "mpich_launcher"])
def test_a_program_that_breaks_has_no_record(
    request: pytest.FixtureRequest, fixture: str, ending: str, tmp_path: Path
) -> None:
    own: Launcher = request.getfixturevalue(fixture)
    program = compiled(own, "preload_endings.c", tmp_path)
    command = own.command(P, [ending, "1", "40", "7"], program=program)
    done = tuner(own, "record", "--out", "solver.profile", "--", *command, folder=tmp_path)
    assert done.returncode > 1
    assert f"status {done.returncode} before MPI_Finalize" in done.stderr.splitlines()[-1]
    assert "calls" not in done.stdout
    assert not (tmp_path / "solver.profile").exists()


def test_an_empty_record_keeps_the_status(launcher: Launcher, tmp_path: Path) -> None:
    """The program ends while its record is written."""
    script = ': >"$TUNER_RECORD"; exit 3'
    failing = tuner(launcher, "record", "--", "sh", "-c", script, folder=tmp_path)
    assert (failing.returncode, failing.stdout) == (3, "")
    assert "status 3 before MPI_Finalize" in failing.stderr


def test_a_command_that_leaves_no_record(launcher: Launcher, tmp_path: Path) -> None:
    failing = tuner(launcher, "record", "--", "sh", "-c", "exit 3", folder=tmp_path)
    assert (failing.returncode, failing.stdout) == (3, "")
    assert failing.stderr == (
        "tuner: the program ended with status 3 before MPI_Finalize, so that there is no record\n"
    )
    other = tuner(launcher, "record", "--", "true", folder=tmp_path)
    assert other.returncode == 1
    assert other.stderr.count("\n") == 1
    assert "left no record" in other.stderr
