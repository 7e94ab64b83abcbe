"""What guesses at other node counts reach, and what would stand in the way of more:

    python -m tests.bench.guesses FILE...

Of results that `tuner evaluate` reads, one node count left out in turn. First, for every set: the
regret of the selector, by how much it is above the better one of the nearest winner and the default
(with the 95 % interval of a bootstrap over calls), and where files have several runs of one call,
the regret of what was the fastest in another run of the very same call: no selector knows more.

Then what keeping the default would give unless the selector believes in a gain over it, of so many
percent or so many deviations: of how many sets the regret is at or below that of both baselines,
how many are slower than the default in at most 1 % of the calls, and how many save 90 % of its
regret.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tuner.cli.output import print_table
from tuner.results import read_results
from tuner.select.baselines import nearest
from tuner.select.cases import NODES, Case, cases_of_results, folds, sets
from tuner.select.dataset import Point
from tuner.select.evaluate import OURS, blind, contestants, is_slower
from tuner.select.selector import train
from tuner.table import Choice

Array = NDArray[np.float64]

DEFAULT = Choice()
GAINS = (0.05, 0.1, 0.25, 0.5, 1.0, 3.0)
DEVIATIONS = (0.25, 0.5, 1.0, 2.0, 3.0)
RESAMPLES = 10_000
SLOWER, HEADROOM = 0.01, 0.9
EQUAL = 1e-9  # regrets that differ by rounding alone


@dataclass(frozen=True)
class Guess:
    """At a call that was left out: what is chosen, what was the fastest next door, and the gain
    over the default that is believed in, as a logarithm, with its deviation.
    """

    case: Case
    chosen: Choice
    copied: Choice
    gain: float
    deviation: float

    @property
    def default(self) -> float:
        """The default's regret; infinite where it was not measured."""
        return self.case.regret(DEFAULT) if DEFAULT in self.case.rows else math.inf


def guesses(cases: Sequence[Case]) -> list[Guess]:
    """At every call, by what was measured on other node counts; none where there are none."""
    found = []
    for known, asked in folds(cases, NODES):
        pick, copy = contestants(blind, ())[OURS](known), nearest(known)
        selector = train([row for case in known for row in case.rows.values()], blind)
        for case in asked:
            had = frozenset(case.rows)
            chosen = pick(case.point, had)
            believed = (0.0, 1.0)
            if DEFAULT in had and not chosen.is_default:
                belief = selector.belief(case.point, [chosen, DEFAULT])
                believed = belief.gain(chosen, DEFAULT)
            found.append(Guess(case, chosen, copy(case.point, had), *believed))
    return found


def regrets(found: Sequence[Guess], gain: float = -math.inf, deviations: float = 0.0) -> Array:
    """Of leaving the default only for a gain believed to be more than that."""
    return np.array([one.case.regret(taken(one, gain, deviations)) for one in found])


def taken(one: Guess, gain: float, deviations: float) -> Choice:
    """What is chosen then."""
    sure = one.gain > max(gain, deviations * one.deviation if deviations else gain)
    return one.chosen if sure else DEFAULT


def baseline(found: Sequence[Guess]) -> Array:
    """Regrets of the better one of the nearest winner and the default."""
    copied = np.array([one.case.regret(one.copied) for one in found])
    default = np.array([one.default for one in found])
    return min(copied, default, key=lambda own: float(own.mean()))


def above(found: Sequence[Guess]) -> tuple[float, float, float]:
    """By how much the mean regret is above the baseline's, and the 95 % interval."""
    more = regrets(found) - baseline(found)
    drawn = np.random.default_rng(1).integers(0, len(more), (RESAMPLES, len(more)))
    low, high = np.quantile(more[drawn].mean(axis=1), (0.025, 0.975))
    return float(more.mean()), float(low), float(high)


def repeated(cases: Sequence[Case]) -> Iterator[tuple[float, bool]]:
    """Of what was the fastest in one run of a call in every other run of it that has it: regret,
    and whether it is slower than the default.
    """
    runs: dict[Point, list[Case]] = defaultdict(list)
    for case in cases:
        runs[case.point].append(case)
    for own in runs.values():
        for one, other in permutations(own, 2):
            both = [choice for choice in one.rows if choice in other.rows]
            if both:
                best = min(both, key=lambda choice: one.rows[choice].typical)
                yield other.regret(best), DEFAULT in other.rows and is_slower(other, best)


def print_sets(named: Mapping[str, Sequence[Guess]]) -> None:
    """One line each."""
    rows = []
    for name, found in named.items():
        own, (more, low, high) = regrets(found), above(found)
        again = list(repeated([one.case for one in found]))
        floor = np.array([regret for regret, _ in again])
        rows.append((
            name, str(len(found)), _mean(own), _mean(baseline(found)),
            f"{100 * more:+.2f} ({100 * low:+.2f} to {100 * high:+.2f})",
            _mean(floor) if again else "",
            f"{np.mean([slower for _, slower in again]):.0%}" if again else "",
        ))  # fmt: skip
    columns = ("set", "calls", "regret", "better baseline", "above it", "another run", "slower")
    print_table("one node count left out: regret, % (mean/p95)", columns, rows, right=columns[1:])


def _mean(own: Array) -> str:
    return f"{100 * own.mean():.2f}/{100 * np.quantile(own, 0.95):.1f}"


def print_thresholds(named: Mapping[str, Sequence[Guess]]) -> None:
    """One line for each way of being sure, of the sets with a default."""
    having = [own for own in named.values() if all(math.isfinite(one.default) for one in own)]
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
        own, default = regrets(found, gain, deviations), np.array([one.default for one in found])
        slower = [is_slower(one.case, taken(one, gain, deviations)) for one in found]
        held.append((
            own.mean() <= baseline(found).mean() + EQUAL, np.mean(slower) <= SLOWER,
            1 - own.mean() / default.mean() >= HEADROOM,
        ))  # fmt: skip
    return (*(str(sum(own)) for own in zip(*held, strict=True)), str(sum(map(all, held))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What guesses reach, and could.")
    parser.add_argument("files", type=Path, nargs="+")
    every = {
        name: guesses(own)
        for path in parser.parse_args().files
        for name, own in sets(cases_of_results(read_results(path))).items()
        if len({choice for case in own for choice in case.rows}) > 1
    }
    learned = {name: found for name, found in every.items() if found}
    print_sets(learned)
    print_thresholds(learned)
