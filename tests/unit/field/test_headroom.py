"""Gains of forced algorithms and of tables follow from times that are made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.field import headroom
from tests.field.calls import Call
from tests.field.headroom import Gain, format_gains, is_confirmed
from tests.field.tables import DEFAULT, Library, Rule, Use
from tuner.base.arrays import FloatArray

CALL = Call("bcast", 2, 1000, DEFAULT, "other")
NUMBERS = {"bcast": {1: "basic_linear", 6: "binomial"}}


def ratios(gain: float, *, noise: float = 0.01, rounds: int = 6) -> FloatArray:
    """Return logarithms of a gain, shaped (rounds, patterns), with a little noise."""
    drawn: FloatArray = np.random.default_rng(3).normal(np.log(gain), noise, (rounds, 4))
    return drawn


@pytest.mark.parametrize(
    ("gain", "noise", "confirmed"), [(1.5, 0.01, True), (1.02, 0.001, False), (1.2, 1.0, False)]
)
def test_a_gain_is_confirmed_where_it_is_certain_and_large_enough(
    gain: float, noise: float, confirmed: bool
) -> None:
    assert is_confirmed(ratios(gain, noise=noise)) is confirmed


def test_one_pattern_without_a_gain_confirms_nothing() -> None:
    found = ratios(1.5)
    found[:, 2] = np.log(0.99)
    assert not is_confirmed(found)


def test_the_best_confirmed_algorithm_and_the_tables_are_compared_with_the_default() -> None:
    rule = Rule("bcast", 2, 0, 2000, "binomial", ())
    tuning = Library("openmpi", "openmpi 5", (rule,), (), Use((), {}), "digest")
    of_arm = {DEFAULT: ratios(1.0), "1": ratios(1.3), "6": ratios(1.6), "digest": ratios(1.55)}
    found = headroom._gain(CALL, of_arm, NUMBERS, [tuning])
    assert (found.best, found.chosen) == ("binomial", ("binomial",))
    assert found.best_gain == pytest.approx(1.6, rel=0.02)
    assert found.gains[0] == pytest.approx(1.55, rel=0.02)
    text = format_gains([found, Gain("bcast", 3, 8, DEFAULT, 1.0, (DEFAULT,), (1.0,)), *more()])
    assert f"2 ranks: 1 calls, {found.best_gain:.3f} can be gained" in text
    assert text.count("\n") == 7


def more() -> list[Gain]:
    return [Gain("bcast", 4, 8, DEFAULT, 1.0, (DEFAULT,), (1.0,))]


def test_algorithms_are_forced_by_their_numbers() -> None:
    words = headroom.forced({"bcast": {6: "binomial"}, "allreduce": {1: "basic_linear"}}, 6).command
    assert words[-3:] == ("--mca", "coll_tuned_bcast_algorithm", "6")
    assert not any("allreduce" in word for word in words)


def test_a_directory_without_a_report_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headroom, "require_no_tuning", lambda: None)
    assert headroom.main([str(tmp_path)]) == 1
    assert "report.json does not exist" in capsys.readouterr().err
