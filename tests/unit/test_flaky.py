"""A test that fails and then passes alone is reported as flaky, and is no success."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.flaky import passes_alone
from tests.support.waiting import patience

pytestmark = pytest.mark.slow

TESTS = """
from pathlib import Path
import pytest

def test_fine(): pass

def test_by_chance():
    been_here = Path(__file__).with_name("been-here")
    if not been_here.exists():
        been_here.touch()
        pytest.fail("by chance")
"""
SKIPPED = """
from pathlib import Path
import pytest

def test_once():
    been_here = Path(__file__).with_name("been-here")
    if been_here.exists():
        pytest.skip("not again")
    been_here.touch()
    pytest.fail("once")
"""
HANGING = """
import os, threading

def test_once():
    assert "TUNER_TEST_AGAIN" in os.environ
    threading.Event().wait()
"""
BROKEN = "\ndef test_broken(): assert 1 == 2\n"
MANY = "\n@pytest.mark.parametrize('n', range(20))\ndef test_broken(n): assert 1 == 2\n"


def ran(folder: Path, text: str, *words: str, flaky: str = "") -> tuple[int, str]:
    """Return the exit status and the output of a run of these tests."""
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    plugins = ("-p", "no:cacheprovider", "-p", "xdist", "-p", "tests.support.flaky")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *words, "test_it.py"],
        cwd=folder,
        env={
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TUNER_TEST_FLAKY": flaky,
        },
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("words", [(), ("-n", "2")])
def test_a_flaky_test_is_told_from_one_that_passes(tmp_path: Path, words: tuple[str, ...]) -> None:
    status, said = ran(tmp_path, TESTS, *words)
    assert status == 1
    assert "1 passed, 1 flaky in" in said.splitlines()[-1]
    assert "by chance" in said
    date, name = (tmp_path / "build/flaky.txt").read_text().split()
    assert (date[:2], name) == ("20", "test_it.py::test_by_chance")


def test_it_may_be_tolerated(tmp_path: Path) -> None:
    status, said = ran(tmp_path, TESTS, flaky="tolerate")
    assert (status, "1 passed, 1 flaky in" in said.splitlines()[-1]) == (0, True)
    (tmp_path / "been-here").unlink()
    status, said = ran(tmp_path, TESTS + BROKEN, flaky="tolerate")
    assert (status, "1 failed, 1 passed, 1 flaky in" in said.splitlines()[-1]) == (1, True)


def test_what_is_skipped_alone_has_not_passed(tmp_path: Path) -> None:
    status, said = ran(tmp_path, SKIPPED)
    assert (status, "1 failed in" in said.splitlines()[-1]) == (1, True)


def test_what_hangs_alone_has_failed(tmp_path: Path) -> None:
    limited = "import tests.support.flaky as f\nf.LONGEST_TEST_S = 0.2\n"
    (tmp_path / "conftest.py").write_text(limited)
    status, said = ran(tmp_path, HANGING)
    assert (status, "1 failed in" in said.splitlines()[-1]) == (1, True)


def test_what_fails_twice_has_failed_and_many_failures_are_no_accident(tmp_path: Path) -> None:
    status, said = ran(tmp_path, BROKEN)
    assert (status, "1 failed in" in said.splitlines()[-1]) == (1, True)
    assert not (tmp_path / "build").exists()
    status, said = ran(tmp_path, TESTS + MANY)
    assert (status, "21 failed, 1 passed in" in said.splitlines()[-1]) == (1, True)


def test_tests_of_this_project_can_be_run_alone(pytestconfig: pytest.Config) -> None:
    assert passes_alone(pytestconfig, "tests/unit/base/test_units.py::test_times_and_rates")
