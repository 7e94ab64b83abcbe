"""Traps of the libraries' formats: each is sprung in the real library, and kept out of files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mpi.test_prove import BCAST
from tests.support.ladders import table_of
from tuner import libraries
from tuner.collective import Collective
from tuner.errors import InputError, ProbeError
from tuner.export import mpich, openmpi
from tuner.export.mpich import proof as mpich_proof
from tuner.export.openmpi import proof
from tuner.export.openmpi.rules import Row, render
from tuner.export.prove import Trial, ask
from tuner.libraries.openmpi import ALGORITHMS, COLLECTIVE_IDS
from tuner.runtime.launch import Launcher
from tuner.table import Choice

PROGRAM = Path(__file__).with_name("traps_program.py")
GATHER, REDUCE = Collective.GATHER, Collective.REDUCE
FENCE = (Row(0, 0),)


def said(launcher: Launcher, rules: Path, *words: str, ranks: int = 3) -> dict[str, object]:
    run = launcher.run(
        ranks, [str(PROGRAM), *words], settings=proof.activation(rules), timeout=60.0, check=False
    )
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    return dict(json.loads(lines[-1])) if lines else {"error": run.returncode, "right": False}


def test_rules_for_gather_that_depend_on_size_break_programs(
    launcher: Launcher, tmp_path: Path
) -> None:
    """In place the root's send count is 0, the others' 3000: they run different algorithms."""
    rules = tmp_path / "o.rules"
    rows = (Row(0, 1), Row(4096, 2))
    entries = ((0, FENCE), (4, rows), (5, FENCE))
    rules.write_text(render(openmpi.Rules({COLLECTIVE_IDS[GATHER]: entries})))
    assert not said(launcher, rules, "gather", "3000", ranks=4)["right"]
    split = table_of({(GATHER, 4): [(0, Choice("linear")), (4096, Choice("binomial"))]})
    with pytest.raises(InputError, match="hang"):
        openmpi.emit(split)
    rules.write_text(openmpi.emit(table_of({(GATHER, 4): [(0, Choice("binomial"))]})))
    assert said(launcher, rules, "gather", "3000", ranks=4) == {"error": 0, "right": True}


@pytest.mark.parametrize("name", ALGORITHMS[REDUCE][1:])
def test_order_of_operands_in_reduce(launcher: Launcher, tmp_path: Path, name: str) -> None:
    choice = Choice(name)
    safe = libraries.openmpi.order_safe(REDUCE, choice)
    table = table_of({(REDUCE, 3, "commutative"): [(0, choice)], (REDUCE, 3): [(0, Choice())]})
    rules = tmp_path / "o.rules"
    rules.write_text(openmpi.emit(table, commutative_only=True))
    assert said(launcher, rules, "reduce", "512") == {"error": 0, "right": safe}
    if not safe:
        with pytest.raises(InputError, match="non-commutative"):
            openmpi.emit(table_of({(REDUCE, 3): [(0, choice)]}))


CHAIN = table_of({(BCAST, 3): [(0, Choice("chain", {"chains": 2}))]})
WORD = openmpi.emit(CHAIN)


BAD = (
    WORD.rsplit("\n", 4)[0],  # truncated
    "# before the version\nrule-file-version-2\n" + WORD,
    json.dumps({"rule_file_version": 3, "module": "tuned", "collectives": {}}),
    WORD.replace("\n0 2 2 0", "\n1 2 2 0"),  # sizes do not begin at 0
)


def test_open_mpi_drops_bad_files_without_a_word(launcher: Launcher, tmp_path: Path) -> None:
    preloaded = proof.build_watcher(tmp_path)
    assert preloaded is not None
    rules, ran = tmp_path / "o.rules", []
    for content in (WORD, *BAD):
        rules.write_text(content)
        answers = ask(
            launcher, [Trial(CHAIN.rules[0], 4096)], tmp_path, settings=proof.activation(rules),
            environment={"LD_PRELOAD": str(preloaded)},
        )  # fmt: skip
        ran.append(proof.seen(BCAST, answers[0]) == CHAIN.rules[0].choice)
    assert ran == [True, *(False for _ in BAD)]
    for content in BAD:
        with pytest.raises(InputError):
            openmpi.parse(content)


def test_mpich_aborts_on_incomplete_files(mpich_launcher: Launcher, tmp_path: Path) -> None:
    generic = mpich.generic_tuning(mpich_launcher.libmpi())
    table = table_of({(BCAST, 2): [(0, Choice("binomial"))]}, library="mpich 5.0.2")
    whole = json.loads(mpich.emit(table, generic))
    part = json.dumps({"collective=bcast": whole["collective=bcast"]})
    assert "collective=barrier is missing" in mpich.check(table, part, generic)
    file = tmp_path / "m.json"
    for text, lives in ((json.dumps(whole), True), (part, False)):
        file.write_text(text)
        run = mpich_launcher.run(
            2, ["-c", "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"], timeout=60.0,
            settings=mpich_proof.activation(file), check=False,
        )  # fmt: skip
        assert (run.returncode == 0) == lives


def test_ranks_that_die_are_told_of(mpich_launcher: Launcher, tmp_path: Path) -> None:
    """An abort in MPI_Init is a ProbeError, not silence."""
    file = tmp_path / "m.json"
    file.write_text('{"collective=bcast": {"algorithm=MPIR_Bcast_intra_binomial": {}}}')
    with pytest.raises(ProbeError):
        mpich_launcher.run(2, ["-c", "from mpi4py import MPI"], timeout=60.0,
                           settings=mpich_proof.activation(file))  # fmt: skip
