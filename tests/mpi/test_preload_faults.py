"""A program runs as without us where something is wrong with the table, and one line says so."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tests.support.preload import SUPPORT, compiled, preload_environment
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.launch import Launcher
from tuner.preload import generated
from tuner.preload.compilation import SOURCES
from tuner.preload.report import read_counts

BINOMIAL = AlgorithmChoice("binomial", {}, "schedule")
LINE = "tuner: calls of each rank that followed the table: 1"
LEAVES = "it leaves what this program calls to the library, or has no rules for its communicators"
CALLS = "bcast 64 0\nallreduce 8 1\nbarrier 0 0\n"


@pytest.fixture
def environment(launcher: Launcher, tmp_path: Path) -> dict[str, str]:
    table = table_of({(Collective.BCAST, 2, "any"): [(0, BINOMIAL)]}, library=launcher.version())
    (tmp_path / "calls").write_text(CALLS)
    return {**preload_environment(launcher, table, tmp_path)}


def run(launcher: Launcher, folder: Path, environment: dict[str, str], on_rank_1: str = "") -> str:
    """Run the program on two ranks; return what it says on standard error.

    on_rank_1   shell commands that rank 1 begins with
    """
    program = compiled(launcher, "preload_calls.c", folder)
    begin = (
        f'if [ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 1 ]; then {on_rank_1 or ":"}; fi; exec "$@"'
    )
    done = launcher.run(
        2,
        ["-c", begin, "sh", str(program), str(folder / "calls")],
        program=Path("/bin/sh"),
        environment=environment,
    )
    assert done.stdout.split() == ["done"]
    return done.stderr


def test_with_a_table_one_line_says_what_followed(
    launcher: Launcher, environment: dict[str, str], tmp_path: Path
) -> None:
    assert LINE in run(launcher, tmp_path, environment)
    assert sum(read_counts(tmp_path / "report").values()) == 2


@pytest.mark.parametrize(
    ("ranks", "rungs", "calls", "reason"),
    [
        (2, [(0, AlgorithmChoice()), (65, BINOMIAL)], CALLS, LEAVES),
        (2, [(0, AlgorithmChoice())], CALLS, LEAVES),
        (2, [(0, BINOMIAL)], "", LEAVES),
        (3, [(0, BINOMIAL)], CALLS, "it has no rules for 2 ranks placed as these are"),
    ],
)
def test_why_no_call_followed_the_table(
    launcher: Launcher,
    tmp_path: Path,
    ranks: int,
    rungs: list[tuple[int, AlgorithmChoice]],
    calls: str,
    reason: str,
) -> None:
    table = table_of({(Collective.BCAST, ranks, "any"): rungs}, library=launcher.version())
    (tmp_path / "calls").write_text(calls)
    said = run(launcher, tmp_path, {**preload_environment(launcher, table, tmp_path)})
    assert f"tuner: no call followed the table: {reason}\n" in said
    assert sum(read_counts(tmp_path / "report").values()) == 0


@pytest.mark.parametrize(("columns", "is_folded"), [("30", True), ("9" * 30, False), ("x", False)])
def test_lines_are_as_long_as_the_terminal_is_wide(
    launcher: Launcher, environment: dict[str, str], tmp_path: Path, columns: str, is_folded: bool
) -> None:
    said = run(launcher, tmp_path, {**environment, "TUNER_COLUMNS": columns})
    assert (LINE.replace("that followed", "that\nfollowed") if is_folded else LINE) in said


@pytest.mark.representative("unset LD_PRELOAD")
@pytest.mark.parametrize("library", ["launcher", "mpich_launcher"])
@pytest.mark.parametrize("on_rank_1", ["unset LD_PRELOAD", "LD_PRELOAD=/no/such"])
def test_no_rank_waits_without_end_for_one_that_cannot_load_the_library(
    request: pytest.FixtureRequest, tmp_path: Path, library: str, on_rank_1: str
) -> None:
    own: Launcher = request.getfixturevalue(library)
    table = table_of({(Collective.BCAST, 2, "any"): [(0, BINOMIAL)]}, library=own.version())
    (tmp_path / "calls").write_text(CALLS)
    environment = {**preload_environment(own, table, tmp_path), "TUNER_START_WITHIN_S": "1"}
    said = [line for line in run(own, tmp_path, environment, on_rank_1).splitlines() if line]
    assert [line for line in said if line.startswith("tuner:")] == [
        "tuner: the library's own collectives are used: some ranks run without tuner; it needs"
        f" {environment['LD_PRELOAD']} on all hosts, and programs that are linked dynamically"
    ]
    assert not (tmp_path / "report").exists()


def test_a_rank_that_cannot_read_the_table_gets_it_from_rank_0(
    launcher: Launcher, environment: dict[str, str], tmp_path: Path
) -> None:
    assert LINE in run(launcher, tmp_path, environment, "TUNER_FLAT_TABLE=/no/such")
    assert sum(read_counts(tmp_path / "report").values()) == 2


@pytest.mark.parametrize(
    ("on_rank_1", "said"),
    [
        ("unset TUNER_FLAT_TABLE", "some ranks have no table"),
        ("TUNER_FLAT_TABLE=$TUNER_OTHER", "the ranks have different tables"),
        ("TUNER_FLAT_TABLE=$TUNER_DAMAGED", "rank 1: {folder}/damaged: damaged"),
    ],
)
def test_a_rank_with_another_table(
    launcher: Launcher, environment: dict[str, str], tmp_path: Path, on_rank_1: str, said: str
) -> None:
    other = table_of(
        {(Collective.BCAST, 2, "any"): [(0, AlgorithmChoice()), (8, BINOMIAL)]},
        library=launcher.version(),
    )
    (tmp_path / "other").mkdir()
    preload_environment(launcher, other, tmp_path / "other")
    content = bytearray((tmp_path / "flat").read_bytes())
    content[-1] ^= 1
    (tmp_path / "damaged").write_bytes(content)
    environment |= {
        "TUNER_OTHER": str(tmp_path / "other" / "flat"),
        "TUNER_DAMAGED": str(tmp_path / "damaged"),
    }
    lines = run(launcher, tmp_path, environment, on_rank_1).splitlines()
    assert [line for line in lines if line.startswith("tuner:")] == [
        "tuner: the library's own collectives are used: " + said.format(folder=tmp_path)
    ]
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        (b"", "not a regular file with content"),
        (b"{}" * 4000, "not the flat file of a table"),
    ],
)
def test_a_file_that_cannot_be_used(
    launcher: Launcher,
    environment: dict[str, str],
    tmp_path: Path,
    content: bytes | None,
    said: str,
) -> None:
    (tmp_path / "flat").unlink()
    if content is not None:
        (tmp_path / "flat").write_bytes(content)
    lines = run(launcher, tmp_path, environment).splitlines()
    assert [line for line in lines if line.startswith("tuner:")] == [
        f"tuner: the library's own collectives are used: rank 0: {tmp_path}/flat: {said}"
    ]


def library_of(launcher: Launcher, source: str, folder: Path) -> Path:
    """Compile a C file of tests/support to a library for the launcher's MPI."""
    target = folder / f"{Path(source).stem}.so"
    command = [str(launcher.compiler), "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", str(target)]
    subprocess.run([*command, str(SUPPORT / source), "-ldl"], check=True)
    return target


def test_counts_that_cannot_be_collected_are_not_taken_for_none(
    launcher: Launcher, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["LD_PRELOAD"] += f":{library_of(launcher, 'failing_reduce.c', tmp_path)}"
    lines = run(launcher, tmp_path, environment).splitlines()
    assert [line for line in lines if line.startswith("tuner:")] == [
        "tuner: the counts of calls that followed the table cannot be collected"
    ]
    assert not (tmp_path / "report").exists()


def lines_of_threads(
    launcher: Launcher, folder: Path, *, is_bcast_scheduled: bool
) -> Sequence[str]:
    """Return what we say of threads whose allreduces are to be forced, and bcasts scheduled."""
    rules = {
        (Collective.ALLREDUCE, 2, "commutative"): [(0, AlgorithmChoice("recursive_doubling"))],
        (Collective.BCAST, 2, "any"): [(0, BINOMIAL if is_bcast_scheduled else AlgorithmChoice())],
    }
    table = table_of(rules, library=launcher.version())
    run = launcher.run(
        2,
        ["threads"],
        program=compiled(launcher, "preload_corners.c", folder),
        environment=preload_environment(launcher, table, folder),
    )
    return [line for line in run.stderr.splitlines() if line.startswith("tuner:")]


def test_choices_that_cannot_be_forced_are_said_once(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    lines = lines_of_threads(mpich_launcher, tmp_path, is_bcast_scheduled=True)
    assert lines[0] == (
        "tuner: choices that cannot be forced, so that the library decides: 1, such as allreduce"
        " recursive_doubling (under MPI_THREAD_MULTIPLE calls of other threads would follow it,"
        " too)"
    )
    assert len(lines) == 2
    assert sum(read_counts(tmp_path / "report").values()) > 0


def test_rules_that_no_call_could_follow_are_not_taken_for_none(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    lines = lines_of_threads(mpich_launcher, tmp_path, is_bcast_scheduled=False)
    assert lines[1:] == [
        "tuner: no call followed the table: what its rules take could not be set up, was not worth"
        " it for so few calls, or is not for their datatypes, operators or counts"
    ]


@pytest.mark.parametrize(("corner", "is_exchanged"), [("threads", False), ("profiled", True)])
def test_the_error_handler_stays_where_threads_could_need_it(
    launcher: Launcher, tmp_path: Path, corner: str, is_exchanged: bool
) -> None:
    table = table_of({(Collective.BCAST, 2, "any"): [(0, BINOMIAL)]}, library=launcher.version())
    environment = {**preload_environment(launcher, table, tmp_path)}
    environment["LD_PRELOAD"] += f":{library_of(launcher, 'handler_exchanges.c', tmp_path)}"
    program = compiled(launcher, "preload_corners.c", tmp_path)
    run = launcher.run(2, [corner], program=program, environment=environment)
    assert run.stdout == "No Errors\n"
    assert ("exchanged" in run.stderr) == is_exchanged
    assert sum(read_counts(tmp_path / "report").values()) > 0


def test_a_flipped_bit_anywhere_is_noticed(
    launcher: Launcher, environment: dict[str, str], tmp_path: Path
) -> None:
    assert environment
    (tmp_path / "generated.h").write_text(generated.header())
    command = [str(launcher.compiler), "-D_GNU_SOURCE", f"-I{tmp_path}", f"-I{SOURCES}"]
    command += [str(SUPPORT / "preload_damage.c"), str(SOURCES / "table.c")]
    target = tmp_path / "damage"
    subprocess.run([*command, "-o", str(target)], check=True, capture_output=True)
    tried = subprocess.run(
        [target, tmp_path / "flat", "1000"], capture_output=True, text=True, check=False
    )
    assert (tried.returncode, tried.stdout) == (0, "all noticed\n")


@pytest.mark.parametrize(
    ("program_of", "library_of"), [("launcher", "mpich_launcher"), ("mpich_launcher", "launcher")]
)
def test_a_program_of_another_mpi_runs_without_us(
    request: pytest.FixtureRequest, program_of: str, library_of: str, tmp_path: Path
) -> None:
    """Its handles are of other types, with which our library could do nothing."""
    own: Launcher = request.getfixturevalue(program_of)
    other: Launcher = request.getfixturevalue(library_of)
    table = table_of({(Collective.BCAST, 2, "any"): [(0, BINOMIAL)]}, library=other.version())
    (tmp_path / "calls").write_text(CALLS)
    environment = preload_environment(other, table, tmp_path)
    run = own.run(
        2,
        [str(tmp_path / "calls")],
        program=compiled(own, "preload_calls.c", tmp_path),
        environment=environment,
    )
    assert run.stdout.split() == ["done"]
    assert run.stderr.count("uses another MPI than its launcher") == 2
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("compiler", "library_of_mpi", "is_left"),
    [
        ("mpicc", "launcher", True),
        ("mpicc_abi", "mpich_launcher", True),
        ("mpicc", "mpich_launcher", False),
    ],
)
def test_an_extension_of_another_mpi_runs_without_us(
    request: pytest.FixtureRequest,
    mpich_launcher: Launcher,
    compiler: str,
    library_of_mpi: str,
    is_left: bool,
    tmp_path: Path,
) -> None:
    """An interpreter is linked to no MPI, so that only the extension tells which one it is."""
    other: Launcher = request.getfixturevalue(library_of_mpi)
    table = table_of({(Collective.BCAST, 2, "any"): [(0, BINOMIAL)]}, library=other.version())
    (tmp_path / "calls").write_text(CALLS)
    assert mpich_launcher.compiler is not None
    extension, interpreter = tmp_path / "extension.so", tmp_path / "interpreter"
    compiled_by = mpich_launcher.compiler.with_name(compiler)
    options = ["-shared", "-fPIC", "-Dmain=run", "-D_GNU_SOURCE"]
    subprocess.run(
        [compiled_by, *options, SUPPORT / "preload_calls.c", "-o", extension], check=True
    )
    subprocess.run(["cc", SUPPORT / "preload_interpreter.c", "-o", interpreter, "-ldl"], check=True)
    run = mpich_launcher.run(
        2,
        [str(extension), str(tmp_path / "calls")],
        program=interpreter,
        environment=preload_environment(other, table, tmp_path),
    )
    assert run.stdout.split() == ["done"]
    assert run.stderr.count("uses another MPI than its launcher") == (2 if is_left else 0)
    assert (tmp_path / "report").exists() == (not is_left)
