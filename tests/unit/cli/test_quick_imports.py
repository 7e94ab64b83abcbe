"""Commands are imported with one thread for BLAS and without collections of garbage."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from tuner.cli.main import build_parser, main
from tuner.cli.quick_imports import BLAS_THREADS


def test_programs_that_a_command_starts_choose_their_own_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(BLAS_THREADS, raising=False)
    build_parser(["simulate"])
    assert BLAS_THREADS not in os.environ
    assert gc.isenabled()
    monkeypatch.setenv(BLAS_THREADS, "3")
    build_parser(["simulate"])
    assert os.environ[BLAS_THREADS] == "3"


def test_what_a_command_imports_is_left_out_of_later_collections() -> None:
    program = (
        "import gc\nfrom tuner.cli.main import build_parser\n"
        "build_parser(['serve'])\nprint(gc.get_freeze_count(), gc.isenabled())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    frozen, collects = ran.stdout.split()
    assert int(frozen) > 10_000
    assert collects == "True"


def test_a_program_that_calls_a_command_has_all_its_objects_collected_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["algorithms"]) == 0
    assert capsys.readouterr().out
    assert gc.get_freeze_count() == 0
