"""Validation against the real libraries: it confirms good files and notices wrong ones."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.ladders import Rungs, staircase, table_of
from tests.support.launches import Untuned
from tests.support.waiting import patience
from tuner import mpi_libraries
from tuner.base import c_compiler
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable, write_table
from tuner.formats import mpich, openmpi
from tuner.formats.mpich import GenericTrees
from tuner.launch import Launcher
from tuner.mpi_libraries.openmpi import ALGORITHMS
from tuner.mpi_libraries.openmpi_collectives import COLLECTIVES
from tuner.mpi_libraries.openmpi_rule_numbers import canonical_choice
from tuner.probe.probed_machine import local_cluster
from tuner.validation import openmpi_trace, validate_mpich, validate_openmpi
from tuner.validation.validate_openmpi import activation
from tuner.validation.validation import RuleValidation, empty_call_failures
from tuner.workflows import validation
from tuner.workflows.acceptance import prepare_side

BCAST, ALLREDUCE, BARRIER = Collective.BCAST, Collective.ALLREDUCE, Collective.BARRIER
ALLTOALL = Collective.ALLTOALL
CHAIN = AlgorithmChoice("chain", {"chains": 2, "segment": 512})
TABLE = table_of(
    {
        (BCAST, 4): [
            (0, AlgorithmChoice()),
            (1024, CHAIN),
            (65536, AlgorithmChoice("scatter_allgather_ring")),
        ],
        (BCAST, 3): [(0, AlgorithmChoice("linear"))],
        (ALLREDUCE, 4): [(0, AlgorithmChoice("recursive_doubling")), (4096, AlgorithmChoice())],
    },
    probed=(64, 2048, 1 << 17),
)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.conf"
    file.write_text(openmpi.emit(TABLE))
    return file


def commutative_table(ladders: Mapping[tuple[Collective, int], Rungs]) -> TuningTable:
    """The ladders as rules for commutative operators, the default for all others."""
    safe = {
        key: rungs if key[0] is BCAST else [(0, AlgorithmChoice())]
        for key, rungs in ladders.items()
    }
    return table_of(safe | {(*key, "commutative"): rungs for key, rungs in ladders.items()})


def validations_of(table: TuningTable, launcher: Launcher, directory: Path) -> list[RuleValidation]:
    file = directory / "rules.conf"
    file.write_text(openmpi.emit(table, commutative_only=True))
    return validate_openmpi.validate(table, file, launcher, directory, commutative_only=True)


@pytest.mark.extended
def test_every_candidate_runs_under_its_own_name(launcher: Launcher, tmp_path: Path) -> None:
    """Each candidate gets eight bytes of the size range to itself: all in one launch."""
    start = 1 << 18
    ladders = {
        (c, p): staircase(mpi_libraries.openmpi.candidates(c, p, start), start, 8)
        for c in (BCAST, ALLREDUCE)
        for p in (2, 3, 4)
    }
    validations = validations_of(commutative_table(ladders), launcher, tmp_path)
    assert [str(each) for each in validations if not each.confirmed] == []
    chosen = [validation for validation in validations if not validation.rule.choice.is_default]
    assert {validation.rule.choice.algorithm for validation in chosen} == {
        name
        for c in (BCAST, ALLREDUCE)
        for name in mpi_libraries.openmpi.ALGORITHMS[c]
        if name != "default"
    }
    for one in chosen:
        assert set(one.executed) == {canonical_choice(one.rule.key.collective, one.rule.choice)}


REDIRECTED = [
    (BCAST, 8, AlgorithmChoice("scatter_allgather"), "linear"),
    (BCAST, 12, AlgorithmChoice("scatter_allgather_ring"), "linear"),
    (BCAST, 1000, AlgorithmChoice("split_binary", {"segment": 512}), "chain"),
    (ALLREDUCE, 8, AlgorithmChoice("ring"), "recursive_doubling"),
    (ALLREDUCE, 12, AlgorithmChoice("rabenseifner"), "linear"),
    (ALLREDUCE, 1024, AlgorithmChoice("segmented_ring", {"segment": 512}), "ring"),
]


@pytest.mark.extended
def test_redirections_are_known_and_seen(launcher: Launcher, tmp_path: Path) -> None:
    ladders: dict[tuple[Collective, int], list[tuple[int, AlgorithmChoice]]] = {}
    for collective, nbytes, choice, _ in REDIRECTED:
        ladders.setdefault((collective, 4), [(0, AlgorithmChoice())]).append((nbytes, choice))
    for ladder in ladders.values():
        ladder.append((1028, AlgorithmChoice()))
    validations = validations_of(commutative_table(ladders), launcher, tmp_path)
    for collective, nbytes, choice, instead in REDIRECTED:
        validation = next(
            validation for validation in validations if validation.rule.choice == choice
        )
        assert validation.executed[0].algorithm == instead
        assert not validation.confirmed
        assert f"{choice.algorithm} runs as {instead} because" in validation.reason
        assert choice not in mpi_libraries.openmpi.candidates(collective, 4, nbytes)


@pytest.mark.extended
def test_watching_confirms_a_good_file(launcher: Launcher, tmp_path: Path, rules: Path) -> None:
    validations = validate_openmpi.validate(TABLE, rules, launcher, tmp_path)
    assert len(validations) == len(TABLE.rules)
    assert [str(each) for each in validations if not each.confirmed] == []


def test_every_rule_of_a_table_is_proved_in_a_file_that_holds_it(
    launcher: Launcher, tmp_path: Path
) -> None:
    """A file is for one class of operators: those for commutative ones alone were not tried."""
    ring = [(0, AlgorithmChoice()), (4096, AlgorithmChoice("ring"))]
    table = commutative_table({(BCAST, 4): [(0, CHAIN)], (ALLREDUCE, 4): ring})
    file = tmp_path / "rules.conf"
    file.write_text(openmpi.emit(table))
    said = validation.validate_file(table, launcher.python, file, lambda *_: None, launcher)
    assert len(said) == len(table.rules)
    assert [validation for validation in said if not validation["confirmed"]] == []
    assert "ring" in {p["executed"] for p in said if p["operators"] == "commutative"}


@pytest.mark.extended
def test_the_status_says_whether_every_rule_was_confirmed(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No call of 3 ranks gathers 4097 bytes, and too small a broadcast is not scattered."""
    cluster, file = local_cluster(), str(tmp_path / "t.json")
    good: dict[tuple[Collective, int], Rungs] = {(BCAST, 3): [(0, AlgorithmChoice("linear"))]}
    ring, bruck = AlgorithmChoice("ring"), AlgorithmChoice("bruck")
    unreached: Rungs = [(0, bruck), (4097, ring), (4098, bruck)]
    for ladders, status, cautions, counted in (
        (good, 0, [], "1 of 1 rule"),
        (
            good | {(Collective.ALLGATHER, 3): unreached},
            1,
            ["caution: 1 rule is not tried."],
            "3 of 4 rules",
        ),
        (
            good | {(BCAST, 4): [(0, AlgorithmChoice("scatter_allgather"))]},
            1,
            ["caution: 1 rule is refuted: the library executed something else."],
            "1 of 2 rules",
        ),
    ):
        rules = table_of(ladders, (64,)).rules
        write_table(TuningTable(cluster, launcher.version(), rules), Path(file))
        assert main(["table", "validate", file, "--python", str(launcher.python)]) == status
        _, _, said = capsys.readouterr().out.rpartition("\n\n")
        assert said.splitlines() == [*cautions, f"{counted} confirmed in {launcher.version()}"]


def test_a_table_of_localhost_is_one_of_this_computer(launcher: Launcher, tmp_path: Path) -> None:
    """Tables are for it that `tuner tune --hosts localhost` makes."""
    cluster, file = replace(local_cluster(), name="localhost"), tmp_path / "t.json"
    rules = table_of({(BCAST, 3): [(0, AlgorithmChoice("linear"))]}, (64,)).rules
    write_table(TuningTable(cluster, launcher.version(), rules), file)
    assert main(["table", "validate", str(file), "--python", str(launcher.python)]) == 0


def test_an_interpreter_that_answers_nothing_proves_nothing(
    launcher: Launcher,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(launcher.python.parent), prepend=os.pathsep)
    rules = table_of({(BCAST, 3): [(0, AlgorithmChoice("linear"))]}, (64,)).rules
    file = tmp_path / "t.json"
    write_table(TuningTable(local_cluster(), launcher.version(), rules), file)
    assert main(["table", "validate", str(file), "--python", "/bin/true"]) == 1
    said = capsys.readouterr()
    assert "/bin/true did not say which MPI it has" in said.err
    assert said.out == ""


@pytest.mark.extended
def test_poisoned_rows_confirm_a_good_file_without_a_compiler(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c_compiler, "COMPILERS", ("no-such-compiler",))
    table = table_of({(BCAST, 3): [(0, AlgorithmChoice()), (1024, AlgorithmChoice("linear"))]})
    rules = tmp_path / "rules.conf"
    rules.write_text(openmpi.emit(table))
    good = validate_openmpi.validate(table, rules, launcher, tmp_path)
    assert [validation.confirmed for validation in good] == [True, True]
    bad = validate_openmpi.validate(table, rules, Untuned(launcher), tmp_path)
    assert "[1024] bytes do not reach this rule" in bad[1].reason


@pytest.mark.extended
@pytest.mark.parametrize(
    ("collective", "algorithms"),
    [
        (Collective.ALLGATHER, ("bruck", "ring")),
        (Collective.ALLTOALL, ("bruck", "pairwise")),
        (Collective.REDUCE, ("linear", "in_order_binary")),
    ],
)
def test_bounds_of_other_collectives_are_where_the_library_has_them(
    launcher: Launcher, tmp_path: Path, collective: Collective, algorithms: tuple[str, str]
) -> None:
    """Bytes of the whole buffer: 4096 of an allgather on 3 ranks are 1365 and a third for each."""
    first, second = map(AlgorithmChoice, algorithms)
    table = table_of({(collective, 3): [(0, first), (4096, second)]}, probed=(300, 9000))
    rules = tmp_path / "rules.conf"
    rules.write_text(openmpi.emit(table))
    validations = validate_openmpi.validate(table, rules, launcher, tmp_path)
    assert [validation.reason for validation in validations] == ["", ""]
    near = {n for validation in validations for n in validation.sizes if 4090 < n < 4100}
    assert near == ({4095, 4098} if collective.has_blocks else {4095, 4096})


@pytest.mark.extended
def test_every_algorithm_of_an_all_to_all_is_proved(launcher: Launcher, tmp_path: Path) -> None:
    limited = AlgorithmChoice("spread_out", {"requests": 2})
    plain = [AlgorithmChoice(name) for name in ALGORITHMS[ALLTOALL] if name != "two_proc"]
    rungs = [(4096 * at, choice) for at, choice in enumerate([*plain, limited])]
    table = table_of({(ALLTOALL, 2): [(0, AlgorithmChoice("two_proc"))], (ALLTOALL, 4): rungs})
    rules = tmp_path / "rules.conf"
    rules.write_text(openmpi.emit(table))
    validations = validate_openmpi.validate(table, rules, launcher, tmp_path)
    assert [validation.reason for validation in validations] == [""] * (len(plain) + 2)


@pytest.mark.extended
def test_every_algorithm_of_a_barrier_is_proved(launcher: Launcher, tmp_path: Path) -> None:
    names = ALGORITHMS[BARRIER]
    ladders = {
        (BARRIER, 2): [(0, AlgorithmChoice("two_proc"))],
        **{
            (BARRIER, p): [(0, AlgorithmChoice(name))]
            for p, name in enumerate((one for one in names if one != "two_proc"), start=3)
        },
    }
    table = table_of(ladders)
    rules = tmp_path / "rules.conf"
    rules.write_text(openmpi.emit(table))
    validations = validate_openmpi.validate(table, rules, launcher, tmp_path)
    assert [validation.reason for validation in validations] == [""] * len(names)


REACHED = [  # collective, ranks, choice, the reason
    (Collective.ALLGATHER, AlgorithmChoice("recursive_doubling"), "runs as bruck because 3 ranks"),
    (
        Collective.REDUCE,
        AlgorithmChoice("rabenseifner"),
        "runs as linear because 1 elements are fewer",
    ),
]


@pytest.mark.extended
@pytest.mark.parametrize(("collective", "choice", "reason"), REACHED)
def test_a_rule_that_is_reached_is_not_proved_by_that(
    launcher: Launcher, tmp_path: Path, collective: Collective, choice: AlgorithmChoice, reason: str
) -> None:
    """Poison shows which rule a call reaches, and not what its algorithm makes of the call."""
    (validation,) = validations_of(
        table_of({(collective, 3): [(0, choice)]}, (300,)), launcher, tmp_path
    )
    assert not validation.confirmed
    assert reason in validation.reason


def test_operators_that_do_not_commute_are_tried_too(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule for any operator whose algorithm hands some of them to another one."""
    changed = replace(COLLECTIVES[ALLREDUCE], commutative_only=())
    monkeypatch.setattr(mpi_libraries.openmpi, "COLLECTIVES", {**COLLECTIVES, ALLREDUCE: changed})
    table = table_of({(ALLREDUCE, 3): [(0, AlgorithmChoice("rabenseifner"))]}, (64,))
    file = tmp_path / "r"
    file.write_text(openmpi.emit(table))
    (validation,) = validate_openmpi.validate(table, file, launcher, tmp_path)
    assert not validation.confirmed
    said = "at 64 bytes, with an operator that does not commute, linear ran instead of rabenseifner"
    assert said in validation.reason


@pytest.mark.extended
def test_files_of_parameters_decide_nothing_unseen(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A radix set there is noticed, and other rules there are not taken for the default."""
    old, file, parameters = (tmp_path / name for name in ("old", "rules", "parameters"))
    old.write_text(openmpi.emit(table_of({(BCAST, 4): [(0, AlgorithmChoice("linear"))]})))
    table = table_of(
        {(BCAST, 4): [(0, AlgorithmChoice()), (4096, AlgorithmChoice("knomial"))]}, (64, 8192)
    )
    file.write_text(openmpi.emit(table))
    parameters.write_text(
        f"coll_tuned_use_dynamic_rules = 1\ncoll_tuned_dynamic_rules_filename = {old}\n"
        f"{mpi_libraries.openmpi.RADIX_VARIABLE} = 2\n"
    )
    monkeypatch.setenv("OMPI_MCA_mca_base_param_files", str(parameters))
    default, knomial = validate_openmpi.validate(table, file, launcher, tmp_path)
    assert default.confirmed
    assert "knomial(radix=2) ran instead of knomial(radix=4)" in knomial.reason


@pytest.mark.extended
def test_a_default_that_nobody_saw_is_not_confirmed(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without coll/tuned no call reaches the file, with or without it."""
    file, parameters = tmp_path / "rules", tmp_path / "parameters"
    table = table_of({(BCAST, 2): [(0, AlgorithmChoice())]}, (64,))
    file.write_text(openmpi.emit(table))
    parameters.write_text("coll = ^tuned\n")
    monkeypatch.setenv("OMPI_MCA_mca_base_param_files", str(parameters))
    (default,) = validate_openmpi.validate(table, file, launcher, tmp_path)
    assert not default.confirmed
    assert "another component than coll/tuned answered the call, without the file" in default.reason


@pytest.mark.extended
@pytest.mark.parametrize("library", ["openmpi", "mpich"])
def test_every_algorithm_survives_calls_without_data(
    library: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The rules are all that a table may have for calls of 0 bytes."""
    name = "launcher" if library == "openmpi" else "mpich_launcher"
    launcher: Launcher = request.getfixturevalue(name)
    known = mpi_libraries.library_module(launcher.version())
    for number in range(max(map(len, known.ALGORITHMS.values()))):
        choices = {
            collective: AlgorithmChoice([*names][number % len(names)])
            for collective, names in known.ALGORITHMS.items()
        }
        table = table_of(
            {
                (collective, p): [(0, choice)]
                for collective, choice in choices.items()
                for p in (2, 3, 4)
                if known.is_expressible(collective, choice)
                and known.preserves_operand_order(collective, choice)
                and (choice.algorithm != "two_proc" or p == 2)
            },
            library=launcher.version(),
        )
        side = prepare_side(table, "any", launcher, tmp_path)
        settings = {**side.settings, **side.environment}
        assert empty_call_failures(launcher, table.rules, tmp_path, settings=settings) == {}


def test_a_call_without_data_that_ends_the_program_is_traced_to_its_rule(
    launcher: Launcher, tmp_path: Path
) -> None:
    """The second of three rules has an algorithm that divides by the size of the datatype."""
    linear = [(0, AlgorithmChoice("linear"))]
    table = table_of(
        {(ALLREDUCE, 3): linear, (BCAST, 3): linear, (BCAST, 4): linear, (BCAST, 2): linear}
    )
    file = tmp_path / "ending.rules"
    file.write_text(
        "1\n7\n3\n0\n1\n0 1 0 0\n3\n1\n0 4 0 1024\n4\n1\n0 1 0 0\n"
    )  # split_binary on 3 ranks, linear on others
    failed = empty_call_failures(launcher, table.rules, tmp_path, settings=activation(file))
    assert {(str(rule.key.collective), rule.key.p): why for rule, why in failed.items()} == {
        ("bcast", 3): "a call without data ends the program or never returns"
    }


def test_a_file_that_is_not_followed_is_noticed(
    launcher: Launcher, tmp_path: Path, rules: Path
) -> None:
    validations = validate_openmpi.validate(TABLE, rules, Untuned(launcher), tmp_path)
    chain = next(validation for validation in validations if validation.rule.choice == CHAIN)
    assert not chain.confirmed
    assert "at 1024 bytes" in chain.reason


def test_the_file_of_another_table_is_refused(
    launcher: Launcher, tmp_path: Path, rules: Path
) -> None:
    other = TuningTable(
        TABLE.cluster,
        TABLE.library,
        tuple(
            replace(rule, choice=AlgorithmChoice("binomial"))
            if rule.key.collective is BCAST
            else rule
            for rule in TABLE.rules
        ),
    )
    with pytest.raises(InputError, match=r"rules\.conf: not the file of this table: bcast of"):
        validate_openmpi.validate(other, rules, launcher, tmp_path)


def test_one_launch_shows_default_and_tuned(
    launcher: Launcher, tmp_path: Path, rules: Path
) -> None:
    """The variable decides for each new communicator, which the dispatcher rests on."""
    preloaded = openmpi_trace.build_tracer(tmp_path)
    assert preloaded is not None
    program = tmp_path / "switch.py"
    program.write_text(
        "import json, numpy as np\n"
        "from mpi4py import MPI\n"
        "from tuner.runtime.algorithm_control import AlgorithmControl\n"
        "from tuner.rank_programs.validate import observed_calls, watch_communicator\n"
        "forcing = AlgorithmControl('openmpi', MPI.COMM_WORLD)\n"
        "arms = [{'coll_tuned_use_dynamic_rules': on} for on in (0, 1)]\n"
        "comms = [forcing.communicator(arm) for arm in arms]\n"
        "for comm in comms * 2:\n"
        "    watch_communicator(comm)\n"
        "    observed_calls()\n"
        "    comm.Bcast(np.zeros(1024, np.uint8))\n"
        "    if comm.rank == 0: print(json.dumps(observed_calls()), flush=True)\n"
    )
    run = launcher.run(
        4,
        [str(program)],
        settings=validate_openmpi.activation(rules),
        environment={"LD_PRELOAD": str(preloaded)},
        timeout=patience(),
    )
    default, tuned, *again = [json.loads(line) for line in run.stdout.splitlines()]
    assert tuned == [[1, 7, 2, 2, 512, 2, 2]]  # its own, bcast, chain, 2 chains, bytes, chain, 2
    assert default != tuned
    assert again == [default, tuned]


MPICH_TABLE = table_of(
    {
        (BCAST, 2): [
            (0, AlgorithmChoice()),
            (1024, AlgorithmChoice("pipeline", {"segment": 512})),
            (4096, AlgorithmChoice("binomial")),
        ],
        (ALLTOALL, 3): [
            (0, AlgorithmChoice("bruck")),
            (3072, AlgorithmChoice("spread_out")),
            (30000, AlgorithmChoice("pairwise_exchange")),
            (1 << 20, AlgorithmChoice()),
        ],
        (BARRIER, 2): [(0, AlgorithmChoice("recursive_doubling"))],
        (ALLREDUCE, 2): [(0, AlgorithmChoice("recursive_doubling"))],
        (ALLREDUCE, 2, "commutative"): [
            (0, AlgorithmChoice("rabenseifner")),
            (2048, AlgorithmChoice("ring")),
        ],
    },
    probed=(64, 2048, 16384),
    library="mpich 5.0.2",
)


def test_poisoned_leaves_confirm_mpich_rules(mpich_launcher: Launcher, tmp_path: Path) -> None:
    library = mpich_launcher.executable.resolve().parents[1] / "lib" / "libmpi.so.12"
    generic = mpich.read_generic_tree(library)
    file = tmp_path / "tuning.json"
    file.write_text(mpich.emit(MPICH_TABLE, generic))
    validations = validate_mpich.validate(
        MPICH_TABLE, file, GenericTrees(generic), mpich_launcher, tmp_path
    )
    assert len(validations) == len(MPICH_TABLE.rules)
    assert [str(each) for each in validations if not each.confirmed] == []


@pytest.mark.extended
def test_mpich_rules_that_are_not_reached_are_noticed(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    library = mpich_launcher.executable.resolve().parents[1] / "lib" / "libmpi.so.12"
    generic = mpich.read_generic_tree(library)
    file = tmp_path / "tuning.json"
    file.write_text(mpich.emit(MPICH_TABLE, generic))
    validations = validate_mpich.validate(
        MPICH_TABLE, file, GenericTrees(generic), Untuned(mpich_launcher), tmp_path
    )
    assert not any(p.confirmed for p in validations if p.rule.choice.algorithm == "pipeline")
