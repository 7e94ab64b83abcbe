"""Validation against the real Intel MPI: it confirms good variables and notices wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tests.support.launches import Untuned
from tuner.base import c_compiler
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable, write_table
from tuner.formats.intelmpi import DIALECT
from tuner.formats.registry import ExportOptions
from tuner.launch import Launcher
from tuner.mpi_libraries.intelmpi import choice_of
from tuner.probe.probed_machine import local_cluster
from tuner.validation import validate_intelmpi
from tuner.validation.validation import ValidationCall, run_calls

BCAST, ALLREDUCE, ALLGATHER = Collective.BCAST, Collective.ALLREDUCE, Collective.ALLGATHER
SEVEN = choice_of(7)  # of bcast, like preset 2 inside one node
TABLE = table_of(
    {
        (ALLREDUCE, 3): [(0, choice_of(5)), (1024, choice_of(16)), (65536, choice_of(8))],
        (BCAST, 3): [
            (0, choice_of(3)),
            (4096, AlgorithmChoice()),
            (65536, choice_of(2)),
            (1 << 20, SEVEN),
        ],
        (ALLGATHER, 3): [(0, choice_of(3)), (3000, choice_of(2))],
        (Collective.ALLTOALL, 3): [(0, choice_of(3)), (3000, choice_of(4))],
        (Collective.BARRIER, 3): [(0, choice_of(5))],
        (Collective.GATHER, 3): [(0, choice_of(1))],
        (Collective.SCATTER, 3): [(0, AlgorithmChoice())],
    },
    probed=(64, 2048, 1 << 17),
    library="intelmpi 2021.18.1",
)
validate = validate_intelmpi.LIBRARY.validate
OTHERWISE = choice_of(1)
OPTIONS = ExportOptions(fallback_algorithm="preset_1")
LIKE_OWN = "cannot be told from Intel MPI's own decision"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "adjust.sh"
    path.write_text(DIALECT.emit(TABLE, fallback=OTHERWISE))
    return path


@pytest.mark.extended
def test_every_rule_runs_its_preset(
    intelmpi_launcher: Launcher, tmp_path: Path, file: Path
) -> None:
    seen = list[tuple[int, int]]()
    validations = validate(
        TABLE,
        file,
        intelmpi_launcher,
        tmp_path,
        OPTIONS,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert len(validations) == len(TABLE.rules)
    doubts = {
        (p.rule.key.collective, p.rule.start_bytes): p.reason
        for p in validations
        if not p.confirmed
    }
    alike = doubts.pop((BCAST, 65536)), doubts.pop((BCAST, 1 << 20))
    assert alike[0].endswith("preset 2 cannot be told from preset 7")
    assert alike[1].endswith("preset 7 cannot be told from preset 2")
    assert len(doubts) <= 1  # its decisions hang on the processor
    assert all(reason.endswith(LIKE_OWN) for reason in doubts.values())
    assert seen[-1] == (len(seen), len(seen))
    ran = {(p.rule.key.collective, p.rule.start_bytes): str(p.executed[-1]) for p in validations}
    assert ran[ALLREDUCE, 0] == "Bcast_binomial + Reduce_binomial"
    assert "Allreduce_shumilin" in ran[ALLREDUCE, 1024]
    assert ran[ALLGATHER, 0] == "Allgather_ring"
    assert ran[ALLGATHER, 3000] == "Allgather_brucks"
    assert ran[BCAST, 0] == "Bcast_scatter_ring_allgather"


@pytest.mark.extended
def test_variables_that_are_not_followed_are_noticed(
    intelmpi_launcher: Launcher, tmp_path: Path
) -> None:
    table = table_of(
        {(BCAST, 3): [(0, choice_of(3))], (ALLGATHER, 3): [(0, AlgorithmChoice())]},
        library=TABLE.library,
    )
    file = tmp_path / "adjust.sh"
    file.write_text(DIALECT.emit(table))
    validations = validate(table, file, Untuned(intelmpi_launcher), tmp_path)
    assert [p.rule.key.collective for p in validations if p.confirmed] == [ALLGATHER]
    assert all(p.reason.endswith(LIKE_OWN) for p in validations if not p.confirmed)


def test_the_variables_of_another_table_are_refused(
    intelmpi_launcher: Launcher, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = table_of({(BCAST, 3): [(0, choice_of(7))]}, library=TABLE.library)
    with pytest.raises(InputError, match="not the file of this table"):
        validate(other, file, intelmpi_launcher, tmp_path)
    monkeypatch.setenv("I_MPI_ADJUST_BCAST", "1")
    with pytest.raises(InputError, match="I_MPI_ADJUST_BCAST is set"):
        validate(TABLE, file, intelmpi_launcher, tmp_path, OPTIONS)


SIZES = (512, 1024, 4096)
MISREAD = {  # value -> the preset that Intel MPI runs at each of SIZES
    "5:1024-4095": (5, 5, 5),  # the lower bound is ignored, the last entry takes what is left
    "5:0-1023;16:2048-4000": (5, 16, 16),
    "99:0-1023;5": (0, 5, 5),
}


@pytest.mark.extended
def test_what_the_parser_refuses_is_really_misread(
    intelmpi_launcher: Launcher, tmp_path: Path
) -> None:
    alone = {n: entered_under(intelmpi_launcher, tmp_path, str(n)) for n in (0, 5, 16)}
    for value, presets in MISREAD.items():
        with pytest.raises(InputError):
            DIALECT.parse(f"export I_MPI_ADJUST_ALLREDUCE='{value}'\n")
        seen = entered_under(intelmpi_launcher, tmp_path, value)
        assert seen == [alone[preset][i] for i, preset in enumerate(presets)], value


def entered_under(launcher: Launcher, directory: Path, value: str) -> list[set[str]]:
    """The functions that allreduces of SIZES on 3 ranks enter under a value of the variable."""
    preloaded = c_compiler.compile_shared_library(validate_intelmpi.SOURCE, directory)
    assert preloaded is not None
    rule = next(rule for rule in TABLE.rules if rule.key.collective is ALLREDUCE)
    answers = run_calls(
        launcher,
        [ValidationCall(rule, nbytes) for nbytes in SIZES],
        directory,
        settings={"I_MPI_ADJUST_ALLREDUCE": value} if value else {},
        environment={"LD_PRELOAD": str(preloaded)},
    )
    return [set(answers[i].entered_functions) for i in range(len(SIZES))]


def test_the_command_line_proves_each_number_of_ranks(
    intelmpi_launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = table_of({(BCAST, p): [(0, choice_of(3))] for p in (2, 3)})
    table = TuningTable(local_cluster(), intelmpi_launcher.version(), made.rules)
    write_table(table, tmp_path / "table.json")
    words = [
        "table",
        "validate",
        str(tmp_path / "table.json"),
        "--library",
        "intelmpi",
        "--json",
        "--python",
        str(intelmpi_launcher.python),
    ]
    assert main(words) == 0
    validations = json.loads(capsys.readouterr().out)
    assert [(p["p"], p["confirmed"]) for p in validations] == [(2, True), (3, True)]
    assert validations[0]["executed"] == "Bcast_scatter_ring_allgather"
    assert main([*words[:4], "openmpi", "--json"]) == 1
    assert "its rules say nothing about openmpi" in capsys.readouterr().err
