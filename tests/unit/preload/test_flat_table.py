"""The flat file of a table holds the decisions that the dispatcher in Python makes."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.ladders import CLUSTER, Rungs, table_of
from tuner.algorithms import build
from tuner.base.arrays import AnyArray
from tuner.core.collective import Collective
from tuner.core.rank_plan import InstructionKind, plan_schedule
from tuner.core.table import OPERATORS, AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable
from tuner.mpi_libraries.followed_rules import COUNT_LIMIT_BYTES, split_at_limits
from tuner.preload import flat_table
from tuner.preload.flat_table import DTYPES, HEADER, write_flat_table
from tuner.preload.report import FlatRule, flat_notes, flat_rules, read_counts, saved_seconds
from tuner.preload.run_record import RecordedCalls, RunRecord

DEFAULT = AlgorithmChoice()
RING = AlgorithmChoice("ring")
BINOMIAL = AlgorithmChoice("binomial", {}, "schedule")
PIPELINE = AlgorithmChoice("pipeline", {"segment": 1024}, "schedule")
ORDERED = AlgorithmChoice("recursive_doubling")
LADDERS: dict[tuple[Collective, int, str], Rungs] = {
    (Collective.BCAST, 4, "any"): [(0, BINOMIAL), (512, DEFAULT), (4096, PIPELINE)],
    (Collective.ALLREDUCE, 4, "commutative"): [(0, DEFAULT), (8192, RING)],
    (Collective.ALLREDUCE, 4, "any"): [(0, ORDERED)],
    (Collective.BARRIER, 3, "any"): [(0, AlgorithmChoice("dissemination", {}, "schedule"))],
    (Collective.REDUCE, 4, "any"): [(0, DEFAULT)],
}


def written(table: TuningTable, folder: Path) -> tuple[bytes, list[str]]:
    notes = write_flat_table(table, folder / "flat")
    return (folder / "flat").read_bytes(), notes


def by_key(content: bytes) -> dict[RuleKey, list[FlatRule]]:
    found: dict[RuleKey, list[FlatRule]] = {}
    for rule in flat_rules(content):
        found.setdefault(rule.key, []).append(rule)
    return found


def test_the_rules_are_those_of_the_table(tmp_path: Path) -> None:
    table = table_of(LADDERS, library="openmpi 5.0.11")
    content, notes = written(table, tmp_path)
    found = by_key(content)
    assert notes == []
    for key in (RuleKey(c, 1, p, operators=ops) for c, p, ops in LADDERS):
        rules = [
            part for rule in table.rules_for(key) for part in split_at_limits(rule, table.library)
        ]
        if any(not rule.choice.is_default for rule in rules):
            wanted = [(rule.start_bytes, str(rule.choice)) for rule in rules]
            assert [(rule.start_bytes, rule.choice) for rule in found[key]] == wanted
        else:
            assert key not in found


def test_rules_for_any_operator_hold_for_commutative_ones_where_these_have_none(
    tmp_path: Path,
) -> None:
    ladders = {(Collective.REDUCE, 4, "any"): [(0, BINOMIAL)]}
    content, _ = written(table_of(ladders, library="openmpi 5.0.11"), tmp_path)
    found = by_key(content)
    numbers = [
        [rule.number for rule in found[RuleKey(Collective.REDUCE, 1, 4, operators=kind)]]
        for kind in OPERATORS
    ]
    assert numbers[0] == numbers[1] != []


def test_what_cannot_be_followed_is_left_to_the_library_and_named(tmp_path: Path) -> None:
    ladders: dict[tuple[Collective, int, str], Rungs] = {
        (Collective.ALLREDUCE, 4, "any"): [(0, RING)],  # it reorders operands
        (Collective.BCAST, 4, "any"): [(0, AlgorithmChoice("no_such", {}, "schedule"))],
        (Collective.ALLGATHER, 4, "any"): [(0, AlgorithmChoice("ring", {}, "nccl"))],
    }
    content, notes = written(table_of(ladders, library="openmpi 5.0.11"), tmp_path)
    assert by_key(content) == {}
    assert len(notes) == 3
    assert flat_notes(tmp_path / "flat") == notes
    assert "operators that commute" in "".join(notes)


def test_the_checksum_is_that_of_the_file_without_it(tmp_path: Path) -> None:
    content, _ = written(table_of(LADDERS, library="openmpi 5.0.11"), tmp_path)
    header = np.frombuffer(content, HEADER, 1)[0]
    blank = bytearray(content)
    start = HEADER.fields["checksum"][1] if HEADER.fields else 0
    blank[start : start + 4] = bytes(4)
    assert header["checksum"] == zlib.crc32(blank)
    assert header["n_bytes"] == len(content)


def records(content: bytes, name: str) -> AnyArray:
    span = np.frombuffer(content, HEADER, 1)[0][f"{name}s"]
    return np.frombuffer(content, DTYPES[name], int(span["count"]), int(span["offset"]))


def programs(content: bytes, number: int) -> list[list[tuple[int, ...]]]:
    """The instructions of each program, by record."""
    found = {name: records(content, name) for name in ("program", "instruction", "variant")}
    first = int(found["variant"][number]["first_program"])
    last = [*found["variant"]["first_program"], len(found["program"])][number + 1]
    return [
        [tuple(step) for step in found["instruction"][begin : begin + length].tolist()]
        for begin, length, _ in found["program"][first:last].tolist()
    ]


@pytest.mark.parametrize("name", ["binomial", "binary"])
def test_the_programs_for_another_root_are_those_for_root_0_turned(
    name: str, tmp_path: Path
) -> None:
    choice = AlgorithmChoice(name, {}, "schedule")
    table = table_of({(Collective.BCAST, 5, "any"): [(0, choice)]}, library="mpich 5.0.2")
    content, _ = written(table, tmp_path)
    stored = programs(content, 0)
    assert len(stored) == 5  # those of one root
    for root in range(5):
        plan = plan_schedule(build(Collective.BCAST, name, 5, root=root))
        for rank, steps in enumerate(plan.ranks):
            turned = [
                (*step[:5], (step[5] + root) % 5, *step[6:])
                if step[1] >= 0 and step[5] >= 0
                else step
                for step in stored[(rank - root) % 5]
            ]
            assert turned == [tuple(step) for step in steps]


def test_schedules_that_cannot_be_turned_have_programs_for_each_root(tmp_path: Path) -> None:
    choice = AlgorithmChoice("binomial", {}, "schedule")
    table = table_of({(Collective.GATHER, 5, "any"): [(0, choice)]}, library="mpich 5.0.2")
    content, _ = written(table, tmp_path)
    stored = programs(content, 0)
    expected = [
        [tuple(step) for step in steps]
        for root in range(5)
        for steps in plan_schedule(build(Collective.GATHER, "binomial", 5, root=root)).ranks
    ]
    assert stored == expected


def test_segments_are_at_most_a_quarter_longer_than_asked_for(tmp_path: Path) -> None:
    ladders = {(Collective.BCAST, 3, "any"): [(0, PIPELINE)]}
    content, _ = written(table_of(ladders, library="mpich 5.0.2"), tmp_path)
    header = np.frombuffer(content, HEADER, 1)[0]
    span = header["variants"]
    variants = np.frombuffer(content, DTYPES["variant"], int(span["count"]), int(span["offset"]))
    for nbytes in (1, 1024, 1025, 5000, 16_384, 16_385, 50_000, 100_000, 131_072):
        chosen = variants[np.searchsorted(variants["start_bytes"], nbytes, "right") - 1]
        assert math.ceil(nbytes / chosen["n_chunks"]) <= 1.25 * 1024
        assert chosen["n_chunks"] <= math.ceil(nbytes / 1024)
    assert variants["n_chunks"].max() == flat_table.MAX_SEGMENTS


def test_a_table_whose_messages_are_too_many_for_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flat_table, "MAX_INSTRUCTIONS", 100)
    content, notes = written(table_of(LADDERS, library="openmpi 5.0.11"), tmp_path)
    assert any("too many" in note for note in notes)
    kept = {rule.choice for rule in flat_rules(content)} - {"default"}
    assert kept == {str(ORDERED), str(RING), str(LADDERS[Collective.BARRIER, 3, "any"][0][1])} | {
        str(BINOMIAL)
    }


def test_calls_of_two_gibibytes_are_the_librarys(tmp_path: Path) -> None:
    content, _ = written(table_of(LADDERS, library="openmpi 5.0.11"), tmp_path)
    last = by_key(content)[RuleKey(Collective.BCAST, 1, 4)][-1]
    assert (last.start_bytes, last.choice) == (COUNT_LIMIT_BYTES, "default")


def test_counts_of_a_report(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("0 5\n1 0\n")
    assert read_counts(tmp_path / "report") == {0: 5, 1: 0}


def test_the_numbers_of_instructions_are_those_of_the_kinds() -> None:
    assert [kind.value for kind in InstructionKind] == list(range(len(InstructionKind)))


def test_schedules_that_turn_with_the_root_do_not_keep_the_order(tmp_path: Path) -> None:
    """Their operands begin with the root's."""
    ladders = {
        (Collective.REDUCE, 4, "any"): [(0, BINOMIAL)],
        (Collective.ALLREDUCE, 4, "any"): [
            (0, AlgorithmChoice("recursive_doubling", {}, "schedule"))
        ],
    }
    content, _ = written(table_of(ladders), tmp_path)
    flags = [(v["rotates"], v["keeps_order"]) for v in records(content, "variant")]
    assert sorted(flags) == [(0, 1), (1, 0)]


def test_algorithms_of_a_library_without_control_variables_are_left_to_it(tmp_path: Path) -> None:
    ladders: dict[tuple[Collective, int, str], Rungs] = {
        (Collective.BCAST, 4, "any"): [(0, AlgorithmChoice("binomial")), (512, PIPELINE)]
    }
    content, notes = written(table_of(ladders, library="intelmpi 2021.18"), tmp_path)
    assert notes == [
        "bcast binomial on 1x4 ranks: algorithms of intelmpi 2021.18 cannot be forced here"
    ]
    assert [rule.choice for rule in flat_rules(content)][:2] == ["default", str(PIPELINE)]


@pytest.mark.parametrize("content", [None, b"", b"{}" * 4000, "damaged"])
def test_a_file_that_is_missing_or_damaged_has_no_notes(
    tmp_path: Path, content: bytes | str | None
) -> None:
    whole, _ = written(table_of(LADDERS, library="openmpi 5.0.11"), tmp_path)
    path = tmp_path / "flat"
    assert flat_notes(path) == []
    if isinstance(content, str):
        content = whole[:-1] + bytes([whole[-1] ^ 1])
    path.unlink() if content is None else path.write_bytes(content)
    assert flat_notes(path) is None


@pytest.mark.parametrize(
    ("basis", "saved"), [("measured", (3.0, 2.0, 3.5)), ("simulated", (0.0, 0.0, 0.0))]
)
def test_only_what_was_measured_is_saved(
    tmp_path: Path, basis: str, saved: tuple[float, float, float]
) -> None:
    told = Evidence(basis, (8,), (4.0,), (1.0,), gain=4.0, gain_ci95=(2.0, 8.0))
    key = RuleKey(Collective.BCAST, 1, 4)
    table = TuningTable(CLUSTER, "openmpi 5.0.11", (Rule(key, 0, math.inf, BINOMIAL, told),))
    content, _ = written(table, tmp_path)
    rule = next(flat_rules(content))
    assert rule.saved_s == pytest.approx(saved)
    calls = RecordedCalls(
        *(Collective.BCAST, 1, 4, False, False, str(BINOMIAL), 8, 24, 1.0, 0.0, 0.0, 0.0, None)
    )
    record = RunRecord(8, 80.0, (calls, replace(calls, choice="default")), 0)
    assert saved_seconds(content, record) == [
        pytest.approx(tuple(3 * one for one in saved)),
        (0.0, 0.0, 0.0),
    ]
    shorter = replace(record, seconds=8 * 3 * 2.9)
    assert (saved_seconds(content, shorter) is None) == (basis == "measured")
