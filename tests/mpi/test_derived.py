"""Communicators that a program derives cost nothing until tuning them pays."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.ladders import table_of
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Evidence, TuningTable, write_table
from tuner.launch import Launcher

PROGRAM = Path(__file__).with_name("derived_program.py")
COUNTER = PROGRAM.parents[1] / "support" / "count_calls.c"
LIBRARIES = [("launcher", 4), ("mpich_launcher", 2)]
NBYTES = 8000  # a size of the rule
LIBRARY_S = 0.01  # that the library takes for it
ROUND = 10  # calls of the library in ten rounds, for each call of the program


def table(library: str, ranks: int, algorithm: AlgorithmChoice) -> TuningTable:
    """Return a table with one rule for long calls, which says what the library takes."""
    rungs = [(0, AlgorithmChoice()), (1024, algorithm)]
    keys = [(Collective.ALLREDUCE, p, "commutative") for p in {ranks, (ranks + 1) // 2} - {1}]
    made = table_of(dict.fromkeys(keys, rungs), library=library)
    stated = Evidence("measured", (NBYTES,), (LIBRARY_S,), (LIBRARY_S / 2,))
    rules = (
        rule if rule.choice.is_default else replace(rule, evidence=stated) for rule in made.rules
    )
    return TuningTable(made.cluster, made.library, tuple(rules))


@pytest.fixture(params=LIBRARIES, ids=["openmpi", "mpich"])
def ranks(request: pytest.FixtureRequest) -> tuple[Launcher, int]:
    fixture, number = request.param
    return request.getfixturevalue(fixture), number


def counted(
    ranks: tuple[Launcher, int],
    place: Path,
    algorithm: AlgorithmChoice,
    *arguments: str,
    **variables: str,
) -> dict[str, Any]:
    """Return what the program counts under a table with this algorithm for long calls."""
    launcher, number = ranks
    library, file = place / "count.so", place / "table.json"
    command = [str(launcher.compiler), "-shared", "-fPIC", "-o", str(library), str(COUNTER)]
    subprocess.run(command, check=True)
    write_table(table(launcher.version(), number, algorithm), file)
    run = launcher.run(
        number,
        ["-m", "tuner.run", "--table", str(file), str(PROGRAM), *arguments],
        environment={"LD_PRELOAD": str(library), **variables},
        timeout=patience(),
    )
    found: dict[str, Any] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize(
    "algorithm",
    [AlgorithmChoice("recursive_doubling"), AlgorithmChoice("ring", {}, "schedule")],
    ids=str,
)
def test_few_calls_take_no_call_more_than_without_a_table(
    ranks: tuple[Launcher, int], tmp_path: Path, algorithm: AlgorithmChoice
) -> None:
    found = counted(ranks, tmp_path, algorithm, TUNER_TUNE_AFTER="1s")
    splits, dups = 3 * ROUND, 2 * ROUND  # Split, Dup and Allreduce; Dup and Allreduce
    assert (found["split"], found["split, of a size that a rule changes"]) == (splits, splits)
    assert (found["dup"], found["dup, of a size that a rule changes"]) == (dups, dups)


@pytest.mark.parametrize("observed", [False, True])
def test_all_ranks_tune_in_the_call_in_which_it_pays(
    ranks: tuple[Launcher, int], tmp_path: Path, observed: bool
) -> None:
    """Calls count with the time that the table states for the library.

    The first call of a communicator does not count, unless a rank observes its calls.
    """
    arguments, ring = ["observed"] * observed, AlgorithmChoice("ring", {}, "schedule")
    found = counted(ranks, tmp_path, ring, *arguments, TUNER_TUNE_AFTER="1s")
    assert found["short calls"] == 400  # no rule would change them
    twin, part = found["long calls"]
    assert twin == pytest.approx(1.0 / LIBRARY_S, abs=1)
    assert part == twin + (not observed)


def test_they_follow_their_first_call_on_request(
    ranks: tuple[Launcher, int], tmp_path: Path
) -> None:
    found = counted(ranks, tmp_path, AlgorithmChoice("ring", {}, "schedule"), TUNER_TUNE_AFTER="0s")
    assert found["long calls"] == [0, 0]
