"""Asking ranks that may die: what was answered before counts, and a launch that does not end is
ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.ladders import table_of
from tuner.base.errors import ProbeError, UnendedError
from tuner.core.collective import Collective
from tuner.core.table import Choice
from tuner.launch import CompletedRun
from tuner.validation.validation import (
    LARGEST,
    START,
    TIMEOUT,
    WORD,
    Completed,
    Outlived,
    Trial,
    ask,
    outlived,
    sizes_of,
)

RULE = table_of({(Collective.BCAST, 4): [(0, Choice())]}).rules[0]
TRIALS = [Trial(RULE, nbytes) for nbytes in (8, 64, 512)]


class Hanging:
    """One answer, then silence."""

    library = "mpich"

    def __init__(self) -> None:
        self.timeout = 0.0
        self.first: float | None = None
        self.patience: list[float | None] = []
        self.calls: list[dict[str, Any]] = []

    def run(
        self,
        ranks: int,
        arguments: Sequence[str],
        *,
        on_line: Callable[[str], float | None] | None = None,
        timeout: float | None = None,
        patience: float | None = None,
        **_: Any,
    ) -> Completed:
        assert on_line is not None
        assert timeout is not None
        self.timeout, self.first = timeout, patience
        self.calls = json.loads(Path(arguments[-1]).read_text())
        answer = {"call": 0, "error": 0, "executed": [], "entered": []}
        self.patience = [on_line(line) for line in ("a banner", '{"calls": 3}', json.dumps(answer))]
        raise UnendedError(f"{ranks} ranks did not end", "Assertion failed")


def test_what_was_answered_before_a_launch_hung_counts(tmp_path: Path) -> None:
    starter = Hanging()
    assert outlived(starter, TRIALS, tmp_path, settings={}) == Outlived(True, 1, "Assertion failed")
    assert starter.timeout < TIMEOUT
    assert starter.first == START
    assert starter.patience == [None, WORD, WORD]
    assert {(call["nodes"], call["ppn"]) for call in starter.calls} == {(1, 4)}
    with pytest.raises(ProbeError, match="4 ranks did not end"):
        ask(starter, TRIALS, tmp_path, settings={})
    assert [starter.first, *starter.patience] == [None] * 4


class Leaving(Hanging):
    """One answer, then a good end."""

    def run(self, ranks: int, arguments: Sequence[str], **how: Any) -> Completed:
        try:
            return super().run(ranks, arguments, **how)
        except UnendedError:
            return CompletedRun(0, "", "")


def test_calls_without_an_answer_are_no_end(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="the ranks ended after 1 of 3 calls without a word"):
        ask(Leaving(), TRIALS, tmp_path, settings={})


def test_a_rule_is_tried_at_its_bounds_and_where_it_was_probed() -> None:
    rungs = [(0, Choice()), (1024, Choice("binomial")), (8192, Choice()), (LARGEST, Choice("ring"))]
    rules = table_of({(Collective.BCAST, 4): rungs}, (64, 2048, 4096)).rules
    assert list(map(sizes_of, rules)) == [
        (4, 64, 1023),
        (1024, 2048, 4096, 8191),
        (8192, LARGEST - 1),
        (LARGEST,),
    ]


def test_a_rule_for_no_byte_at_all_is_not_tried(tmp_path: Path) -> None:
    """A call without data runs nothing."""
    rungs = [(0, Choice()), (1, Choice("binomial"))]
    none, _ = table_of({(Collective.BCAST, 4): rungs}).rules
    assert sizes_of(none) == ()
    assert ask(Hanging(), [], tmp_path, settings={}) == {}
