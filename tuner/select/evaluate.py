"""Evaluation of selectors and baselines on calls that they have not seen.

Regret is the time of the chosen algorithm over the time of the best one, minus one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.base.statistics import CONFIDENCE
from tuner.core.table import AlgorithmChoice
from tuner.select.baselines import BASELINES, SelectFunction, Trainer, default_or_first
from tuner.select.cases import EvaluationCase, Fold, folds, from_machine, with_alternatives
from tuner.select.dataset import (
    CallPoint,
    DefaultRuns,
    Observation,
    SimulateFunction,
    group_by,
    no_simulation,
    unknown_default,
)
from tuner.select.selector import train

TUNER, TUNER_GUARDED = "tuner", "tuner, if sure"
DEFAULT_LABEL, BEST_SINGLE = "default", "best single"
_N_RESAMPLES = 1000  # of the bootstrap
_SEED = 1  # of the bootstrap
MIN_SLOWDOWN = 0.02  # relative; smaller differences, or ones within uncertainty, do not count


@dataclass(frozen=True)
class RegretSummary:
    """A summary of the regret over `points` calls, unweighted: 0.1 is 10 % slower than the best.

    The minimum of noisy times is a little better than the truth, so that even a perfect selection
    has some regret, which `tuner.select.noise_floor` tells.

    interval    95 % interval of the mean, by bootstrap over the calls
    """

    mean: float
    interval: tuple[float, float]
    p95: float
    worst: float
    points: int


@dataclass(frozen=True)
class Score:
    """The score of one selector on one set of cases.

    regret              summary of its regrets
    slower_fraction     fraction of cases in which it is slower than the default beyond noise
    regret_reduction    fraction of the default's mean regret that it saves; both are NaN without
                        a default
    """

    regret: RegretSummary
    slower_fraction: float
    regret_reduction: float

    def to_record(self) -> dict[str, Any]:
        """Return the score as JSON data, without what needs a default that was not measured."""
        known = {"slower": self.slower_fraction, "headroom": self.regret_reduction}
        return asdict(self.regret) | {k: v for k, v in known.items() if not math.isnan(v)}


def summarise_regret(losses: Sequence[float]) -> RegretSummary:
    """Summarise the regrets of single calls; raise InputError if there are none."""
    if not losses:
        raise InputError("there are no points to evaluate regret on; probe three sizes or more")
    return RegretSummary(
        float(np.mean(losses)),
        _bootstrap_interval(np.array(losses)),
        float(np.quantile(losses, 0.95)),
        max(losses),
        len(losses),
    )


def _bootstrap_interval(losses: FloatArray) -> tuple[float, float]:
    """Return the percentile interval of the mean."""
    drawn = np.random.default_rng(_SEED).choice(losses, (_N_RESAMPLES, len(losses)))
    low, high = np.quantile(drawn.mean(axis=1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


Selections = Mapping[str, Sequence[tuple[EvaluationCase, AlgorithmChoice]]]  # by selector


def evaluate(
    cases: Sequence[EvaluationCase],
    protocol: str,
    trainers: Mapping[str, Trainer],
    progress: ProgressCallback = no_progress,
) -> dict[str, Score]:
    """Return the scores of trained selectors by name, as `selections` selects."""
    return score_selections(selections(cases, folds(cases, protocol), trainers, progress=progress))


def selections(
    cases: Sequence[EvaluationCase],
    parts: Sequence[Fold],
    trainers: Mapping[str, Trainer],
    fixed_selectors: Mapping[str, SelectFunction] = MappingProxyType({}),
    progress: ProgressCallback = no_progress,
) -> Selections:
    """Return the selections of trained and fixed selectors at the calls that are held out.

    parts           cases to train on, with those to select at; if there are none, fixed selectors
                    select at all `cases`
    trainers        trained on the former and asked about the latter
    fixed_selectors need no training; they are asked about all cases that they decide
    progress        called before each training

    The default selects if it was measured, and so does `BEST_SINGLE`, the choice with the least
    total regret over all groups, if one was measured in all cases. Cases with a single candidate
    are left out.
    """
    asked = with_alternatives([case for _, own in parts for case in own] if parts else cases)
    if not asked:
        return {}
    fixed = dict(fixed_selectors)
    if asked[0].default:
        fixed = {DEFAULT_LABEL: lambda _, choices: default_or_first(choices), **fixed}
    single = _best_single(asked)
    if single is not None:
        fixed[BEST_SINGLE] = lambda _point, _choices: single
    picked: dict[str, list[tuple[EvaluationCase, AlgorithmChoice]]] = defaultdict(list)
    lessons = list(product(trainers, parts))
    for done, (name, (known, own)) in enumerate(lessons):
        progress(done, len(lessons))
        for group, theirs in group_by(with_alternatives(own), lambda case: case.group).items():
            pick = trainers[name](from_machine(known, group))
            picked[name] += _measured_selections(pick, theirs)
    return picked | {name: list(_measured_selections(pick, asked)) for name, pick in fixed.items()}


def score_selections(picked: Selections) -> dict[str, Score]:
    """Return the scores of selections, by selector."""
    return {name: _score(pairs) for name, pairs in picked.items() if pairs}


# Given a library, such as "openmpi 4.1.6".
LibraryDefaults = Callable[[str], DefaultRuns]


def selector_trainers(
    simulate: SimulateFunction = no_simulation,
    baselines: Collection[str] = tuple(BASELINES),
    library_defaults: LibraryDefaults = lambda _: unknown_default,
) -> dict[str, Trainer]:
    """Return trainers of our selector and of these baselines.

    library_defaults    what the default of each library runs
    """
    learn = partial(_train_selector, simulate=simulate, library_defaults=library_defaults)
    ours = {TUNER: partial(learn, is_guarded=False), TUNER_GUARDED: partial(learn, is_guarded=True)}
    return {**ours, **{name: BASELINES[name] for name in baselines}}


def _train_selector(
    cases: Sequence[EvaluationCase],
    simulate: SimulateFunction,
    library_defaults: LibraryDefaults,
    is_guarded: bool,
) -> SelectFunction:
    rows = [row for case in cases for row in case.observations.values()]
    selector = train(rows, simulate, default_runs=library_defaults(_own_library(cases)))
    usual = _most_frequent(cases)

    def pick(point: CallPoint, choices: Collection[AlgorithmChoice]) -> AlgorithmChoice:
        ask = selector.choose_guarded if is_guarded else selector.choose
        chosen = ask(point, choices)
        if chosen in choices:
            return chosen
        return usual if usual in choices else default_or_first(choices)

    return pick


def _own_library(cases: Sequence[EvaluationCase]) -> str:
    """Return the library of the machine in question; "" without times of its default.

    It is "" for calls of several functions of MPI, too, which have rules of their own.
    """
    own = {case.library for case in cases if case.default and not case.default.machine}
    return own.pop() if len(own) == 1 else ""


def _most_frequent(cases: Sequence[EvaluationCase]) -> AlgorithmChoice:
    """Return the most frequent winner, a fallback for tables without a default."""
    return Counter(case.fastest for case in cases).most_common(1)[0][0]


def _measured_selections(
    pick: SelectFunction, cases: Sequence[EvaluationCase]
) -> Iterator[tuple[EvaluationCase, AlgorithmChoice]]:
    """Yield each case with the selected choice, where that was measured."""
    for case in cases:
        choice = pick(case.point, frozenset(case.observations))
        if choice in case.observations:
            yield case, choice


def _best_single(cases: Sequence[EvaluationCase]) -> AlgorithmChoice | None:
    everywhere = set.intersection(*(set(case.observations) for case in cases))
    return min(
        sorted(everywhere, key=str),
        default=None,
        key=lambda choice: sum(case.regret(choice) for case in cases),
    )


def _score(picked: Sequence[tuple[EvaluationCase, AlgorithmChoice]]) -> Score:
    losses = [case.regret(choice) for case, choice in picked]
    if not all(case.default for case, _ in picked):
        return Score(summarise_regret(losses), math.nan, math.nan)
    slower = [is_slower(case, choice) for case, choice in picked]
    before = float(np.mean([case.regret(AlgorithmChoice()) for case, _ in picked]))
    headroom = 1 - float(np.mean(losses)) / before if before > 0 else math.nan
    return Score(summarise_regret(losses), float(np.mean(slower)), headroom)


def is_slower(case: EvaluationCase, choice: AlgorithmChoice) -> bool:
    """Return whether a choice is slower than the default beyond noise."""
    chosen, default = case.observations[choice], case.observations[AlgorithmChoice()]
    return chosen.seconds > default.seconds * (
        1 + max(MIN_SLOWDOWN, _relative_half_width(chosen), _relative_half_width(default))
    )


def _relative_half_width(observation: Observation) -> float:
    """Return half the width of the interval of a time, relative to the time."""
    return (observation.high - observation.low) / (2 * observation.seconds)
