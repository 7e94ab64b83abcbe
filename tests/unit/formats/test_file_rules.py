"""Boxes of calls: which rule decides, and which decide none."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable

import pytest

from tuner.base.errors import InputError, UsageError
from tuner.core.collective import Collective
from tuner.formats.file_rules import (
    BLOCK_BYTES,
    BYTES,
    INF,
    MAX_RULES,
    NODES,
    RANKS,
    AskedCall,
    Box,
    FileRule,
    FileRules,
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


@pytest.mark.parametrize("seed", range(20))
def test_rules_by_other_sizes_and_with_gaps_are_compared(seed: int) -> None:
    chance = random.Random(seed)

    def drawn() -> Ranges:
        bounds = sorted(chance.sample(range(9), 4))
        return ((bounds[0], bounds[1]), (bounds[2], bounds[3]))

    sizes = (BYTES, BLOCK_BYTES)
    boxes = [{RANKS: ((2, 2),), chance.choice(sizes): drawn()} for _ in range(12)]
    rules = [FileRule(line, BCAST, box, "ring") for line, box in enumerate(boxes)]
    reached = {
        next((line for line, box in enumerate(boxes) if box_holds(box, sizes, point)), -1)
        for point in itertools.product(range(10), repeat=2)
    }
    assert {caution.line for caution in unreached(rules)} == set(range(12)) - reached


def box_holds(box: Box, sizes: tuple[str, ...], point: tuple[int, ...]) -> bool:
    told = dict(zip(sizes, point, strict=True))
    return all(contains(ranges, told.get(name, 2)) for name, ranges in box.items())


@pytest.mark.parametrize(
    ("first", "last", "lost"),
    [
        (lambda n: 9 * n, lambda n: 9 * n + 5, 0),
        (lambda _: 0, lambda n: 9 * n, 0),
        (lambda n: n % 1500, lambda n: n % 1500, 1500),
    ],
    ids=["apart", "nested", "twice"],
)
def test_thousands_of_rules_are_compared_in_seconds(
    first: Callable[[int], int], last: Callable[[int], int], lost: int
) -> None:
    rules = [rule(n, ((1, INF),), ((first(n), last(n)),)) for n in range(3000)]
    before = time.process_time()
    assert len(list(unreached(rules))) == lost
    assert time.process_time() - before < 60  # where each is compared with all others: minutes


def test_a_file_of_too_many_rules_is_refused() -> None:
    rules = [rule(n, ((1, INF),), ((n, n),)) for n in range(MAX_RULES + 1)]
    with pytest.raises(InputError, match=f"more than {MAX_RULES} rules: give a part of the file"):
        FileRules(rules).all_cautions()


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
