"""How calls on node counts that were not measured are guessed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import pytest
from scipy.stats import ttest_1samp

from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint, Observation
from tuner.select.extrapolation import (
    BASE_MODE,
    ExtrapolationMode,
    SelectFunction,
    choose_mode_by_cross_validation,
)
from tuner.select.hockney_baseline import ROUGH_LINE, design_row, fit_per_algorithm, fit_pooled
from tuner.select.selector import Selector, train

DEFAULT = AlgorithmChoice()
BINOMIAL = AlgorithmChoice("binomial")
LINEAR = AlgorithmChoice("linear")
CHOICES = (DEFAULT, BINOMIAL, LINEAR)
SIZES = tuple(2**k for k in range(4, 24, 2))

Ratio = Callable[[int, int, AlgorithmChoice], float]  # of nodes, bytes


def rows_of(counts: Sequence[int], ratio: Ratio) -> list[Observation]:
    """Times that are such a ratio of 10 us per node."""
    return [
        row(CallPoint("bcast", n, 1, "host", nbytes), choice, 1e-5 * n * ratio(n, nbytes, choice))
        for n in counts
        for nbytes in SIZES
        for choice in CHOICES
    ]


def row(point: CallPoint, choice: AlgorithmChoice, time: float) -> Observation:
    return Observation(point, choice, {0: (time,)}, time, time, time)


def trained(rows: Sequence[Observation]) -> Selector:
    return train(rows, lambda _point, _choice: math.nan)


@pytest.mark.parametrize("per_node", [False, True])
def test_how_sizes_of_node_counts_compare_is_learned_from_those_measured(per_node: bool) -> None:
    """The linear one wins from 1448 bytes on, or from so many per node."""

    def ratio(nodes: int, nbytes: int, choice: AlgorithmChoice) -> float:
        size = nbytes / nodes if per_node else nbytes
        ratios: dict[AlgorithmChoice, float] = {
            DEFAULT: 4.0,
            BINOMIAL: 1.0,
            LINEAR: (1448 / size) ** 0.2,
        }
        return ratios[choice]

    selector = trained(rows_of((2, 4, 8), ratio))
    for nbytes in SIZES:
        best = min(CHOICES, key=lambda choice: ratio(32, nbytes, choice))
        assert selector.choose(CallPoint("bcast", 32, 1, "host", nbytes)) == best


@pytest.mark.representative("5", "16")
@pytest.mark.parametrize("nodes", [4, 5, 6, 7, 12, 16])
def test_that_powers_of_two_are_others_is_learned_from_those_measured(nodes: int) -> None:
    """The binomial one pairs ranks, and takes half as long again where one is left over."""

    def ratio(nodes: int, _nbytes: int, choice: AlgorithmChoice) -> float:
        alone = nodes & (nodes - 1) != 0
        return {DEFAULT: 4.0, BINOMIAL: 1.5 if alone else 1.0, LINEAR: 1.2}[choice]

    measured = [n for n in (2, 3, 4, 5, 6, 7, 8, 12, 16) if n != nodes]
    selector = trained(rows_of(measured, ratio))
    best = LINEAR if nodes & (nodes - 1) else BINOMIAL
    assert {selector.choose(CallPoint("bcast", nodes, 1, "host", n)) for n in SIZES} == {best}


def test_the_default_stays_where_what_wins_on_one_side_loses_on_the_other() -> None:
    """On 8 and 32 nodes something else wins by 10 % each, that loses half as much again there."""

    def ratio(nodes: int, _nbytes: int, choice: AlgorithmChoice) -> float:
        return (
            {DEFAULT: 1.1, BINOMIAL: 1.0, LINEAR: 1.6}[choice]
            if nodes == 8
            else {DEFAULT: 1.1, BINOMIAL: 1.6, LINEAR: 1.0}[choice]
        )

    selector = trained(rows_of((8, 32), ratio))
    for nodes in (4, 12, 16, 64):
        assert selector.choose(CallPoint("bcast", nodes, 1, "host", SIZES[3])) == DEFAULT


@pytest.mark.parametrize("worse", range(1, len(SIZES)))
def test_a_belief_is_left_for_a_default_that_surely_loses_less(worse: int) -> None:
    """The belief takes the binomial one: right, but half as slow again at so many sizes."""
    rows = rows_of(
        (8, 16),
        lambda _nodes, nbytes, choice: (
            1.0
            + 0.5
            * ((choice == BINOMIAL) == (nbytes in SIZES[:worse]) and choice in (BINOMIAL, DEFAULT))
            + 9.0 * (choice == LINEAR)
        ),
    )

    def learn(_rows: Sequence[Observation], way: ExtrapolationMode) -> SelectFunction:
        def choose(_point: CallPoint, _choices: Collection[AlgorithmChoice]) -> AlgorithmChoice:
            return BINOMIAL if way.follow_posterior else DEFAULT

        return choose

    saved = [0.5 if n < worse else -0.5 for n in range(len(SIZES))] * 2
    probability = ttest_1samp(saved, 0, alternative="greater").pvalue
    assert choose_mode_by_cross_validation(rows, learn) == ExtrapolationMode(
        follow_posterior=bool(probability >= 0.05)
    )
    assert (
        choose_mode_by_cross_validation(rows[: len(rows) // 2], learn) == BASE_MODE
    )  # one node count says nothing


def test_what_loses_at_both_sizes_around_does_not_win_in_between() -> None:
    """On four nodes the linear one loses to the binomial one at all sizes measured; far away it
    wins in the middle, so that a belief takes it to do so on four.
    """
    low, middle, high = SIZES[4:7]
    rows = [
        row(CallPoint("bcast", nodes, 1, "host", nbytes), choice, 1e-5 * ratio)
        for nodes, sizes in ((64, (low, middle, high)), (4, (low, high)))
        for nbytes in sizes
        for choice, ratio in {
            DEFAULT: 4.0,
            BINOMIAL: 1.0,
            LINEAR: 0.2 if nbytes == middle else 1.1,
        }.items()
    ]
    selector = trained(rows)
    asked = CallPoint("bcast", 4, 1, "host", middle)
    assert selector.posterior(asked, CHOICES).fastest == LINEAR
    assert selector.choose(asked) == BINOMIAL


LINES = {DEFAULT: (1e-4, 1e-9), BINOMIAL: (3e-5, 2e-10), LINEAR: (1e-6, 1e-9)}
MEASURED = tuple(
    2**k for k in range(5, 15, 3)
)  # up to 16 KiB, where the linear one wins throughout


def on_lines(nodes: int = 2) -> list[Observation]:
    """The binomial one would win from 37 kB on."""
    return [
        row(CallPoint("bcast", nodes, 1, "host", nbytes), choice, alpha + beta * nbytes)
        for nbytes in MEASURED
        for choice, (alpha, beta) in LINES.items()
    ]


@pytest.mark.parametrize("nbytes", [2**16, 2**17])
def test_beyond_measured_sizes_each_choice_follows_its_own_line(nbytes: int) -> None:
    selector = trained(on_lines())
    assert selector.choose(CallPoint("bcast", 2, 1, "host", nbytes)) == BINOMIAL
    assert selector.choose(CallPoint("bcast", 2, 1, "host", MEASURED[-1])) == LINEAR


def test_on_other_shapes_all_choices_follow_one_line() -> None:
    assert trained(on_lines()).choose(CallPoint("bcast", 4, 1, "host", 2**17)) == LINEAR


def test_lines_of_choices_are_found_and_what_they_leave_open_is_as_for_all() -> None:
    once = row(CallPoint("bcast", 2, 1, "host", MEASURED[1]), AlgorithmChoice("chain"), 7e-5)
    rows = [*on_lines(), once]
    common = fit_pooled(rows)
    found = fit_per_algorithm(rows, common)
    for choice, line in LINES.items():
        assert found[choice] == pytest.approx(line, rel=0.5)
    slower = 7e-5 / float(design_row(once.point) @ common)
    assert found[once.choice] == pytest.approx(slower * common)


@pytest.mark.parametrize(("alpha", "beta"), [(3e-5, 2e-9), (1e-2, 1e-9), (1e-6, 1e-11)])
def test_a_line_is_that_of_the_measurements_and_a_rough_one_without_any(
    alpha: float, beta: float
) -> None:
    """One row leaves open what a byte costs: it is as much more than the rough cost as a round."""
    assert fit_pooled([]) == pytest.approx(ROUGH_LINE)
    rows = [
        row(CallPoint("bcast", 2, 1, "host", nbytes), BINOMIAL, alpha + beta * nbytes)
        for nbytes in (64, 1024, 2**14, 2**18, 2**22)
    ]
    assert fit_pooled(rows) == pytest.approx((alpha, beta), rel=0.05)
    assert fit_pooled(rows[:1]) == pytest.approx(ROUGH_LINE * alpha / ROUGH_LINE[0], rel=0.1)
