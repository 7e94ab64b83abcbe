"""`tuner publish`: what is not sent to any service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, write_table

BCAST = Collective.BCAST
NOWHERE = "http://127.0.0.1:9"  # the port of a service that throws everything away


@pytest.mark.parametrize(
    ("library", "choice", "why"),
    [
        ("openmpi 5.0.11", AlgorithmChoice("shout"), "shout"),
        ("openmpi 5.0.11", AlgorithmChoice("linear", {"radix": 3}), "radix"),
        ("mpich 5.0.2", AlgorithmChoice("shout"), "MPICH has no bcast algorithm 'shout'"),
        (
            "openmpi 5.0.11",
            AlgorithmChoice("shout", runner="schedule"),
            "unknown bcast algorithm 'shout'",
        ),
    ],
)
def test_what_no_library_has_is_not_published(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    library: str,
    choice: AlgorithmChoice,
    why: str,
) -> None:
    path = tmp_path / "table.json"
    rungs = {(BCAST, 4): ((0, AlgorithmChoice()), (64, choice))}
    write_table(table_of(rungs, library=library), path)
    assert main(["publish", str(path), "--service", NOWHERE]) == 1
    said = capsys.readouterr().err
    assert f"{path}: bcast on 4 ranks, [64, inf) bytes: '{choice}': " in said
    assert why in said
    assert said.count("\n") == 1


def test_what_is_wrong_for_some_operators_is_not_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.json"
    rungs = {(Collective.ALLREDUCE, 4): ((0, AlgorithmChoice("rabenseifner")),)}
    write_table(table_of(rungs), path)
    assert main(["publish", str(path), "--service", NOWHERE]) == 1
    said = capsys.readouterr().err
    assert f"{path}: allreduce on 4 ranks, [0, inf) bytes: 'rabenseifner': in Open MPI" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("via", ["library", "schedule"])
def test_what_there_is_comes_as_far_as_the_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], via: str
) -> None:
    path = tmp_path / "table.json"
    write_table(
        table_of(
            {(BCAST, 4): ((0, AlgorithmChoice()), (64, AlgorithmChoice("binomial", {}, via)))}
        ),
        path,
    )
    assert main(["publish", str(path), "--service", NOWHERE]) == 1
    assert "127.0.0.1:9" in capsys.readouterr().err
