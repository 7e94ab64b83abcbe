"""Traps of the libraries' formats: each is sprung in the real library, and kept out of files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tests.support.trees import SMP
from tests.support.waiting import expiring, patience
from tuner import mpi_libraries
from tuner.base.errors import InputError, ProbeError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.formats import mpich, openmpi
from tuner.formats.mpich import GenericTrees
from tuner.formats.mpich.branches import merge_into_generic
from tuner.formats.mpich.emitter import FAULT_LEAF, leaf_for_rule
from tuner.formats.openmpi.rules import RuleLine, render
from tuner.launch import Launcher
from tuner.mpi_libraries.openmpi import ALGORITHMS
from tuner.mpi_libraries.openmpi_collectives import COLLECTIVES
from tuner.validation import openmpi_trace, validate_mpich, validate_openmpi
from tuner.validation.validation import ValidationCall, run_calls

PROGRAM = Path(__file__).with_name("error_handling_program.py")
BCAST, GATHER, REDUCE = Collective.BCAST, Collective.GATHER, Collective.REDUCE
ALLGATHER, ALLREDUCE, SCATTER = Collective.ALLGATHER, Collective.ALLREDUCE, Collective.SCATTER
FENCE = (RuleLine(0, 0),)


def said(
    launcher: Launcher, rules: Path, *words: str, ranks: int = 3, timeout: float | None = None
) -> dict[str, object]:
    try:
        run = launcher.run(
            ranks,
            [str(PROGRAM), *words],
            settings=validate_openmpi.activation(rules),
            timeout=timeout or patience(),
            check=False,
        )
    except ProbeError:
        return {"error": "hangs", "right": False}
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    return dict(json.loads(lines[-1])) if lines else {"error": run.returncode, "right": False}


@pytest.mark.extended
def test_rules_for_gather_that_depend_on_size_break_programs(
    launcher: Launcher, tmp_path: Path
) -> None:
    """In place the root's send count is 0, the others' 3000: they run different algorithms."""
    rules = tmp_path / "o.rules"
    rows = (RuleLine(0, 1), RuleLine(4096, 2))
    entries = ((0, FENCE), (4, rows), (5, FENCE))
    rules.write_text(render(openmpi.ClassicRules({COLLECTIVES[GATHER].number: entries})))
    assert not said(launcher, rules, "gather", "3000", ranks=4, timeout=expiring(6.0))["right"]
    split = table_of(
        {(GATHER, 4): [(0, AlgorithmChoice("linear")), (4096, AlgorithmChoice("binomial"))]}
    )
    with pytest.raises(InputError, match="hang"):
        openmpi.emit(split)
    rules.write_text(openmpi.emit(table_of({(GATHER, 4): [(0, AlgorithmChoice("binomial"))]})))
    assert said(launcher, rules, "gather", "3000", ranks=4) == {"error": 0, "right": True}


@pytest.mark.extended
def test_rules_for_scatter_that_depend_on_size_break_programs(
    launcher: Launcher, tmp_path: Path
) -> None:
    """The root counts what it sends, the others count nothing: they run different algorithms."""
    rules = tmp_path / "o.rules"
    entries = ((0, FENCE), (4, (RuleLine(0, 1), RuleLine(4096, 2))), (5, FENCE))
    rules.write_text(render(openmpi.ClassicRules({COLLECTIVES[SCATTER].number: entries})))
    assert not said(launcher, rules, "scatter", "3000", ranks=4, timeout=expiring(6.0))["right"]
    with pytest.raises(InputError, match="hang"):
        openmpi.emit(
            table_of(
                {
                    (SCATTER, 4): [
                        (0, AlgorithmChoice("linear")),
                        (4096, AlgorithmChoice("binomial")),
                    ]
                }
            )
        )
    rules.write_text(openmpi.emit(table_of({(SCATTER, 4): [(0, AlgorithmChoice("binomial"))]})))
    assert said(launcher, rules, "scatter", "3000", ranks=4) == {"error": 0, "right": True}


@pytest.mark.extended
def test_allgather_in_place_is_left_to_the_library(launcher: Launcher, tmp_path: Path) -> None:
    """It counts no bytes and would get the rule for the least ones, here an impossible one."""
    rules, table = tmp_path / "o.rules", table_of({(ALLGATHER, 3): [(0, AlgorithmChoice("ring"))]})
    entries = (
        (0, FENCE),
        (3, (RuleLine(0, validate_openmpi.IMPOSSIBLE_ALGORITHM), RuleLine(3000, 4))),
        (4, FENCE),
    )
    rules.write_text(render(openmpi.ClassicRules({COLLECTIVES[ALLGATHER].number: entries})))
    assert not said(launcher, rules, "allgather", "3000")["right"]
    text = openmpi.emit(table)
    assert "0 0 0 0 # default\n1 4 0 0 # ring\n" in text
    rules.write_text(text.replace("\n1 4 0 0", f"\n1 {validate_openmpi.IMPOSSIBLE_ALGORITHM} 0 0"))
    assert said(launcher, rules, "allgather", "3000") == {"error": 0, "right": True}


@pytest.mark.representative("linear")
@pytest.mark.parametrize("name", ALGORITHMS[REDUCE][1:])
def test_order_of_operands_in_reduce(launcher: Launcher, tmp_path: Path, name: str) -> None:
    choice = AlgorithmChoice(name)
    safe = mpi_libraries.openmpi.preserves_operand_order(REDUCE, choice)
    table = table_of(
        {(REDUCE, 3, "commutative"): [(0, choice)], (REDUCE, 3): [(0, AlgorithmChoice())]}
    )
    rules = tmp_path / "o.rules"
    rules.write_text(openmpi.emit(table, commutative_only=True))
    right = safe or name == "rabenseifner"  # which hands such operators to a slower one
    assert said(launcher, rules, "reduce", "512") == {"error": 0, "right": right}
    if not safe:
        with pytest.raises(InputError, match="non-commutative"):
            openmpi.emit(table_of({(REDUCE, 3): [(0, choice)]}))


CHAIN = table_of({(BCAST, 3): [(0, AlgorithmChoice("chain", {"chains": 2}))]})
WORD = openmpi.emit(CHAIN)


BAD = (
    WORD.rsplit("\n", 4)[0],  # truncated
    "# before the version\nrule-file-version-2\n" + WORD,
    json.dumps({"rule_file_version": 3, "module": "tuned", "collectives": {}}),
    WORD.replace("\n0 2 2 0", "\n1 2 2 0"),  # sizes do not begin at 0
)


def executed(
    launcher: Launcher, directory: Path, content: str, **further: str
) -> AlgorithmChoice | None:
    """What a broadcast of 4096 bytes on 3 ranks runs under a rules file."""
    preloaded = openmpi_trace.build_tracer(directory)
    assert preloaded is not None
    rules = directory / "o.rules"
    rules.write_text(content)
    answers = run_calls(
        launcher,
        [ValidationCall(CHAIN.rules[0], 4096)],
        directory,
        settings=validate_openmpi.activation(rules) | further,
        environment={"LD_PRELOAD": str(preloaded)},
    )
    return openmpi_trace.executed_algorithm(BCAST, answers[0])


@pytest.mark.extended
def test_open_mpi_drops_bad_files_without_a_word(launcher: Launcher, tmp_path: Path) -> None:
    ran = [executed(launcher, tmp_path, text) == CHAIN.rules[0].choice for text in (WORD, *BAD)]
    assert ran == [True, *(False for _ in BAD)]
    for content in BAD:
        with pytest.raises(InputError):
            openmpi.parse(content)


MISREAD = {  # a rules file, and what it makes of the call
    "1 7 1 3 2 0 6 0 0 010000 1 0 0": AlgorithmChoice("linear"),  # an octal 4096
    "1 7 1 3 2 0 6 0 0 4k 1 0 0": AlgorithmChoice("linear"),  # from 4 bytes on
    "1 7 1 8 1\n0 6 0 0": AlgorithmChoice(
        "binomial"
    ),  # a smaller communicator gets the first entry
}


@pytest.mark.extended
@pytest.mark.parametrize("text", MISREAD)
def test_open_mpi_misreads_numbers_and_small_communicators(
    launcher: Launcher, tmp_path: Path, text: str
) -> None:
    assert executed(launcher, tmp_path, f"{text}\n") == MISREAD[text]
    if "\n" in text:
        table = table_of({(BCAST, 8): [(0, AlgorithmChoice("binomial"))]})
        assert (
            "on 7 ranks: the table says default, the file binomial" in openmpi.check(table, text)[0]
        )
        assert executed(launcher, tmp_path, openmpi.emit(table)) != AlgorithmChoice("binomial")
    else:
        with pytest.raises(InputError, match="not a plain decimal number"):
            openmpi.parse(text.replace(" 0 6", "\n0 6").replace(" 0 0", " 0 0\n"))


@pytest.mark.extended
def test_a_forced_algorithm_comes_before_the_file(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert executed(launcher, tmp_path, WORD, coll_tuned_bcast_algorithm="6") == AlgorithmChoice(
        "binomial"
    )
    monkeypatch.setenv("OMPI_MCA_coll_tuned_bcast_algorithm", "6")
    with pytest.raises(InputError, match="coll_tuned_bcast_algorithm is set and would decide"):
        validate_openmpi.validate(CHAIN, tmp_path / "o.rules", launcher, tmp_path)


POISONED = """
import mpi4py, numpy as np
mpi4py.rc.thread_level = "single"  # as programs in C have it: shared memory is for them alone
from mpi4py import MPI
data = np.zeros(1024, np.int32)
for part in [data[:2]] * 10 + [data]:
    MPI.COMM_WORLD.Allreduce(part.copy(), part)
"""


@pytest.mark.extended
def test_what_comes_before_a_file_of_mpich(
    mpich_launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Device collectives and forced algorithms; a leaf that ends the program shows who decides."""
    generic = mpich.read_generic_tree(mpich_launcher.libmpi())
    doubling = [(0, AlgorithmChoice()), (4096, AlgorithmChoice("recursive_doubling"))]
    table = table_of({(ALLREDUCE, 2): doubling}, library="mpich 5.0.2")
    file = tmp_path / "m.json"
    file.write_text(mpich.emit(table, generic))
    poisoned = tmp_path / "poisoned.json"
    tree = merge_into_generic(
        table, generic, lambda rule: FAULT_LEAF if rule.start_bytes else leaf_for_rule(rule)
    )
    poisoned.write_text(json.dumps(tree))
    own = validate_mpich.activation(poisoned)

    def lives(settings: dict[str, str]) -> bool:
        run = mpich_launcher.run(
            2, ["-c", POISONED], settings=settings, timeout=patience(), check=False
        )
        return run.returncode == 0

    assert not lives(own)
    assert lives(own | {"MPIR_CVAR_DEVICE_COLLECTIVES": "percoll"})
    assert lives(own | {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "recursive_doubling"})
    monkeypatch.setenv("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "recursive_doubling")
    with pytest.raises(InputError, match="ALLREDUCE_INTRA_ALGORITHM is set and would decide"):
        validate_mpich.validate(table, file, GenericTrees(generic), mpich_launcher, tmp_path)


def test_mpich_aborts_on_incomplete_files_and_has_a_hierarchy_on_one_host(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    generic = mpich.read_generic_tree(mpich_launcher.libmpi())
    table = table_of({(BCAST, 2): [(0, AlgorithmChoice("binomial"))]}, library="mpich 5.0.2")
    whole = json.loads(mpich.emit(table, generic))
    part = json.dumps({"collective=bcast": whole["collective=bcast"]})
    assert "'collective=barrier' is missing" in mpich.check(table, part, generic)
    barrier = {"comm_hierarchy=parent": SMP, "comm_hierarchy=any": whole["collective=barrier"]}
    layered = json.dumps({**whole, "collective=barrier": barrier})
    file = tmp_path / "m.json"
    for text, lives in ((json.dumps(whole), True), (part, False), (layered, False)):
        file.write_text(text)
        run = mpich_launcher.run(
            2,
            ["-c", "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"],
            timeout=patience(),
            settings=validate_mpich.activation(file),
            check=False,
        )
        assert (run.returncode == 0) == lives
        assert (validate_mpich.FAULT_MESSAGE.search(run.stderr) is not None) == (text == layered)


def test_ranks_that_die_are_told_of(mpich_launcher: Launcher, tmp_path: Path) -> None:
    """An abort in MPI_Init is a ProbeError, not silence."""
    file = tmp_path / "m.json"
    file.write_text('{"collective=bcast": {"algorithm=MPIR_Bcast_intra_binomial": {}}}')
    with pytest.raises(ProbeError):
        mpich_launcher.run(
            2,
            ["-c", "from mpi4py import MPI"],
            timeout=patience(),
            settings=validate_mpich.activation(file),
        )
