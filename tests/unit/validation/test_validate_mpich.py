"""Validation of MPICH's file: the calls that it makes, and its conclusions, on made-up ranks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.ladders import table_of
from tests.support.trees import GENERIC, Node
from tuner.base.errors import InputError, LaunchTimeoutError, ProbeError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable, write_table
from tuner.formats import mpich
from tuner.formats.mpich import GenericTrees
from tuner.formats.mpich.emitter import FAULT_LEAF
from tuner.launch import CompletedRun
from tuner.report.summary import NOT_IN_VALIDATED_FILE
from tuner.validation import validate_mpich
from tuner.validation.validate_mpich import FAILED_IN_SETUP, UNEXPLAINED, validate
from tuner.validation.validation import NO_CALL_SIZE, RuleValidation
from tuner.workflows import native_files, validation

BCAST = Collective.BCAST
FILE = "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE"
SAID = """Assertion failed in file /mpich-5.0.2/src/mpi/coll/mpir_coll.c at line 375: 0
libmpi.so.12(+0x4627a1) [0x7f153ea627a1]
Abort(1) on node 0: Internal error
"""


@dataclass
class Ranks:
    """Ranks that read the file as MPICH does and die where it says so; `launches` of them.

    lasting     launches until their host is lost
    lost        after how many answers launches end without a word, by their number from 1 on
    deaf        they never read a file
    hungry      they die for want of memory in calls of so many bytes, in launches where they may
    errors      the MPI error class of calls of so many bytes
    waiting     their launcher waits for ever where they die
    making      bytes of the broadcasts with which their library makes a communicator
    """

    library: str = "mpich"
    python: Path = Path("python")
    launches: list[int] = field(default_factory=list)
    lasting: int = 1_000_000
    lost: Mapping[int, int] = field(default_factory=dict)
    deaf: bool = False
    hungry: int = 0
    errors: Mapping[int, int] = field(default_factory=dict)
    waiting: bool = False
    making: tuple[int, ...] = ()

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
        tree = json.loads(Path((settings or {})[FILE]).read_text())
        self.launches.append(ranks)
        if len(self.launches) > self.lasting:
            if check:
                raise ProbeError("host node1 was lost")
            return CompletedRun(255, "", "")
        calls = json.loads(Path(arguments[-1]).read_text())
        own = [{**calls[-1], "collective": "bcast", "nbytes": n} for n in self.making]
        if any(self.meets(tree, call) for call in own):
            return self.ended(SAID)
        if on_line:
            on_line(json.dumps({"calls": len(calls)}))
        for number, call in enumerate(calls):
            if self.lost.get(len(self.launches)) == number:
                return CompletedRun(255, "", "")
            if self.meets(tree, call):
                return self.ended(SAID)
            if self.hungry and call["nbytes"] == self.hungry and not check:
                return self.ended("MemoryError")
            error = self.errors.get(call["nbytes"], 0)
            if on_line:
                on_line(json.dumps({"call": number, "error": error, "executed": [], "entered": []}))
        return CompletedRun(0, "", "")

    def meets(self, tree: Node, call: Mapping[str, Any]) -> bool:
        """Whether a call leads to the poison."""
        made = mpich.CselCall(call["nodes"] * call["ppn"], call["nbytes"], ppn=call["ppn"])
        leaf = mpich.decide(tree, Collective(call["collective"]), made)
        return leaf == FAULT_LEAF and not self.deaf

    def ended(self, said: str) -> CompletedRun:
        """After a death."""
        if self.waiting:
            raise LaunchTimeoutError("the ranks fell silent", said)
        return CompletedRun(1, "", said)


def validated(table: TuningTable, ranks: Ranks, place: Path) -> list[RuleValidation]:
    file = place / "m.json"
    file.write_text(mpich.emit(table, GENERIC))
    return validate(table, file, GenericTrees(GENERIC), ranks, place)


def test_shapes_that_share_a_leaf_are_tried_once(tmp_path: Path) -> None:
    """Each launch is poisoned where a rule of one shape leads, and so do those of the others."""
    made = table_of(
        {(BCAST, 4): [(0, AlgorithmChoice()), (4096, AlgorithmChoice("binomial"))]}, (64, 65536)
    )
    rules = tuple(
        replace(rule, key=replace(rule.key, nodes=nodes, ppn=4 // nodes))
        for nodes in (2, 4)
        for rule in made.rules
    )
    table, ranks = TuningTable(made.cluster, "mpich 5.0.2", rules), Ranks()
    validations = validated(table, ranks, tmp_path)
    assert {validation.rule for validation in validations} == set(table.rules)
    assert [validation.reason for validation in validations] == [""] * 4
    assert len(ranks.launches) == 3  # the first is under the file itself


LADDER = [
    (0, AlgorithmChoice()),
    (1024, AlgorithmChoice("binomial")),
    (4096, AlgorithmChoice()),
    (9000, AlgorithmChoice("binomial")),
]


def test_ranks_that_answer_no_more_end_the_proof_and_keep_what_was_proved(tmp_path: Path) -> None:
    """A launch that died without a word looked like the work of another rule's poison."""
    table, ranks = table_of({(BCAST, 4): LADDER}, (64, 65536)), Ranks(lasting=3)
    validations = validated(table, ranks, tmp_path)
    assert [validation.confirmed for validation in validations] == [True, True, False, False]
    assert [validation.reason for validation in validations[2:]] == [
        "not tried: host node1 was lost"
    ] * 2
    assert [validation.sizes for validation in validations[2:]] == [(), ()]
    assert len(ranks.launches) == 3 + 3


def test_ranks_that_never_answer_are_said_so(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="host node1 was lost"):
        validated(table_of({(BCAST, 4): LADDER}, (64, 65536)), Ranks(lasting=0), tmp_path)


@pytest.mark.parametrize("lost", [{3: 0}, {3: 2}, {5: 1}])
def test_a_launch_that_was_lost_is_made_again(lost: Mapping[int, int], tmp_path: Path) -> None:
    table, ranks = table_of({(BCAST, 4): LADDER}, (64, 65536)), Ranks(lost=lost)
    assert [validation.reason for validation in validated(table, ranks, tmp_path)] == [""] * 4
    assert len(ranks.launches) == 1 + 4 + 1


def test_launches_that_all_end_differently_are_no_evidence(tmp_path: Path) -> None:
    """Nor do they confirm a rule: one called when communicators are made looks the same."""
    ranks = Ranks(lost={3: 0, 4: 1, 5: 2})
    validations = validated(table_of({(BCAST, 4): LADDER}, (64, 65536)), ranks, tmp_path)
    assert [validation.confirmed for validation in validations] == [True, False, True, True]
    assert validations[1].sizes == ()
    assert validations[1].reason == "three launches under the same file ended differently"


def test_a_rule_for_no_byte_at_all_is_not_tried(tmp_path: Path) -> None:
    table = table_of(
        {(BCAST, 4): [(0, AlgorithmChoice()), (1, AlgorithmChoice("binomial"))]}, (64,)
    )
    none, some = validated(table, Ranks(), tmp_path)
    assert (none.confirmed, none.sizes, none.reason) == (False, (), NO_CALL_SIZE)
    assert some.confirmed


@pytest.mark.parametrize("waiting", [False, True])
def test_a_launcher_that_waits_for_ever_says_as_much(waiting: bool, tmp_path: Path) -> None:
    table, ranks = table_of({(BCAST, 4): LADDER}, (64, 65536)), Ranks(waiting=waiting)
    assert [validation.reason for validation in validated(table, ranks, tmp_path)] == [""] * 4


def test_a_library_that_reads_no_file_confirms_nothing(tmp_path: Path) -> None:
    table, ranks = table_of({(BCAST, 4): LADDER}, (64, 65536)), Ranks(deaf=True)
    validations = validated(table, ranks, tmp_path)
    assert [validation.confirmed for validation in validations] == [False] * 4
    assert all("bytes does not reach this rule" in validation.reason for validation in validations)


@pytest.mark.parametrize("waiting", [False, True])
def test_a_death_that_the_library_says_nothing_of_confirms_nothing(
    waiting: bool, tmp_path: Path
) -> None:
    """Whoever dies in the rule's own call, or is slow there, looked as if it met the poison."""
    table = table_of({(BCAST, 4): [(0, AlgorithmChoice()), (1024, AlgorithmChoice("binomial"))]})
    ranks = Ranks(deaf=True, hungry=1024, waiting=waiting)
    validations = validated(table, ranks, tmp_path)
    assert [(validation.reason, validation.sizes) for validation in validations] == [
        (UNEXPLAINED, ())
    ] * 2


@pytest.mark.parametrize(
    ("making", "tried"), [((4,), [4096, 1023, 1024]), ((4, 1023, 1024, 4096), [])]
)
def test_ranks_that_die_before_any_call_confirm_nothing(
    making: tuple[int, ...], tried: list[int], tmp_path: Path
) -> None:
    """The library's own calls while it makes a communicator meet the poison as the rule's do: its
    own call is told from them by its size, and a rule without one of another size is not tried."""
    ladders = {(BCAST, 3): [(0, AlgorithmChoice("binomial"))], (BCAST, 4): LADDER[:2]}
    validations = validated(table_of(ladders), Ranks(making=making), tmp_path)
    assert [n for validation in validations for n in validation.sizes] == tried
    assert [validation.reason for validation in validations] == [
        "" if tried else FAILED_IN_SETUP
    ] * 3


def test_calls_that_fail_under_the_file_itself_confirm_nothing(tmp_path: Path) -> None:
    table, ranks = table_of({(BCAST, 4): LADDER}, (64, 65536)), Ranks(errors={4096: 15})
    validations = {
        validation.rule.start_bytes: validation for validation in validated(table, ranks, tmp_path)
    }
    assert [lo for lo, validation in validations.items() if validation.confirmed] == [0, 1024, 9000]
    assert validations[4096].reason == "a call of 4096 bytes fails with MPI error class 15"
    assert validations[4096].sizes == (4096,)


@pytest.mark.parametrize("name", [FILE, "MPICH_BCAST_INTRA_ALGORITHM"])
def test_what_comes_before_a_file_is_to_be_unset(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "/nothere")
    with pytest.raises(InputError, match=f"{name} is set and would decide for every launch"):
        validated(table_of({(BCAST, 4): LADDER}), Ranks(), tmp_path)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`tuner table validate` of a table, with such ranks."""
    monkeypatch.setattr(mpich, "read_generic_tree", lambda *_: GENERIC)
    monkeypatch.setattr(validate_mpich, "read_generic_trees", lambda _: GenericTrees(GENERIC))
    monkeypatch.setattr(validation, "local_launcher", lambda *_: Ranks())
    for place in (validate_mpich, native_files):
        monkeypatch.setattr(place, "loaded_libmpi", lambda *_: Path("libmpi.so"))
    file = tmp_path / "t.json"

    def run(table: TuningTable, *words: str) -> int:
        write_table(table, file)
        return main(["table", "validate", str(file), *words])

    return run


def test_a_rule_that_the_file_cannot_hold_is_not_confirmed(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """The default stands in its place, which was proved under the rule's name."""
    rungs = [(0, AlgorithmChoice("chain", {"chains": 2})), (1024, AlgorithmChoice("binomial"))]
    table = table_of({(BCAST, 2): rungs}, library="mpich 5.0.2")
    assert command(table, "--json") == 0
    said = {
        validation["expected"]: validation for validation in json.loads(capsys.readouterr().out)
    }
    assert said["binomial"]["confirmed"]
    lost = said["chain(chains=2)"]
    assert (lost["confirmed"], lost["sizes"], lost["reason"]) == (False, [], NOT_IN_VALIDATED_FILE)
    assert command(table) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "caution: 1 rule is not in the validated file: there the library decides.",
        "1 of 2 rules confirmed in mpich 5.0.2",
    ]


def test_nothing_is_started_where_a_variable_names_another_file(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(native_files, "loaded_libmpi")
    monkeypatch.setenv(FILE, "/nothere")
    assert command(table_of({(BCAST, 2): [(0, AlgorithmChoice())]}, library="mpich 5.0.2")) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith(f"tuner: {FILE} is set and would decide for every launch: unset it")


@pytest.mark.parametrize("words", [(), ("--hosts", "a,b")])
def test_of_a_table_without_rules_nothing_is_proved(
    words: Sequence[str], command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(table_of({}, library="mpich 5.0.2"), *words) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith("the table has no rules, so there is nothing to validate")
