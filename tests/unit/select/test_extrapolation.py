"""How calls on node counts that were not measured are guessed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint, Observation
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


def test_on_other_shapes_each_choice_keeps_its_own_costs() -> None:
    assert trained(on_lines()).choose(CallPoint("bcast", 4, 1, "host", 2**17)) == BINOMIAL
