"""How well the rounds of a tuning run measure what they chose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.test_probe_rounds import REQUEST, Ranks
from tuner.cli.guided import ROUGH, Goal, guided
from tuner.probe.request import Shape

FEW = replace(REQUEST, shapes=(Shape(2, 1), Shape(4, 1)), sizes=(1024, 65536))


def test_messages_are_measured_to_the_target_and_rounds_roughly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no compiler: what the default runs is not asked
    ranks = Ranks()
    found = guided(tmp_path / "m.ndjson", FEW, ranks, Goal(60.0, 1e-9))
    first, *rounds = [plan.target for plan in ranks.plans]
    assert first == FEW.target < ROUGH
    assert rounds
    assert set(rounds) == {ROUGH}
    assert {one.subject for one in found.measurements.series} >= {"bcast", "allreduce"}
