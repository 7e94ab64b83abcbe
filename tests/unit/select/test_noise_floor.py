"""The regret that the truly fastest choice shows, since it is judged by noisy times."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tuner.core.speedup import mean_over_launches
from tuner.core.table import AlgorithmChoice
from tuner.select.cases import EvaluationCase
from tuner.select.dataset import CallPoint, Observation
from tuner.select.noise_floor import noise_floor

POINT = CallPoint("bcast", 2, 1, "host", 64)
DEFAULT = AlgorithmChoice()
LAUNCH_SD = 0.015  # of the times that are drawn here
REPETITION_SD = 0.02  # of these within a launch
CALLS = 200


def case(*measured: Observation) -> EvaluationCase:
    return EvaluationCase("ares", POINT, {row.choice: row for row in measured})


def once(name: str, seconds: float) -> Observation:
    """Return a time with a deviation of 1 % and nothing known of launches."""
    half = math.exp(1.96 * 0.01)
    return Observation(POINT, AlgorithmChoice(name), {}, seconds, seconds / half, seconds * half)


def measured(
    truth: float, name: str, launches: int, samples: int, random: np.random.Generator
) -> Observation:
    """Return what a probe finds of a choice whose time is exp(truth)."""
    logs = truth + LAUNCH_SD * random.standard_normal((launches, 1))
    drawn = np.exp(logs + REPETITION_SD * random.standard_normal((launches, samples)))
    known = {number: tuple(row.tolist()) for number, row in enumerate(drawn)}
    return Observation(
        POINT, AlgorithmChoice(name), known, *mean_over_launches(list(known.values()))
    )


def floor_and_truth(
    launches: int, samples: int, choices: int, apart: float = 0.0
) -> tuple[float, float]:
    """Return the floor of CALLS calls, and the mean regret of what is truly the fastest there.

    apart       standard deviation between the true logarithms of choices in every second call; in
                the others they are equal
    """
    random = np.random.default_rng(1)
    cases, regrets = [], []
    for number in range(CALLS):
        truths = number % 2 * apart * random.standard_normal(choices)
        rows = [
            measured(truth, f"a{n}", launches, samples, random) for n, truth in enumerate(truths)
        ]
        cases.append(case(*rows))
        regrets.append(cases[-1].regret(rows[int(truths.argmin())].choice))
    return noise_floor(cases).mean, float(np.mean(regrets))


@pytest.mark.parametrize(
    ("launches", "samples", "choices", "apart"),
    [
        (2, 8, 2, 0.0),
        (2, 8, 5, 0.0),
        (2, 1, 5, 0.0),
        (1, 8, 2, 0.0),
        (1, 8, 5, 0.0),
        (1, 8, 3, 0.5),
        (2, 8, 3, 0.5),
    ],
)
def test_the_floor_is_near_what_a_truly_best_choice_shows(
    launches: int, samples: int, choices: int, apart: float
) -> None:
    found, true = floor_and_truth(launches, samples, choices, apart)
    assert true / 1.6 < found < 1.6 * true


def test_a_fastest_choice_beyond_doubt_has_no_regret() -> None:
    assert noise_floor([case(once("ring", 1.0), once("tree", 2.0))] * 20).mean == 0


def test_times_without_spread_are_taken_as_they_are() -> None:
    rows = [
        Observation(POINT, AlgorithmChoice(name), {0: (time,), 1: (time,)}, time, time, time)
        for name, time in (("ring", 1.0), ("tree", 1.1))
    ]
    assert noise_floor([case(*rows)] * 20).mean == 0


def test_the_default_counts_once_with_what_it_runs_and_equal_times_do_not() -> None:
    def found(*rows: Observation) -> float:
        return noise_floor([case(*rows), case(*rows[::-1])] * 20).mean

    ring, chain, tree = once("ring", 1.0), once("chain", 1.0), once("tree", 1.01)
    apart = found(ring, tree)
    assert found(ring, tree, replace(ring, choice=DEFAULT)) == pytest.approx(apart, rel=0.05)
    assert found(ring, tree, chain) < 0.9 * apart  # one of three is the slowest, not one of two
    assert found(ring, replace(ring, choice=DEFAULT)) == 0
