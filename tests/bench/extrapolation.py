"""What guesses at other node counts lose, and what keeping the default more often would change:

    python -m tests.bench.extrapolation FILE...

Of results that `tuner evaluate` reads, one node count left out in turn. First, for every set: the
regret of the selector, how often it is slower than the default, and by how much its regret is above
that of the better one of the nearest winner and the default, with the 95 % interval of a bootstrap
over calls, all runs of a call together, in which the better one is found anew: it holds for these
node counts.

Then, where files have several runs of a call, what the other runs of it tell: for these calls the
regret of the selector, of what was the fastest in the mean of all other runs, and of the one choice
for each call that is best over all its runs.

Last, what is lost if the default stays unless a gain over it is believed in, of so many percent or
so many deviations, by the belief that rules rest on: in how many sets with a default the regret is
at or below that of both baselines, at most 1 % of the calls are slower than the default, and 90 %
of its regret is saved; and in how many all three.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import FloatArray
from tuner.cli.terminal.output import print_table
from tuner.core.table import AlgorithmChoice
from tuner.importers import read_results
from tuner.select.baselines import train_nearest_winner
from tuner.select.cases import (
    LEAVE_NODE_COUNT_OUT,
    EvaluationCase,
    cases_from_readings,
    folds,
    group_cases,
    with_alternatives,
)
from tuner.select.dataset import CallPoint, no_simulation
from tuner.select.evaluate import is_slower
from tuner.select.selector import train

DEFAULT = AlgorithmChoice()
GAINS = (0.05, 0.1, 0.25, 0.5, 1.0, 3.0)
DEVIATIONS = (0.25, 0.5, 1.0, 2.0, 3.0)
RESAMPLES = 2000
SLOWER = 0.01
HEADROOM = 0.9
EQUAL = 1e-9  # regrets that differ by rounding alone


@dataclass(frozen=True)
class Guess:
    """At a call that was left out: what is chosen, what was the fastest next door, and the gain
    over the default that is believed in, as a logarithm, with its deviation.
    """

    case: EvaluationCase
    chosen: AlgorithmChoice
    copied: AlgorithmChoice
    gain: float = 0.0
    deviation: float = 0.0

    @property
    def regrets(self) -> tuple[float, float, float]:
        """Of what is chosen, of the copy, and of the default; infinite where that lacks."""
        own = self.case.regret
        return own(self.chosen), own(self.copied), own(DEFAULT) if self.has_default else math.inf

    @property
    def has_default(self) -> bool:
        """Whether it was measured."""
        return DEFAULT in self.case.observations

    def taken(self, gain: float, deviations: float) -> AlgorithmChoice:
        """The default unless a larger gain than that is believed in."""
        return self.chosen if self.gain > gain + deviations * self.deviation else DEFAULT


def guesses(cases: Sequence[EvaluationCase]) -> list[Guess]:
    """At every call, by what was measured on other node counts; none where there are none. Where
    what is chosen was not measured the copy stands for it.
    """
    found = []
    for known, asked in folds(cases, LEAVE_NODE_COUNT_OUT):
        selector = train(
            [row for case in known for row in case.observations.values()], no_simulation
        )
        copy = train_nearest_winner(known)
        for case in with_alternatives(asked):
            had = frozenset(case.observations)
            chosen, copied = selector.choose(case.point, had), copy(case.point, had)
            guess = Guess(case, chosen if chosen in had else copied, copied)
            if guess.has_default and not guess.chosen.is_default:
                belief = selector.posterior(case.point, [guess.chosen, DEFAULT])
                guess = Guess(case, chosen, copied, *belief.log_gain(chosen, DEFAULT))
            found.append(guess)
    return found


def above(found: Sequence[Guess]) -> tuple[float, float, float]:
    """By how much the mean regret is above the better baseline's, and the 95 % interval."""
    calls: dict[CallPoint, list[tuple[float, float, float]]] = defaultdict(list)
    for one in found:
        calls[one.case.point].append(one.regrets)
    sums = np.array([np.sum(own, axis=0) for own in calls.values()])
    counts = np.array([len(own) for own in calls.values()])

    def more(drawn: NDArray[np.intp]) -> FloatArray:
        means = sums[drawn].sum(axis=-2) / counts[drawn].sum(axis=-1)[..., None]
        return np.asarray(means[..., 0] - means[..., 1:].min(axis=-1))

    numbers = np.arange(len(counts))
    drawn = np.random.default_rng(1).integers(0, len(counts), (RESAMPLES, len(counts)))
    low, high = np.quantile(more(drawn), (0.025, 0.975))
    return float(more(numbers)), float(low), float(high)


def repeated(found: Sequence[Guess]) -> list[tuple[Guess, AlgorithmChoice, AlgorithmChoice]]:
    """At calls with several runs: what is the fastest in the mean of the others, and in all."""
    runs: dict[CallPoint, list[Guess]] = defaultdict(list)
    for one in found:
        runs[one.case.point].append(one)
    several = [own for own in runs.values() if len(own) > 1]
    return [
        (
            one,
            _fastest(one.case, [other.case for other in own if other is not one]),
            _fastest(one.case, [each.case for each in own]),
        )
        for own in several
        for one in own
    ]


def _fastest(case: EvaluationCase, runs: Sequence[EvaluationCase]) -> AlgorithmChoice:
    """Of the choices of a case that all these runs have; by their mean logarithm."""
    shared = set(case.observations).intersection(*(run.observations for run in runs))

    def mean(choice: AlgorithmChoice) -> float:
        return float(np.mean([math.log(run.observations[choice].seconds) for run in runs]))

    return min(sorted(shared, key=str), key=mean)


def print_sets(named: Mapping[str, Sequence[Guess]]) -> None:
    """One line each."""
    rows = []
    for name, found in named.items():
        own, copied, default = np.array([one.regrets for one in found]).T
        more, low, high = above(found)
        slower = [is_slower(one.case, one.chosen) for one in found if one.has_default]
        rows.append(
            (
                name,
                str(len(found)),
                _mean(own),
                f"{np.mean(slower):.0%}" if slower else "",
                _mean(copied),
                _mean(default) if slower else "",
                f"{100 * more:+.2f} ({100 * low:+.2f} to {100 * high:+.2f})",
            )
        )
    columns = ("set", "calls", "regret", "slower", "nearest", "default", "above the better one")
    print_table("one node count left out: regret, % (mean/p95)", columns, rows, right=columns[1:])


def print_repeated(named: Mapping[str, Sequence[Guess]]) -> None:
    """One line for each set that has such calls."""
    rows = []
    for name, found in named.items():
        again = repeated(found)
        own = np.array(
            [
                [one.case.regret(choice) for choice in (one.chosen, others, every)]
                for one, others, every in again
            ]
        )
        if again:
            rows.append((name, str(len(again)), *map(_mean, own.T)))
    columns = ("set", "runs", "regret", "by the other runs", "one choice for all runs")
    print_table("calls with several runs: regret, % (mean/p95)", columns, rows, right=columns[1:])


def _mean(own: FloatArray) -> str:
    return f"{100 * own.mean():.2f}/{100 * np.quantile(own, 0.95):.1f}"


def print_thresholds(named: Mapping[str, Sequence[Guess]]) -> None:
    """One line for each way of being sure, of the sets whose default has some regret."""
    having = [own for own in named.values() if all(one.has_default for one in own)]
    ways = [("always", -math.inf, 0.0)]
    ways += [(f"gain above {gain:.0%}", math.log1p(gain), 0.0) for gain in GAINS]
    ways += [(f"gain above {k:g} deviations", 0.0, k) for k in DEVIATIONS]
    rows = [(name, *counted(having, gain, k)) for name, gain, k in ways]
    columns = ("the default is left", "regret below both", "slower in 1 %", "headroom 90 %", "all")
    print_table(f"of {len(having)} sets with a default", columns, rows, right=columns[1:])


def counted(named: Sequence[Sequence[Guess]], gain: float, deviations: float) -> tuple[str, ...]:
    """Of how many sets each line holds, and all of them."""
    held = []
    for found in named:
        taken = [(one.case, one.taken(gain, deviations)) for one in found]
        mean = np.mean([case.regret(choice) for case, choice in taken])
        _, copied, default = np.array([one.regrets for one in found]).mean(axis=0)
        held.append(
            (
                mean <= min(copied, default) + EQUAL,
                np.mean([is_slower(*one) for one in taken]) <= SLOWER,
                mean <= (1 - HEADROOM) * default,
            )
        )
    return (*(str(sum(own)) for own in zip(*held, strict=True)), str(sum(map(all, held))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What guesses at other node counts lose.")
    parser.add_argument("files", type=Path, nargs="+")
    every = {
        name: guesses(own)
        for path in parser.parse_args().files
        for name, own in group_cases(cases_from_readings(read_results(path))).items()
        if len({choice for case in own for choice in case.observations}) > 1
    }
    learned = {name: found for name, found in every.items() if found}
    print_sets(learned)
    print_repeated(learned)
    print_thresholds(learned)
