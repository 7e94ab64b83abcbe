"""Pairs of runs with a table and without."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.support.waiting import patience, until
from tuner.base.errors import InputError
from tuner.cli.commands.compare import print_comparison
from tuner.core.speedup import launches_to_show, paired_speedup
from tuner.preload.command import PreparedCommand
from tuner.preload.paired_runs import (
    FailedRunError,
    Pair,
    ProgramComparison,
    RunTimes,
    continue_comparison,
    read_comparison,
    timed_run,
    write_comparison,
)

NEW = ProgramComparison(("./solver", "input"), "table.json (1)")
COUNTS_RUNS = "echo run >>runs"


def logging_sides(log: list[str]) -> dict[str, Callable[[], RunTimes]]:
    """Sides that take 1 and 2 seconds and log their names."""

    def side(name: str, seconds: float) -> Callable[[], RunTimes]:
        times = RunTimes(seconds, {"bcast": seconds / 2, name: 1.0})
        return lambda: log.append(name) or times  # type: ignore[func-returns-value]

    return {"with": side("with", 1.0), "without": side("without", 2.0)}


def silent(_done: float, _text: str) -> None:
    """Report nothing."""


def test_both_sides_run_in_each_pair_in_random_order_and_the_first_does_not_count() -> None:
    log: list[str] = []
    order = random.Random(3)
    *_, found = continue_comparison(NEW, logging_sides(log), 20, silent, order)
    pairs = list(zip(log[::2], log[1::2], strict=True))
    assert set(pairs) == {("with", "without"), ("without", "with")}
    assert [pair.first for pair in found.pairs] == [first for first, _ in pairs[1:]]
    assert found.gain == pytest.approx((2.0, 2.0, 2.0))
    assert (found.command, found.table) == (NEW.command, NEW.table)


def test_a_continued_comparison_has_the_missing_pairs_alone() -> None:
    begun = ProgramComparison(("x",), "", (Pair("with", 1.0, 1.0),) * 2)
    log: list[str] = []
    found = list(continue_comparison(begun, logging_sides(log), 4, silent))
    assert [len(one.pairs) for one in found] == [3, 4]
    assert len(log) == 2 * (2 + 1)  # and a pair that does not count
    assert not list(continue_comparison(begun, logging_sides([]), 2, silent))


@pytest.mark.parametrize(("failing", "name"), [(1, "first pair, not counted"), (5, "pair 2 of 3")])
def test_a_run_that_fails_is_named(failing: int, name: str) -> None:
    log: list[str] = []
    sides = logging_sides(log)

    def fails() -> RunTimes:
        sides["with"]()
        if len(log) >= failing:
            raise FailedRunError("ended with status 3: boom")
        return RunTimes(1.0)

    with pytest.raises(FailedRunError) as raised:
        list(continue_comparison(NEW, {**sides, "with": fails}, 3, silent, random.Random(1)))
    assert str(raised.value) == f"{name}: the run with the table ended with status 3: boom"


def test_a_file_is_continued(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    assert read_comparison(file, NEW) == NEW
    *_, found = continue_comparison(NEW, logging_sides([]), 3, silent)
    write_comparison(found, file)
    assert read_comparison(file, NEW) == found
    assert json.loads(file.read_text())["gain"] == pytest.approx(2.0)
    assert found.collective_gains == {"bcast": pytest.approx((2.0, 2.0, 2.0))}
    for command, table in ((("other",), NEW.table), (NEW.command, "another table")):
        with pytest.raises(
            InputError, match="holds the comparison of another command, input or table"
        ):
            read_comparison(file, ProgramComparison(command, table))
    with pytest.raises(InputError, match="holds the comparison of another command, input or table"):
        read_comparison(file, replace(NEW, records=True))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"command": [], "table": "", "pairs": [1]}'])
def test_another_file_is_not_taken_for_one(tmp_path: Path, content: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(content)
    with pytest.raises(InputError, match="holds no comparison: give another name"):
        read_comparison(file, NEW)


def test_a_program_is_timed_and_its_failure_explained() -> None:
    def run(script: str) -> float:
        ran = timed_run(PreparedCommand(("sh", "-c", script), {**os.environ, "A": "2"}))
        return ran.seconds

    assert run('test "$A" = 2') > 0
    with pytest.raises(FailedRunError, match=r"^ended with status 3:\n  first\n  last$"):
        run("echo first >&2; echo ---- >&2; echo last >&2; echo >&2; exit 3")
    with pytest.raises(FailedRunError, match=r"^ended with status 3:(\n  line \d){10}$"):
        run("for n in $(seq 99 -1 0); do echo line $n >&2; done; exit 3")
    with pytest.raises(FailedRunError, match=r"^ended with SIGKILL:\n  no message$"):
        run("kill -9 $$")
    with pytest.raises(InputError, match=r"^/no/where cannot be started: No such file"):
        timed_run(PreparedCommand(("/no/where",), {}))


@pytest.mark.parametrize("size", [0.001, 0.01, 0.03])
def test_so_many_launches_would_show_what_was_seen(size: float) -> None:
    """The same mean and spread over more launches: with one less the interval would hold 1."""
    seen = [size - 0.02, size + 0.02]
    number = launches_to_show(list(np.exp(seen)), [1.0, 1.0])
    assert number is not None
    for launches, shown in ((number, True), (number - 1, False)):
        spread = np.arange(launches, dtype=float)
        spread = (spread - spread.mean()) / spread.std(ddof=1)
        times = np.exp(size + np.std(seen, ddof=1) * spread)
        _, low, _ = paired_speedup([(float(t),) for t in times], [(1.0,)] * launches)
        assert (low > 1) is shown


def test_what_no_number_of_launches_shows() -> None:
    assert launches_to_show([1.1, 1.0], [1.0, 1.1]) is None
    assert launches_to_show([2.0, 2.0], [1.0, 1.0]) == 2


COUNTS_CALLS = 'if [ -n "$TUNED" ]; then echo 1 1 >"$TUNER_REPORT"; fi; '


def compared(
    folder: Path, *words: str, script: str, begin: str = COUNTS_CALLS, given: str = os.devnull
) -> subprocess.Popen[str]:
    """Start `tuner compare` with a script as the program, which begins as ranks end.

    given   name of the file that is its standard input
    """
    command = ["sh", "-c", begin + script]
    with (folder / given).open("rb") as read:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.compared", *words, "--", *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=read,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.mark.slow
def test_each_run_reads_the_whole_standard_input(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"79\n\xff")
    (tmp_path / "other").write_bytes(b"80\n")
    words = ("--runs", "2", "--out", "kept.json")
    running = compared(tmp_path, *words, script="cat >>read", given="input")
    _, errors = running.communicate(timeout=patience())
    assert running.returncode in (0, 1), errors
    assert (tmp_path / "read").read_bytes() == b"79\n\xff" * 6
    running = compared(tmp_path, *words, script=":", given="other")
    _, errors = running.communicate(timeout=patience())
    assert running.returncode == 1
    assert "the comparison of another command, input or table" in errors


@pytest.mark.slow
def test_a_terminal_gives_the_runs_nothing(tmp_path: Path) -> None:
    manager, terminal = os.openpty()
    running = compared(tmp_path, "--runs", "2", script="cat", given=os.ttyname(terminal))
    _, errors = running.communicate(timeout=patience())
    os.close(manager)
    os.close(terminal)
    assert running.returncode in (0, 1), errors


@pytest.mark.slow
def test_a_slower_program_is_status_1(tmp_path: Path) -> None:
    """It is surely slower, as it starts forty more processes."""
    script = 'i=0; while [ -n "$TUNED" ] && [ $i -lt 40 ]; do sh -c :; i=$((i+1)); done'
    running = compared(tmp_path, "--runs", "4", "--json", script=script)
    said, errors = running.communicate(timeout=patience())
    assert running.returncode == 1, errors
    record = json.loads(said)
    assert record["gain"] < record["ci95"][1] < 1
    assert len(record["pairs"]) == 4


@pytest.mark.slow
def test_ctrl_c_ends_the_run_reports_and_can_be_continued(tmp_path: Path) -> None:
    """The sixth run, of the third pair, writes its process id and waits to be ended."""
    script = (
        f"{COUNTS_RUNS}; if [ $(wc -l <runs) = 7 ] && [ ! -e pid ];"
        " then echo $$ >new; mv new pid; exec tail -f /dev/null; fi"
    )
    words = ("--runs", "3", "--out", "kept.json")
    running = compared(tmp_path, *words, script=script)
    pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
    running.send_signal(signal.SIGINT)
    said, errors = running.communicate(timeout=patience())
    assert running.returncode == 128 + signal.SIGINT
    assert said.startswith("without the table ")
    assert "medians of 2 pairs of runs" in said
    assert "the same command again resumes" in errors
    assert not Path(f"/proc/{pid}").exists()
    running = compared(tmp_path, *words, script=script)
    said, errors = running.communicate(timeout=patience())
    assert running.returncode in (0, 1), errors
    assert "medians of 3 pairs of runs" in said
    assert (tmp_path / "runs").read_text().count("run") == 7 + 4


@pytest.mark.parametrize(
    ("with_s", "said"),
    [
        ((1.0, 1000.0), "too few or too noisy runs to say anything"),
        ((1.0, 1.0), "gain 1.000, 95 % interval 1.000 to 1.000: no difference"),
    ],
)
def test_an_interval_without_sense_is_not_printed(
    with_s: tuple[float, float], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = tuple(Pair("with", one, 1.0, {"bcast": (one, 1.0)}) for one in with_s)
    kept = ProgramComparison(("true",), "a table", pairs, records=True)
    print_comparison(kept)
    printed = capsys.readouterr().out
    assert said in printed
    is_noisy = with_s[1] > with_s[0]
    assert "more pair" not in printed
    assert ("too noisy to say" in printed) is is_noisy


@pytest.mark.slow
def test_runs_that_do_not_tell_if_they_followed_the_table_end_a_comparison(tmp_path: Path) -> None:
    running = compared(tmp_path, "--runs", "2", script=":", begin="")
    said, errors = running.communicate(timeout=patience())
    assert (running.returncode, said) == (1, "")
    assert "the ranks did not say whether they followed the table" in errors


@pytest.mark.slow
def test_a_failed_run_keeps_the_result_of_the_pairs_before(tmp_path: Path) -> None:
    script = f"{COUNTS_RUNS}; [ $(wc -l <runs) -le 6 ]"
    running = compared(tmp_path, "--runs", "4", script=script)
    said, errors = running.communicate(timeout=patience())
    assert running.returncode == 1
    assert "medians of 2 pairs of runs" in said
    assert "pair 3 of 4: the run " in errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "script", "status", "sentence"),
    [
        (["--runs", "1"], ":", 2, "--runs 1: an interval needs 2 pairs of runs at least"),
        ([], '[ -z "$TUNED" ] || { echo broken >&2; exit 5; }', 1, "not counted: the run with the"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(
    tmp_path: Path, words: list[str], script: str, status: int, sentence: str
) -> None:
    running = compared(tmp_path, *words, script=script)
    said, errors = running.communicate(timeout=patience())
    assert (running.returncode, said) == (status, "")
    assert sentence in errors
    assert "Traceback" not in errors
