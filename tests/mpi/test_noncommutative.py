"""No emitted table makes a non-commutative reduction wrong; the unsafe algorithms really are.

Each choice gets a few bytes of the message size to itself, so one launch tries them all; sizes are
whole numbers of 2x2 integer matrices (16 bytes), the product is taken modulo 10007.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.ladders import staircase, table_of
from tests.support.waiting import patience
from tuner import mpi_libraries
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.formats import mpich, openmpi
from tuner.launch import Launcher
from tuner.validation.validate_mpich import activation as mpich_activation
from tuner.validation.validate_openmpi import activation as openmpi_activation

PROGRAM = Path(__file__).with_name("operand_order_program.py")
ALLREDUCE = Collective.ALLREDUCE
MATRIX = 16  # bytes
FIRST = 64 * MATRIX
SMALL = AlgorithmChoice("segmented_ring", {"segment": 64})
UNSAFE = (AlgorithmChoice("ring"), SMALL)


def right(
    launcher: Launcher, settings: Mapping[str, str], choices: int, ranks: tuple[int, ...]
) -> dict[tuple[int, int], bool]:
    """(p, number of the choice) -> whether the product was right."""
    cases = [(p, FIRST // MATRIX + i) for p in ranks for i in range(choices)]
    run = launcher.run(
        max(ranks), [str(PROGRAM), json.dumps(cases)], settings=settings, timeout=patience()
    )
    answers = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(cases)
    return {(a["p"], a["matrices"] - FIRST // MATRIX): a["right"] for a in answers}


def stairs(
    choices: tuple[AlgorithmChoice, ...], ranks: tuple[int, ...], operators: str
) -> TuningTable:
    rungs = staircase(choices, FIRST, MATRIX)
    default = [(0, AlgorithmChoice())]
    ladders = {(ALLREDUCE, p, "any"): rungs if operators == "any" else default for p in ranks}
    return table_of(ladders | {(ALLREDUCE, p, operators): rungs for p in ranks})


@pytest.mark.extended
def test_every_safe_choice_of_openmpi(launcher: Launcher, tmp_path: Path) -> None:
    offered = mpi_libraries.openmpi.candidates(ALLREDUCE, 4, FIRST)
    safe = tuple(c for c in offered if mpi_libraries.openmpi.preserves_operand_order(ALLREDUCE, c))
    assert {c.algorithm for c in safe} == {
        "default",
        "linear",
        "nonoverlapping",
        "recursive_doubling",
    }
    rules = tmp_path / "rules.conf"
    rules.write_text(openmpi.emit(stairs(safe, (2, 3, 4), "any")))
    answers = right(launcher, openmpi_activation(rules), len(safe), (2, 3, 4))
    assert answers == dict.fromkeys(answers, True)


@pytest.mark.extended
def test_unsafe_choices_of_openmpi_are_wrong_and_never_emitted(
    launcher: Launcher, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.conf"
    rules.write_text(openmpi.emit(stairs(UNSAFE, (3, 4), "commutative"), commutative_only=True))
    answers = right(launcher, openmpi_activation(rules), len(UNSAFE), (3, 4))
    assert answers == dict.fromkeys(answers, False)
    for choice in UNSAFE:
        assert not mpi_libraries.openmpi.preserves_operand_order(ALLREDUCE, choice)
        with pytest.raises(InputError, match="non-commutative"):
            openmpi.emit(stairs((choice,), (4,), "any"))
    rules.write_text(openmpi.emit(stairs(UNSAFE, (3, 4), "commutative")))
    answers = right(launcher, openmpi_activation(rules), len(UNSAFE), (3, 4))
    assert answers == dict.fromkeys(answers, True)


def test_mpich_guards_keep_the_order(mpich_launcher: Launcher, tmp_path: Path) -> None:
    generic = mpich.read_generic_tree(library_of(mpich_launcher))
    choices = tuple(mpi_libraries.mpich.candidates(ALLREDUCE, 3, FIRST))
    assert {
        c.algorithm
        for c in choices
        if not mpi_libraries.mpich.preserves_operand_order(ALLREDUCE, c)
    } == {"ring", "rabenseifner"}
    for operators in ("commutative", "any"):
        tried = tuple(
            c
            for c in choices
            if operators != "any" or mpi_libraries.mpich.preserves_operand_order(ALLREDUCE, c)
        )
        file = tmp_path / f"{operators}.json"
        file.write_text(mpich.emit(stairs(tried, (2, 3), operators), generic))
        answers = right(mpich_launcher, mpich_activation(file), len(tried), (2, 3))
        assert answers == dict.fromkeys(answers, True)


@pytest.mark.extended
def test_mpich_without_the_guard_is_wrong(mpich_launcher: Launcher, tmp_path: Path) -> None:
    generic = mpich.read_generic_tree(library_of(mpich_launcher))
    text = mpich.emit(stairs((AlgorithmChoice("ring"),), (3,), "commutative"), generic)
    tree = json.loads(text)
    ranks = tree["collective=allreduce"]["comm_type=intra"]["comm_size<=3"]["comm_hierarchy=parent"]
    ruled = ranks[f"avg_msg_size<={FIRST + MATRIX - 1}"]
    ruled["is_commutative=no"] = ruled["is_commutative=yes"]
    file = tmp_path / "unguarded.json"
    file.write_text(json.dumps(tree))
    assert not right(mpich_launcher, mpich_activation(file), 1, (3,))[3, 0]


def library_of(launcher: Launcher) -> Path:
    return launcher.executable.resolve().parents[1] / "lib" / "libmpi.so.12"
