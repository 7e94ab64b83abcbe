"""Asking ranks that may die: what was answered before counts, and a launch that does not end is
ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.ladders import table_of
from tuner.base.errors import LaunchTimeoutError, ProbeError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.launch import CompletedRun
from tuner.validation.validation import (
    ANSWER_TIMEOUT_S,
    LAUNCH_TIMEOUT_S,
    MAX_CALL_BYTES,
    STARTUP_TIMEOUT_S,
    CompletedLaunch,
    CrashedRun,
    ValidationCall,
    empty_call_failures,
    run_calls,
    run_until_crash,
    validation_sizes,
)

RULE = table_of({(Collective.BCAST, 4): [(0, AlgorithmChoice())]}).rules[0]
TRIALS = [ValidationCall(RULE, nbytes) for nbytes in (8, 64, 512)]


class Hanging:
    """One answer, then silence."""

    library = "mpich"

    def __init__(self) -> None:
        self.timeout = 0.0
        self.first: float | None = None
        self.silence_timeout: list[float | None] = []
        self.calls: list[dict[str, Any]] = []

    def run(
        self,
        ranks: int,
        arguments: Sequence[str],
        *,
        on_line: Callable[[str], float | None] | None = None,
        timeout: float | None = None,
        silence_timeout: float | None = None,
        **_: Any,
    ) -> CompletedLaunch:
        assert on_line is not None
        assert timeout is not None
        self.timeout, self.first = timeout, silence_timeout
        self.calls = json.loads(Path(arguments[-1]).read_text())
        answer = {"call": 0, "error": 0, "executed": [], "entered": []}
        self.silence_timeout = [
            on_line(line) for line in ("a banner", '{"calls": 3}', json.dumps(answer))
        ]
        raise LaunchTimeoutError(f"{ranks} ranks did not end", "Assertion failed")


class StartsOnce:
    """The first launch ends in its first call; no other launch reaches one."""

    library = "openmpi"

    def __init__(self) -> None:
        self.launches = 0

    def run(
        self,
        ranks: int,
        arguments: Sequence[str],
        *,
        on_line: Callable[[str], float | None] | None = None,
        **_: Any,
    ) -> CompletedLaunch:
        assert on_line is not None
        assert (ranks, Path(arguments[-1]).name) == (4, "calls.json")
        self.launches += 1
        if self.launches == 1:
            on_line('{"calls": 1}')
        return CompletedRun(1, "", "no slots left")


def test_a_launch_that_does_not_start_is_no_evidence_against_a_rule(tmp_path: Path) -> None:
    rules = table_of({(Collective.BCAST, 4): [(0, AlgorithmChoice("binomial"))]}).rules
    with pytest.raises(ProbeError, match="the ranks end before their first call: no slots left"):
        empty_call_failures(StartsOnce(), rules, tmp_path, settings={})


def test_what_was_answered_before_a_launch_hung_counts(tmp_path: Path) -> None:
    starter = Hanging()
    assert run_until_crash(starter, TRIALS, tmp_path, settings={}) == CrashedRun(
        True, (0,), "Assertion failed"
    )
    assert starter.timeout < LAUNCH_TIMEOUT_S
    assert starter.first == STARTUP_TIMEOUT_S
    assert starter.silence_timeout == [None, ANSWER_TIMEOUT_S, ANSWER_TIMEOUT_S]
    assert {(call["nodes"], call["ppn"]) for call in starter.calls} == {(1, 4)}
    with pytest.raises(ProbeError, match="4 ranks did not end"):
        run_calls(starter, TRIALS, tmp_path, settings={})
    assert [starter.first, *starter.silence_timeout] == [None] * 4


class Leaving(Hanging):
    """One answer, then a good end."""

    def run(self, ranks: int, arguments: Sequence[str], **how: Any) -> CompletedLaunch:
        try:
            return super().run(ranks, arguments, **how)
        except LaunchTimeoutError:
            return CompletedRun(0, "", "")


def test_calls_without_an_answer_are_no_end(tmp_path: Path) -> None:
    with pytest.raises(
        ProbeError, match="the ranks ended after 1 of 3 calls without an error message"
    ):
        run_calls(Leaving(), TRIALS, tmp_path, settings={})


def test_a_rule_is_tried_at_its_bounds_and_where_it_was_probed() -> None:
    rungs = [
        (0, AlgorithmChoice()),
        (1024, AlgorithmChoice("binomial")),
        (8192, AlgorithmChoice()),
        (MAX_CALL_BYTES, AlgorithmChoice("ring")),
    ]
    rules = table_of({(Collective.BCAST, 4): rungs}, (64, 2048, 4096)).rules
    assert list(map(validation_sizes, rules)) == [
        (4, 64, 1023),
        (1024, 2048, 4096, 8191),
        (8192, MAX_CALL_BYTES - 1),
        (MAX_CALL_BYTES,),
    ]


def test_a_rule_for_no_byte_at_all_is_not_tried(tmp_path: Path) -> None:
    """A call without data runs nothing."""
    rungs = [(0, AlgorithmChoice()), (1, AlgorithmChoice("binomial"))]
    none, _ = table_of({(Collective.BCAST, 4): rungs}).rules
    assert validation_sizes(none) == ()
    assert run_calls(Hanging(), [], tmp_path, settings={}) == {}
