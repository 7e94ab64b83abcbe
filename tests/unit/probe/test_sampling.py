"""When a point has enough samples, in which order they are taken, and what they say."""

import math
from collections.abc import Iterable

import numpy as np
import pytest

from tuner.base.arrays import FloatArray
from tuner.base.statistics import median_interval, midmean, relative_half_width
from tuner.core.speedup import mean_over_launches, paired_speedup
from tuner.probe.probe_plan import MIN_REPETITIONS
from tuner.probe.sampling import (
    MAX_REPETITIONS,
    RepetitionRule,
    TimeBudget,
    fewest_repetitions,
    is_precise_enough,
    next_check,
    shuffled_order,
    warm_up_repetitions,
)


def noisy(rng: np.random.Generator, seconds: float, spread: float, count: int = 60) -> FloatArray:
    return seconds * rng.lognormal(sigma=spread, size=count)


def test_order_is_a_permutation_that_changes_with_the_repetition() -> None:
    orders = {tuple(shuffled_order(seed=3, repetition=k, count=6)) for k in range(20)}
    assert all(sorted(one) == list(range(6)) for one in orders)
    assert len(orders) > 15
    assert tuple(shuffled_order(3, 7, 6)) == tuple(shuffled_order(3, 7, 6))


def test_every_arm_is_first_now_and_then() -> None:
    assert {int(shuffled_order(1, k, 5)[0]) for k in range(60)} == set(range(5))


@pytest.mark.parametrize("arms", [1, 2, 7])
def test_every_arm_runs_as_early_as_late(arms: int) -> None:
    places = np.array([np.argsort(shuffled_order(1, k, arms)) for k in range(20)])
    assert (places.mean(axis=0) == (arms - 1) / 2).all()


def test_settled_waits_for_the_noisy_contender_and_not_for_the_hopeless_one() -> None:
    rng = np.random.default_rng(0)
    quiet, noisy_rival = noisy(rng, 1e-5, 0.01), noisy(rng, 1e-5, 0.5)
    noisy_loser = noisy(rng, 9e-5, 0.5)
    assert is_precise_enough(np.column_stack([quiet, quiet]), 0.03)
    assert not is_precise_enough(np.column_stack([quiet, noisy_rival]), 0.03)
    assert is_precise_enough(np.column_stack([quiet, noisy_loser]), 0.03)


def test_settled_waits_for_every_size_of_a_ladder() -> None:
    rng = np.random.default_rng(0)
    short, long = noisy(rng, 1e-6, 0.01), noisy(rng, 1e-3, 0.5)
    assert is_precise_enough(np.column_stack([short, long]), 0.03)
    assert not is_precise_enough(np.column_stack([short, long]), 0.03, is_comparison=False)


def test_settled_always_wants_the_reference_precise() -> None:
    rng = np.random.default_rng(0)
    slow_reference, best = noisy(rng, 9e-5, 0.5), noisy(rng, 1e-5, 0.01)
    assert not is_precise_enough(np.column_stack([slow_reference, best]), 0.03)


def test_settled_needs_the_fewest_samples_however_alike_they_are() -> None:
    assert not is_precise_enough(np.ones((MIN_REPETITIONS - 1, 2)), 0.03)
    assert is_precise_enough(np.ones((MIN_REPETITIONS, 2)), 0.03)


def test_looks_grow_rarer() -> None:
    looks = [next_check(0)]
    while looks[-1] < MAX_REPETITIONS:
        looks.append(next_check(looks[-1]))
    assert looks[0] == MIN_REPETITIONS
    assert len(looks) < 30


def test_account_hands_unused_seconds_to_later_points() -> None:
    account = TimeBudget(10.0, [1.0, 1.0, 2.0])
    assert account.allot(1.0) == pytest.approx(2.5)
    account.spend(0.5)
    assert account.allot(1.0) == pytest.approx(9.5 / 3)
    account.spend(20.0)
    assert account.allot(2.0) == 0.0


@pytest.mark.parametrize(("count", "below"), [(5, 0), (6, 0), (9, 1), (20, 5), (100, 39)])
def test_median_interval_uses_the_binomial_order_statistics(count: int, below: int) -> None:
    assert median_interval(range(count)) == ((count - 1) / 2, below, count - 1 - below)


def test_median_interval_covers_the_median_and_is_not_wasteful() -> None:
    rng = np.random.default_rng(1)
    trials = [median_interval(rng.lognormal(size=25).tolist()) for _ in range(800)]
    covered = np.mean([low <= 1.0 <= high for _, low, high in trials])
    assert 0.94 < covered < 0.99


def test_median_interval_of_very_many_samples() -> None:
    median, low, high = median_interval(range(5001))
    assert median == 2500
    assert 2400 < low < 2500 < high < 2600


def test_relative_half_width_is_unknown_for_two_samples() -> None:
    assert relative_half_width([1.0] * 2) == float("inf")
    assert relative_half_width([1.0] * 3) == 0.0


@pytest.mark.parametrize("count", [3, 4, 5])
def test_relative_half_width_of_few_samples_is_that_of_student(count: int) -> None:
    rng = np.random.default_rng(2)
    trials = rng.lognormal(sigma=0.02, size=(4000, count))
    covered = [abs(np.log(own).mean()) <= relative_half_width(own) for own in trials]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize(
    ("seconds", "repetitions", "warm_ups"),
    [(1e-6, 12, 3), (0.004, 12, 3), (0.005, 10, 3), (0.015, 4, 3), (0.025, 3, 2), (60.0, 3, 2)],
)
def test_long_calls_have_fewer_repetitions(seconds: float, repetitions: int, warm_ups: int) -> None:
    assert fewest_repetitions(MIN_REPETITIONS, seconds) == repetitions
    assert warm_up_repetitions(seconds) == warm_ups


def test_the_fastest_candidate_decides_and_the_mean_of_a_series() -> None:
    seconds = np.array([0.2] + 9 * [1e-4])
    assert RepetitionRule(12, 0.05, True, seconds).fewest == 12
    assert RepetitionRule(12, 0.05, False, seconds).fewest == 3


def test_a_disturbed_warm_up_is_forgotten_once_samples_are_short() -> None:
    rule = RepetitionRule(12, 0.05, True, np.array([0.03]))
    assert rule.next_look == rule.fewest == 3
    rule.look(np.full((3, 1), 1e-3), np.array([1]))
    assert (rule.fewest, rule.next_look, rule.is_met) == (12, 12, False)
    rule.look(np.full((12, 1), 1e-3), np.array([1]))
    assert rule.is_met


def test_samples_of_several_calls_are_as_long_as_these() -> None:
    rule = RepetitionRule(12, 0.05, True, np.array([0.03]))
    rule.look(np.full((3, 1), 1e-3), np.array([30]))
    assert rule.is_met


def test_a_contender_of_three_samples_has_the_interval_of_student() -> None:
    best, slower = [1.0, 1.001, 1.002], [1.3, 1.45, 1.6]  # beyond 1.15 times the best by luck
    assert not is_precise_enough(np.array([best, slower]).T, 0.05, min_repetitions=3)
    assert is_precise_enough(np.array([best, [2.0, 2.1, 2.2]]).T, 0.05, min_repetitions=3)


def test_long_calls_never_have_more_repetitions_than_are_asked_for() -> None:
    assert fewest_repetitions(2, 60.0) == 2


@pytest.mark.parametrize("count", [3, 5])
def test_few_repetitions_of_equal_calls_hardly_ever_differ_at_the_level_of_a_choice(
    count: int,
) -> None:
    rng, level = np.random.default_rng(3), 1 - 0.05 / 20  # of twenty candidates
    trials = rng.lognormal(sigma=0.2, size=(2000, 2, count))
    lows = [paired_speedup([a], [b], level)[1] for a, b in trials.tolist()]
    assert np.mean(np.array(lows) > 1.0) <= 0.004  # 0.00125 are nominal


def test_paired_gain_cancels_what_hits_both() -> None:
    rng = np.random.default_rng(2)
    disturbance = rng.lognormal(sigma=0.5, size=80)
    default = 2e-5 * disturbance
    chosen = 1e-5 * disturbance * rng.lognormal(sigma=0.01, size=80)
    gain, low, high = paired_speedup([default.tolist()], [chosen.tolist()])
    assert low < 2.0 < high
    assert high - low < 0.15  # unpaired, this disturbance would make it wider than 0.5
    assert gain == pytest.approx(midmean(default) / midmean(chosen))


def test_what_is_typical_is_the_mean_of_the_middle_half() -> None:
    assert midmean([4.0, 1.0, 2.0, 900.0]) == 3.0
    assert midmean([900.0, 1.0, 2.0]) == 2.0  # of fewer than four the median
    assert midmean([1.0, 3.0]) == 2.0
    rows = np.arange(16.0).reshape(2, 8) ** 2
    assert midmean(rows) == pytest.approx([rows[0, 2:6].mean(), rows[1, 2:6].mean()])


def test_a_call_that_takes_one_of_two_times_is_known_sooner_than_by_medians() -> None:
    """As chance has it; the mean lies between, and so does what a program waits for."""
    rng = np.random.default_rng(7)
    long = midmean(rng.choice([1.3e-1, 2.2e-1], 10**5))
    taken = rng.choice([1.3e-1, 2.2e-1], (300, 8))
    found = [mean_over_launches([some.tolist()]) for some in taken]
    off = np.mean([abs(math.log(each[0] / long)) for each in found])
    assert off < 0.75 * np.mean(np.abs(np.log(np.median(taken, axis=1) / long)))
    assert np.mean([low <= long <= high for _, low, high in found]) >= 0.9


def test_paired_gain_refuses_series_of_different_length() -> None:
    with pytest.raises(ValueError, match="not paired"):
        paired_speedup([[1.0, 2.0]], [[1.0]])


def test_launches_that_disagree_settle_nothing() -> None:
    """Twice as fast in two launches, twice as slow in two: repetitions cannot outvote launches."""
    steady = [[1e-5] * 100] * 4
    swinging = [[0.5e-5] * 100, [2e-5] * 100] * 2
    gain, low, high = paired_speedup(steady, swinging)
    assert gain == pytest.approx(1.0)
    assert low < 0.8
    assert high > 1.25
    centre, lowest, highest = mean_over_launches(swinging)
    assert centre == pytest.approx(1e-5)
    assert lowest < 0.6e-5 < 1.7e-5 < highest
    assert mean_over_launches(steady) == pytest.approx((1e-5, 1e-5, 1e-5))


def test_a_gain_in_every_launch_is_one() -> None:
    rng = np.random.default_rng(4)
    placements = [1e-5, 3e-5, 1e-5, 2e-5]
    default = [(t * rng.lognormal(sigma=0.05, size=40)).tolist() for t in placements]
    chosen = [(t / 1.2 * rng.lognormal(sigma=0.05, size=40)).tolist() for t in placements]
    gain, low, high = paired_speedup(default, chosen)
    assert 1.15 < low < gain < high < 1.25


def share(intervals: Iterable[tuple[float, float, float]], truth: float) -> float:
    """Of those that hold the truth."""
    return float(np.mean([low <= truth <= high for _, low, high in intervals]))


@pytest.mark.parametrize("count", [6, 8])
def test_intervals_of_few_samples_hold_the_truth_as_often_as_they_say(count: int) -> None:
    """Calls take one of two times as chance has it; resamples of so few spread too little."""
    rng = np.random.default_rng(11)
    size = (600, 2, count)
    taken = rng.choice([1e-5, 1.5e-5], size) * rng.lognormal(sigma=0.01, size=size)
    pairs = [([(1.2 * slow).tolist()], [fast.tolist()]) for slow, fast in taken]
    assert share((paired_speedup(*pair) for pair in pairs), 1.2) >= 0.95


def launched(
    rng: np.random.Generator, seconds: float, launches: int, apart: float, repetitions: int = 8
) -> list[list[float]]:
    """Of launches that are `apart`; repetitions differ by 5 %."""
    typical = seconds * rng.lognormal(sigma=apart, size=launches)
    return [noisy(rng, own, 0.05, repetitions).tolist() for own in typical]


@pytest.mark.parametrize(("launches", "apart"), [(2, 0.1), (3, 0.3), (6, 0.02)])
def test_intervals_of_few_launches_hold_the_truth_as_often_as_they_say(
    launches: int, apart: float
) -> None:
    rng = np.random.default_rng(12)
    pairs = [
        (launched(rng, 1.2e-5, launches, apart), launched(rng, 1e-5, launches, apart))
        for _ in range(600)
    ]
    assert 0.93 <= share((paired_speedup(*pair) for pair in pairs), 1.2) <= 0.97
    assert 0.93 <= share((mean_over_launches(default) for default, _ in pairs), 1.2e-5) <= 0.97


def test_one_launch_is_as_uncertain_as_launches_usually_are_apart() -> None:
    """However many repetitions it has."""
    rng, usual = np.random.default_rng(13), 0.015
    alone = [launched(rng, 1e-5, 1, usual, 40) for _ in range(600)]
    pairs = [(launched(rng, 1.2e-5, 1, usual, 40), launched(rng, 1e-5, 1, 0.0, 40)) for _ in alone]
    assert 0.93 <= share(map(mean_over_launches, alone), 1e-5) <= 0.98
    assert 0.93 <= share((paired_speedup(*pair) for pair in pairs), 1.2) <= 0.98
