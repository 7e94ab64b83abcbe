"""Boxes of calls: which rule decides, and which decide none."""

from __future__ import annotations

import itertools
import random

import pytest

from tuner.base.errors import UsageError
from tuner.core.collective import Collective
from tuner.formats.file_rules import (
    BYTES,
    INF,
    NODES,
    RANKS,
    AskedCall,
    Box,
    FileRule,
    Ranges,
    both,
    deciding_rule,
    describe,
    join_lines,
    unreached,
    walked,
    without,
)

BCAST = Collective.BCAST


def rule(line: int, ranks: Ranges, sizes: Ranges) -> FileRule:
    return FileRule(line, BCAST, {RANKS: ranks, BYTES: sizes}, f"rule {line}")


def contains(ranges: Ranges, number: int) -> bool:
    return any(first <= number <= last for first, last in ranges)


@pytest.mark.parametrize("bounds", [*itertools.product((1, 2, 4, 5), repeat=3)])
def test_lower_bounds_count_as_a_walk_to_the_first_larger_one_finds_them(
    bounds: tuple[int, ...],
) -> None:
    """The walk keeps the entry before the one at which it stops, and else the first."""
    for number in range(7):
        larger = [place for place, bound in enumerate(bounds) if bound > number]
        kept = max(0, min([*larger, len(bounds)]) - 1)
        found = [place for place, own in enumerate(walked(bounds)) if contains(own, number)]
        assert found == [kept], number


def test_ranges_meet_and_part() -> None:
    assert both(((1, 4), (8, INF)), ((3, 9),)) == ((3, 4), (8, 9))
    assert without(((1, INF),), ((3, 9),)) == ((1, 2), (10, INF))
    assert without(((1, INF),), ((0, INF),)) == ()


@pytest.mark.parametrize("seed", range(20))
def test_rules_are_without_effect_where_every_call_of_theirs_is_taken(seed: int) -> None:
    chance = random.Random(seed)

    def drawn() -> Ranges:
        first = chance.randint(1, 6)
        return ((first, chance.randint(first, 6)),)

    rules = [rule(line, drawn(), drawn()) for line in range(1, 15)]
    reached = {
        found.line
        for p, n in itertools.product(range(1, 7), repeat=2)
        if (found := deciding_rule(rules, AskedCall(BCAST, ranks=p, nbytes=n)))
    }
    assert {caution.line for caution in unreached(rules)} == set(range(1, 15)) - reached


def test_a_caution_names_the_lines_that_take_the_calls() -> None:
    rules = [
        rule(3, ((1, 4),), ((0, INF),)),
        rule(4, ((5, INF),), ((0, 99),)),
        rule(5, ((2, 8),), ((0, 9),)),
        rule(6, ((6, 8),), ()),
    ]
    assert [tuple(each) for each in unreached(rules)] == [
        (5, "no call reaches this rule: its calls are decided by lines 3 and 4"),
        (6, "no call reaches this rule"),
    ]


def test_what_must_be_known_of_a_call_is_asked_for_by_its_option() -> None:
    rules = [FileRule(7, BCAST, {NODES: ((1, 1),), BYTES: ((0, 99),)}, "ring")]
    with pytest.raises(UsageError, match="line 7 of the file decides by nodes: give --nodes"):
        deciding_rule(rules, AskedCall(BCAST, nbytes=8))
    with pytest.raises(UsageError, match="line 7 of the file decides by bytes: give --size"):
        deciding_rule(rules, AskedCall(BCAST, nodes=1))
    assert deciding_rule(rules, AskedCall(BCAST, nbytes=100)) is None  # whatever its nodes
    assert deciding_rule(rules, AskedCall(Collective.REDUCE)) is None


def test_a_box_is_described_with_its_bounds() -> None:
    box: Box = {
        RANKS: ((64, INF),),
        BYTES: ((0, 4095), (8192, 8192)),
        "commutative operator": ((1, 1),),
        NODES: ((1, INF),),
    }
    assert describe(box) == "ranks 64 and more, bytes 0 to 4095 or 8192, commutative operator: yes"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([4], "line 4"),
        ([9, 4, 4], "lines 4 and 9"),
        ([1, 2, 3], "lines 1, 2 and 3"),
        (range(1, 10), "lines 1, 2, 3, 4 and 5 more"),
    ],
)
def test_lines_are_listed(lines: list[int], words: str) -> None:
    assert join_lines(lines) == words
