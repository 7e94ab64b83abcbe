"""Run each test that failed once more, alone: what then passes is flaky, and no run hides it.

The last line of a run says how many tests are flaky, `build/flaky.txt` lists them with the time,
and the exit status is that of a failure. Where TUNER_TEST_FLAKY is `tolerate`, the status is that
of success if nothing else failed. Many failures at once are no accident, and not run again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.waiting import patience

MOST = 12  # failures
AGAIN = "TUNER_TEST_AGAIN"  # set in the run of one test alone
STATES = ("failed", "error")
LONGEST_TEST_S = 120.0  # on a quiet machine, with all its fixtures


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Run what failed again, before the summary is printed."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    is_worker = hasattr(session.config, "workerinput")
    if AGAIN in os.environ and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED  # it has not passed
    if exitstatus != pytest.ExitCode.TESTS_FAILED or is_worker or AGAIN in os.environ:
        return
    failed = failures(reporter.stats)
    if not 0 < len(failed) <= MOST:
        return
    flaky = [test for test in failed if passes_alone(session.config, test)]
    if not flaky:
        return
    for state in STATES:
        reports = reporter.stats.pop(state, [])
        for report in reports:
            kind = "flaky" if report.nodeid in flaky else state
            reporter.stats.setdefault(kind, []).append(report)
    note(session.config, flaky)
    if not any(reporter.stats.get(state) for state in STATES):
        tolerated = os.environ.get("TUNER_TEST_FLAKY") == "tolerate"
        session.exitstatus = pytest.ExitCode.OK if tolerated else pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how the flaky tests failed, and their names."""
    reports = terminalreporter.stats.get("flaky", [])
    for report in reports:
        terminalreporter.write_sep("_", f"flaky: {report.nodeid}", yellow=True)
        report.toterminal(terminalreporter._tw)
    if reports:
        terminalreporter.write_sep("=", "flaky: failed, then passed alone")
        for test in sorted({report.nodeid for report in reports}):
            terminalreporter.write_line(f"FLAKY {test}")
        terminalreporter.write_line("They are listed in build/flaky.txt and have to be mended.")


def failures(stats: dict[str, list[pytest.TestReport]]) -> list[str]:
    """Return the tests that failed; collection is not run again."""
    reports = [report for state in STATES for report in stats.get(state, [])]
    if any(isinstance(report, pytest.CollectReport) for report in reports):
        return []
    return sorted({report.nodeid for report in reports})


def passes_alone(config: pytest.Config, test: str) -> bool:
    """Return whether one test passes in a process of its own, with the same environment and seed.

    A test that is skipped, or hangs, does not.
    """
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        __name__,
        "--quiet",
        f"--rootdir={config.rootpath}",
    ]
    if (seed := getattr(config.option, "randomly_seed", None)) is not None:
        words.append(f"--randomly-seed={seed}")
    with suppress(subprocess.TimeoutExpired):
        return not subprocess.run(
            [*words, test],
            cwd=config.rootpath,
            env={**os.environ, AGAIN: "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=patience(LONGEST_TEST_S),
            check=False,
        ).returncode
    return False


def note(config: pytest.Config, flaky: list[str]) -> None:
    """Append the tests to the list, each with the time."""
    path = config.rootpath / "build" / "flaky.txt"
    path.parent.mkdir(exist_ok=True)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{now} {test}\n" for test in flaky)
