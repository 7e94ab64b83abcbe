"""Validation of Intel MPI's variables by the functions that calls enter, on ranks made up here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tuner.base import c_compiler
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.formats.intelmpi import DIALECT
from tuner.formats.registry import ExportOptions
from tuner.launch import CompletedRun
from tuner.mpi_libraries.intelmpi import choice_of
from tuner.validation.validate_intelmpi import LIBRARY
from tuner.validation.validation import RuleValidation

BCAST = Collective.BCAST
OWN = -1
TREE, CHAIN = "MPIR_Bcast_intra_tree", "MPIR_Bcast_intra_chain"
RING, LINEAR = "MPIR_Bcast_intra_ring", "MPIR_Bcast_intra_linear"


def entered(preset: int, nbytes: int) -> list[str]:
    """Presets 1 and 2 are one; 4 is 5 with other numbers; 6 is 5 and 7 is the own up to 1 kB."""
    small = nbytes < 1000
    return {
        OWN: [LINEAR],
        1: [TREE],
        2: [TREE],
        3: [RING],
        4: [CHAIN, "MPIDI_coll_invoke(7:1,4)"],
        5: [CHAIN, "MPIDI_coll_invoke(7:1,8)"],
        6: [CHAIN, "MPIDI_coll_invoke(7:1,8)"] if small else [CHAIN],
        7: [LINEAR] if small else [RING],
        8: ["MPIDI_coll_invoke(7:9,4)"],
    }[preset]


@dataclass
class Ranks:
    """Ranks that run the presets of the variable; `stuck`: this one where it has several."""

    stuck: int | None = None
    library: str = "intelmpi"

    def run(
        self,
        ranks: int,
        arguments: Sequence[str],
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], float | None] | None = None,
        timeout: float | None = None,
        silence_timeout: float | None = None,
        check: bool = True,
    ) -> CompletedRun:
        values = {
            name.rpartition("_")[2].lower(): value for name, value in (settings or {}).items()
        }
        for number, call in enumerate(json.loads(Path(arguments[-1]).read_text())):
            collective, value = Collective(call["collective"]), values.get(call["collective"], "")
            entries = DIALECT.parse_value(collective, value, pytest.fail) if value else ()
            preset = next(
                (e.number for e in entries if e.max_bytes is None or call["nbytes"] <= e.max_bytes),
                OWN,
            )
            if self.stuck is not None and len(entries) > 1:
                preset = self.stuck
            said = {"call": number, "error": 0, "executed": []}
            if on_line:
                on_line(json.dumps({**said, "entered": entered(preset, call["nbytes"])}))
        return CompletedRun(0, "", "")


@pytest.fixture
def validated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[RuleValidation]]:
    """The validations of a ladder of broadcasts, of rungs (bytes, preset)."""
    monkeypatch.setattr(
        c_compiler, "compile_shared_library", lambda _source, directory: directory / "watcher.so"
    )

    def validated(*rungs: tuple[int, int], stuck: int | None = None) -> list[RuleValidation]:
        ladder = [(lo, AlgorithmChoice() if n == OWN else choice_of(n)) for lo, n in rungs]
        table = table_of({(BCAST, 2): ladder}, (64, 2048), "intelmpi 2021.18.1")
        file = tmp_path / "adjust.sh"
        file.write_text(DIALECT.emit(table, fallback=choice_of(8)))
        return LIBRARY.validate(
            table, file, Ranks(stuck), tmp_path, ExportOptions(fallback_algorithm="preset_8")
        )

    return validated


def test_what_is_like_nothing_else_is_confirmed(
    validated: Callable[..., list[RuleValidation]],
) -> None:
    validations = validated((0, 1), (64, 3), (512, 4), (4096, 5), (8192, OWN))
    assert [p.reason for p in validations] == [""] * 5
    assert str(validations[0].executed[0]) == "Bcast_tree"
    assert str(validations[-1].executed[0]) == "no function with a name"
    assert [p.confirmed for p in validated((0, OWN))] == [True]


@pytest.mark.parametrize(
    ("rungs", "reasons"),
    [
        (
            [(0, 1), (64, 2), (512, 3)],
            [
                "at 4, 63 bytes preset 1 cannot be told from preset 2",
                "at 64, 511 bytes preset 2 cannot be told from preset 1",
                "",
            ],
        ),
        (
            [(0, 5), (512, 6)],
            [
                "at 4, 64, 511 bytes preset 5 cannot be told from preset 6",
                "at 512 bytes preset 6 cannot be told from preset 5",
            ],
        ),
        ([(0, 7)], ["at 4, 64 bytes preset 7 cannot be told from Intel MPI's own decision"]),
        ([(0, 8), (512, OWN)], ["", ""]),
    ],
)
def test_what_cannot_be_told_apart_at_every_size_is_not_confirmed(
    validated: Callable[..., list[RuleValidation]], rungs: list[tuple[int, int]], reasons: list[str]
) -> None:
    validations = validated(*rungs)
    assert [p.reason for p in validations] == reasons
    assert [p.confirmed for p in validations] == [not reason for reason in reasons]


def test_a_library_that_runs_another_preset_is_noticed(
    validated: Callable[..., list[RuleValidation]],
) -> None:
    validations = validated((0, 1), (64, 4), (4096, OWN), stuck=5)
    assert [p.reason for p in validations] == [
        "at 4, 63 bytes Bcast_chain ran instead of Bcast_tree, unlike under preset 1",
        "at 64, 2048, 4095 bytes Bcast_chain ran with other numbers, unlike under preset 4",
        "at 4096 bytes Bcast_chain ran instead of no function with a name, unlike under preset 8",
    ]
