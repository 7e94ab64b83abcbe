"""Asking ranks that may die: what was answered before counts, and a launch that does not end is
ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.ladders import table_of
from tuner.collective import Collective
from tuner.errors import ProbeError
from tuner.export.prove import START, TIMEOUT, WORD, Completed, Trial, ask
from tuner.table import Choice

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
        self, ranks: int, arguments: Sequence[str], *,
        on_line: Callable[[str], float | None] | None = None, timeout: float | None = None,
        patience: float | None = None, **_: Any,
    ) -> Completed:  # fmt: skip
        assert on_line is not None
        assert timeout is not None
        self.timeout, self.first = timeout, patience
        self.calls = json.loads(Path(arguments[-1]).read_text())
        answer = {"call": 0, "error": 0, "executed": [], "entered": []}
        self.patience = [on_line(line) for line in ("a banner", '{"calls": 3}', json.dumps(answer))]
        raise ProbeError(f"{ranks} ranks did not end")


def test_what_was_answered_before_a_launch_hung_counts(tmp_path: Path) -> None:
    starter = Hanging()
    assert list(ask(starter, TRIALS, tmp_path, settings={}, may_abort=True)) == [0]
    assert starter.timeout < TIMEOUT
    assert starter.first == START
    assert starter.patience == [None, WORD, WORD]
    assert {(call["nodes"], call["ppn"]) for call in starter.calls} == {(1, 4)}
    with pytest.raises(ProbeError, match="4 ranks did not end"):
        ask(starter, TRIALS, tmp_path, settings={})
    assert [starter.first, *starter.patience] == [None] * 4
