"""Where tables change their choice between probed sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.base.statistics import NORMAL_95
from tuner.core.table import AlgorithmChoice
from tuner.select.crossover import (
    GAIN_DRIFT_PER_SQRT_OCTAVE,
    crossover_size,
    max_extrapolation_ratio,
)
from tuner.select.dataset import MIN_GAIN, CallPoint, Observation, SimulateFunction
from tuner.select.posterior import Posterior
from tuner.select.selector import Selector, train
from tuner.select.significance import Comparison, PredictedComparison, compare_with_default
from tuner.select.value_of_information import guarded_winners

KIB = 1024
DEFAULT, RING, TREE = AlgorithmChoice(), AlgorithmChoice("ring"), AlgorithmChoice("binomial")
Times = Mapping[AlgorithmChoice, Callable[[int], float]]


def rows_at(times: Times, nbytes: int) -> list[Observation]:
    """Of one launch with repetitions that hardly differ."""
    point = CallPoint("allreduce", 8, 1, "host", nbytes)
    return [
        Observation(
            point, choice, {0: tuple(t * (1 + 1e-4 * k) for k in range(12))}, t, t, t * 1.001
        )
        for choice, seconds in times.items()
        for t in [seconds(nbytes)]
    ]


def known(
    times: Times, *sizes: int, simulate: SimulateFunction = lambda _point, _choice: math.nan
) -> tuple[list[Comparison], Selector]:
    rows = {
        nbytes: [
            replace(row, simulated_seconds=simulate(row.point, row.choice))
            for row in rows_at(times, nbytes)
        ]
        for nbytes in sizes
    }
    selector = train([row for own in rows.values() for row in own], simulate)
    return [compare_with_default(own[0].point, own) for own in rows.values()], selector


def gaining(low: float, high: float) -> Times:
    """A ring whose gain goes from `low` at 64 KiB to `high` at 256 KiB."""
    gains = {64 * KIB: low, 256 * KIB: high}
    return {DEFAULT: lambda n: 1e-7 * n, RING: lambda n: 1e-7 * n / gains[n]}


def test_a_default_that_changes_its_algorithm_in_between_is_not_left_early() -> None:
    """Measured on eight hosts: at 96 KiB the ring takes 12 % longer than the default."""
    (low, high), selector = known(gaining(0.86, 1.56), 64 * KIB, 256 * KIB)
    assert 128 * KIB < crossover_size(low, high, DEFAULT, RING, selector) <= 256 * KIB


def test_a_large_gain_reaches_further_towards_the_default_than_a_small_one() -> None:
    found = []
    for gain in (1.08, 1.3, 2.0, 5.0):
        (low, high), selector = known(gaining(1.0, gain), 64 * KIB, 256 * KIB)
        found.append(crossover_size(low, high, DEFAULT, RING, selector))
    assert found[0] > 250 * KIB
    assert found == sorted(found, reverse=True)
    assert found[-1] < 128 * KIB


def test_an_algorithm_below_the_default_reaches_up_alike() -> None:
    (low, high), selector = known(gaining(1.08, 1.0), 64 * KIB, 256 * KIB)
    assert crossover_size(low, high, RING, DEFAULT, selector) < 66 * KIB
    (low, high), selector = known(gaining(5.0, 1.0), 64 * KIB, 256 * KIB)
    assert crossover_size(low, high, RING, DEFAULT, selector) > 128 * KIB


def test_an_algorithm_that_was_not_tried_beside_the_default_is_not_used_in_between() -> None:
    (low, high), selector = known(gaining(1.0, 5.0), 64 * KIB, 256 * KIB)
    alone = compare_with_default(
        low.point, [row for row in rows_at(gaining(1.0, 5.0), 64 * KIB) if row.choice.is_default]
    )
    rows = [
        *rows_at({DEFAULT: lambda n: 1e-7 * n}, 64 * KIB),
        *rows_at(gaining(1.0, 5.0), 256 * KIB),
    ]
    unsure = train(rows, lambda _point, _choice: math.nan)
    assert crossover_size(alone, high, DEFAULT, RING, unsure) > 250 * KIB
    assert crossover_size(low, high, DEFAULT, RING, selector) < 128 * KIB


@given(low=st.floats(0.5, 1.04), high=st.floats(1.06, 8.0), ratio=st.integers(2, 5000))
def test_a_switch_lies_between_the_sizes(low: float, high: float, ratio: int) -> None:
    gains = {1000: low, 1000 * ratio: high}
    times: Times = {DEFAULT: lambda n: 1e-7 * n, RING: lambda n: 1e-7 * n / gains[n]}
    (below, above), selector = known(times, *gains)
    assert 1000 < crossover_size(below, above, DEFAULT, RING, selector) <= 1000 * ratio
    assert 1000 < crossover_size(below, above, RING, DEFAULT, selector) <= 1000 * ratio


def test_two_algorithms_change_where_they_cross() -> None:
    times: Times = {
        DEFAULT: lambda n: 1e-3 + 1e-8 * n,
        TREE: lambda n: 1e-5 + 2e-9 * n,
        RING: lambda n: 1e-4 + 1e-9 * n,
    }
    (low, high), selector = known(times, 64 * KIB, 128 * KIB)
    assert crossover_size(low, high, TREE, RING, selector) == pytest.approx(90e3, rel=0.1)


BENT: Times = {
    DEFAULT: lambda n: 1e-3,
    TREE: lambda n: 1e-9 * n,
    RING: lambda n: 130e-6 if n > 80 * KIB else 100e-6,
}


def test_between_two_sizes_times_go_as_they_are_simulated() -> None:
    """A tree overtaken by a ring that jumps, of which the simulations are off by half and by far:
    straight lines would cross at 108 KiB."""
    off = {DEFAULT: 1.0, TREE: 1.5, RING: 0.1}

    def simulate(point: CallPoint, choice: AlgorithmChoice) -> float:
        return off[choice] * BENT[choice](point.nbytes)

    (low, high), selector = known(BENT, 64 * KIB, 256 * KIB, simulate=simulate)
    assert crossover_size(low, high, TREE, RING, selector) == pytest.approx(130e3, rel=0.03)


def test_what_was_not_tried_at_one_size_is_off_there_as_at_the_other() -> None:
    def simulate(point: CallPoint, choice: AlgorithmChoice) -> float:
        return 0.5 * BENT[choice](point.nbytes)

    (low, high), selector = known(BENT, 64 * KIB, 256 * KIB, simulate=simulate)
    lacking = [row for row in rows_at(BENT, 64 * KIB) if row.choice != RING]
    alone = compare_with_default(
        low.point, [replace(r, simulated_seconds=simulate(r.point, r.choice)) for r in lacking]
    )
    both = crossover_size(low, high, TREE, RING, selector)
    assert (
        crossover_size(alone, high, TREE, RING, selector) == both == pytest.approx(130e3, rel=0.03)
    )


@pytest.mark.parametrize(("before", "after", "at"), [(TREE, RING, 64), (RING, TREE, 128)])
def test_without_a_crossing_the_better_one_gets_all_between(
    before: AlgorithmChoice, after: AlgorithmChoice, at: int
) -> None:
    """Measured ties let a rule keep a choice that times alone would not."""
    times: Times = {DEFAULT: lambda n: 1e-6 * n, TREE: lambda n: 2e-8 * n, RING: lambda n: 1e-8 * n}
    (low, high), selector = known(times, 64 * KIB, 128 * KIB)
    assert crossover_size(low, high, before, after, selector) == pytest.approx(at * KIB, rel=0.03)


def test_beyond_the_last_size_a_gain_is_used_as_far_as_it_is_large() -> None:
    (small, large), _ = known(gaining(1.1, 5.0), 64 * KIB, 256 * KIB)
    assert 1.0 <= max_extrapolation_ratio(small, RING) < 1.1
    assert max_extrapolation_ratio(large, RING) > 100


def test_beyond_the_last_size_a_gain_is_used_less_far_the_less_it_is_known() -> None:
    """As far as its lower bound stays above noise."""
    found = []
    for spread in (0.0, 0.1, 0.2, 0.3):
        default, ring = rows_at(gaining(1.0, 2.0), 256 * KIB)
        swinging = tuple(ring.seconds * (1 + spread * (k % 3 - 1)) for k in range(12))
        steady = (default.seconds,) * 12
        both = replace(default, samples={0: steady}), replace(ring, samples={0: swinging})
        contest = compare_with_default(default.point, both)
        found.append(max_extrapolation_ratio(contest, RING))
        known = math.log(contest.gains[RING] / contest.interval(RING)[0])
        wandered = NORMAL_95 * GAIN_DRIFT_PER_SQRT_OCTAVE * math.sqrt(math.log2(found[-1]))
        lowest = math.log(contest.gains[RING]) - math.hypot(known, wandered)
        assert lowest == pytest.approx(math.log1p(MIN_GAIN))
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.8 * found[0]


def predicted(gain: float, deviation: float, nbytes: int) -> Comparison:
    """A comparison of a ring that is expected to gain so much, as its logarithm is uncertain."""
    belief = Posterior(
        (DEFAULT, RING), np.array([0.0, -math.log(gain)]), np.diag([deviation**2, 0.0])
    )
    return PredictedComparison(
        CallPoint("allreduce", 8, 1, "host", nbytes),
        {DEFAULT: 1.0, RING: 1 / gain},
        {DEFAULT: math.nan, RING: math.nan},
        {RING: gain},
        guarded_winners(belief),
        belief,
        frozenset(),
        frozenset(),
    )


def test_a_predicted_gain_reaches_as_far_as_the_guard_lets_it() -> None:
    """The first may well be a loss, and is hardly one of over 5 %; the second is likely one."""
    wide, wider = (predicted(1.25, deviation, 64 * KIB) for deviation in (0.14, 0.2))
    assert wide.interval(RING)[0] < 1
    assert RING in wide.winners
    assert not wider.winners
    assert max_extrapolation_ratio(wide, RING) > 1.1
    assert max_extrapolation_ratio(wider, RING) == 1.0
    selector = train(rows_at(gaining(1.0, 1.0), 64 * KIB), lambda _point, _choice: math.nan)
    default = predicted(1.0, 0.14, 256 * KIB)
    assert crossover_size(wide, default, RING, DEFAULT, selector) > 1.05 * 64 * KIB
