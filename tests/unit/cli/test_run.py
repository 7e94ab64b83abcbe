"""`tuner run`: the command takes its place, whatever becomes of the table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.waiting import patience, until
from tuner.cli.main import build_parser

pytestmark = pytest.mark.slow
NO_TABLE = "tuner: no table is given"


def started(folder: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    return subprocess.Popen(
        [sys.executable, "-m", "tuner.cli.main", "run", *words],
        cwd=folder,
        env={**known, "PYTHONPATH": str(ROOT), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(folder: Path, *words: str, given: str = "", **variables: str) -> tuple[int, str, str]:
    """Return status, output and errors."""
    running = started(folder, *words, **variables)
    said, errors = running.communicate(given, timeout=patience())
    return running.returncode, said, errors


def test_the_program_has_its_input_output_and_status(tmp_path: Path) -> None:
    script = "read a; echo $a; echo oops >&2; exit 7"
    status, said, errors = ended(tmp_path, "--", "sh", "-c", script, given="word\n")
    assert (status, said) == (7, "word\n")
    line, rest = errors.splitlines()
    assert line.startswith(NO_TABLE)
    assert rest == "oops"
    assert ended(tmp_path, "--quiet", "--", "sh", "-c", script) == (7, "\n", "oops\n")


def test_signals_reach_the_program(tmp_path: Path) -> None:
    script = 'trap "exit 9" TERM; echo $$ >new; mv new pid; while :; do read a; done'
    running = started(tmp_path, "--quiet", "--", "sh", "-c", script)
    pid = until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    assert int(pid) == running.pid
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=patience())
    assert running.returncode == 9


def test_a_reader_that_has_gone_ends_the_program_as_without_us(tmp_path: Path) -> None:
    status, _, _ = ended(tmp_path, "--quiet", "--", "sh", "-c", "kill -PIPE $$; exit 1")
    assert status == -signal.SIGPIPE


@pytest.mark.parametrize(
    ("words", "variables", "reason"),
    [
        (["--table", "none.json"], {}, "none.json: cannot be read"),
        ([], {"TUNER_TABLE": "none.json"}, "none.json: cannot be read"),
        ([], {"TUNER_TIMEOUT": "0s"}, "TUNER_TIMEOUT"),
        (["--table", "none.json"], {"PATH": "/bin"}, "neither mpirun nor mpiexec was found"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_line(
    tmp_path: Path, words: list[str], variables: dict[str, str], reason: str
) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    known = {"PATH": path, "TUNER_CACHE": str(tmp_path / "cache"), **variables}
    status, said, errors = ended(tmp_path, *words, "--", "sh", "-c", "echo ran", **known)
    assert (status, said) == (0, "ran\n")
    (line,) = errors.splitlines()
    assert line.startswith("tuner: the library's own collectives are used: ")
    assert reason in line


@pytest.mark.parametrize(
    ("script", "quoted"),
    [
        ("echo ---- >&2; echo no HOME >&2; exit 1", "it failed: no HOME"),
        ("echo ACME 1.0", "it says: ACME 1.0"),
    ],
)
def test_a_launcher_that_fails_is_quoted(tmp_path: Path, script: str, quoted: str) -> None:
    launcher = tmp_path / "mpirun"
    launcher.write_text(f"#!/bin/sh\n{script}\n")
    launcher.chmod(0o755)
    (tmp_path / "sh").symlink_to("/bin/sh")
    known = {"PATH": str(tmp_path), "TUNER_CACHE": str(tmp_path / "cache")}
    _, _, errors = ended(tmp_path, "--table", "any.json", "--", "sh", "-c", "echo ran", **known)
    assert f"`{launcher} --version` names no MPI that is known ({quoted}): " in errors


def test_a_static_program_runs_without_the_table(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int main(void) { return 5; }\n", encoding="utf-8")
    subprocess.run(["cc", "-static", "-o", "static", "x.c"], cwd=tmp_path, check=True)
    status, _, errors = ended(tmp_path, "--table", "any.json", "--", "./static")
    assert status == 5
    assert "static is statically linked, so that nothing can be loaded into it" in errors


def test_the_command_line_is_checked(tmp_path: Path) -> None:
    for words, hint in (
        (["mpirun", "-n", "2", "./x"], "write the command after --: tuner run -- mpirun"),
        ([], "COMMAND"),
        (["--table", "a", "--service", "b", "--", "x"], "not allowed with"),
    ):
        status, _, errors = ended(tmp_path, *words)
        assert status == 2
        assert hint in errors


@pytest.mark.parametrize(
    ("word", "status", "reason"),
    [("./not-there", 127, "No such file or directory"), ("./a-folder", 126, "Permission denied")],
)
def test_a_command_that_cannot_be_started_has_the_status_of_a_shell(
    tmp_path: Path, word: str, status: int, reason: str
) -> None:
    (tmp_path / "a-folder").mkdir()
    found = ended(tmp_path, "--quiet", "--", word)
    assert found == (status, "", f"tuner: {word} cannot be started: {reason}\n")


def test_a_printed_command_is_that_of_a_shell(tmp_path: Path) -> None:
    command = ["sh", "-c", 'echo "$1"', "sh", "it's $HOME"]
    status, said, errors = ended(tmp_path, "--print", "--", *command)
    assert status == 0
    assert errors.startswith(NO_TABLE)
    ran = subprocess.run(said, shell=True, capture_output=True, text=True, check=True)
    assert ran.stdout == "it's $HOME\n"


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--quiet", "--", "sh", "--", "x"],
        ["record", "--", "sh", "--", "x"],
        ["emulate", "run", "flat.yaml", "--", "sh", "--", "x"],
        ["emulate", "run", "flat.yaml", "--ppn", "2", "--", "sh", "--", "x"],
    ],
)
def test_the_command_keeps_dashes_of_its_own(words: list[str]) -> None:
    """Parse commands such as `tuner emulate run FILE -- tuner run -- mpirun ...`."""
    assert build_parser(words).parse_args(words).command == ["sh", "--", "x"]
