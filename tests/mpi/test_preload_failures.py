"""C programs that survive the end of a rank (ULFM) notice it under the preloaded library, too."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tests.support.mpi4py_suite import SHARED_CORES
from tests.support.preload import compiled, preload_environment
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.launch import Launcher
from tuner.preload.command import rank_command

RANKS = 5
WHY = (
    "tuner: the library's own collectives are used: rank 0: MPI: where ranks may fail (ULFM), calls"
    " stay on the program's communicators"
)


@pytest.mark.parametrize("runner", ["schedule", "library"])
def test_no_rank_takes_the_sum_of_a_rank_that_died(
    launcher: Launcher, runner: str, tmp_path: Path
) -> None:
    version = launcher.version()
    if version < "openmpi 5":
        pytest.skip(f"{version} has no fault tolerance")
    program = compiled(launcher, "preload_failures.c", tmp_path)
    ring = AlgorithmChoice("ring", {}, runner)
    table = table_of({(Collective.ALLREDUCE, RANKS, "commutative"): [(0, ring)]}, library=version)
    following = preload_environment(launcher, table, tmp_path, TUNER_TUNE_AFTER_US="0")
    words = launcher.command(RANKS, ["100000"], program=program)
    words[1:1] = ["--with-ft", "ulfm"]
    command = rank_command(words, following, {**os.environ, **SHARED_CORES})
    done = subprocess.run(
        command.words,
        env=command.environment,
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert done.stdout == "No Errors\n", done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("tuner:")] == [WHY]
