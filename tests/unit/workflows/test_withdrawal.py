"""Rules that do not win again are withdrawn, and it is said what time was too short for."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.launch import Launcher
from tuner.validation.heldout import HeldoutResult
from tuner.validation.timing import TimedCall
from tuner.workflows.acceptance import withdraw_losing_rules

WON = HeldoutResult(
    Collective.BCAST, 1, 2, 2, 500, "chain", 2e-6, 1e-6, 2.0, (1.8, 2.2), (), undecided=True
)
CONTROL = replace(WON, nbytes=5000, algorithm="default")


@pytest.mark.parametrize(("wrong", "undecided"), [(False, [str(WON.timed_call)]), (True, [])])
def test_calls_are_undecided_that_decide_about_rules_and_are_right(
    monkeypatch: pytest.MonkeyPatch, wrong: bool, undecided: list[str]
) -> None:
    """Controls decide about no rule, and a wrong result is a verdict however few the rounds."""
    rungs = [(0, AlgorithmChoice("chain")), (1000, AlgorithmChoice())]
    table = table_of({(Collective.BCAST, 2): rungs})

    @contextmanager
    def comparison(*_: object) -> Iterator[object]:
        def compared(
            _: TuningTable, used: Collection[TimedCall], controls: bool, progress: object
        ) -> list[HeldoutResult]:
            return [CONTROL] if controls else [replace(WON, wrong=wrong)]

        yield compared

    monkeypatch.setattr("tuner.workflows.acceptance._comparison", comparison)
    launcher = Launcher("openmpi", Path("python"))
    settled, _ = withdraw_losing_rules(
        table, launcher, lambda *_: None, on_note=lambda _: None, budget=0.0
    )
    assert str(settled.rules[0].choice) == ("default" if wrong else "chain")
    assert settled.provenance["comparison"]["undecided"] == undecided
