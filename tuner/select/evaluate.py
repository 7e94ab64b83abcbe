"""How good a selector is on calls that it has not seen, and how good simple ones are there."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import MappingProxyType

import numpy as np

from tuner.base.progress import Counted, quietly
from tuner.core.table import Choice
from tuner.select.baselines import BASELINES, Pick, Trainer, first
from tuner.select.cases import Case, folds
from tuner.select.dataset import Point, Row, Simulate
from tuner.select.regret import Regret, summary
from tuner.select.selector import train

OURS, SURE = "tuner", "tuner, if sure"
DEFAULT, SINGLE = "default", "best single"
LEAST = 0.02  # slower by more than this, or than the times are known to, counts as slower


def blind(_point: Point, _choice: Choice) -> float:
    """Simulate nothing."""
    return math.nan


@dataclass(frozen=True)
class Score:
    """Of one selector on one set of cases.

    slower      the share of cases in which it is slower than the default beyond noise
    headroom    which part of the default's mean regret it saves; both NaN without a default
    """

    regret: Regret
    slower: float
    headroom: float


def evaluate(
    cases: Sequence[Case],
    protocol: str,
    trainers: Mapping[str, Trainer],
    tables: Mapping[str, Pick] = MappingProxyType({}),
    on_progress: Counted = quietly,
) -> dict[str, Score]:
    """The scores of those who learn from some cases and choose in the others.

    tables          those who have nothing to learn; they are scored on all cases that they decide
    on_progress     hears of everybody who has learned and chosen

    The default is among them where it was measured, and `SINGLE`, the one choice that would have
    been best in all cases, where one was measured in all. Those who learn are scored only where
    the protocol leaves something to learn from. Cases with one choice alone are not scored.
    """
    scored = with_choice(cases)
    if not scored:
        return {}
    fixed = dict(tables)
    if Choice() in scored[0].rows:
        fixed = {DEFAULT: lambda _, choices: first(choices), **fixed}
    single = _best_single(scored)
    if single is not None:
        fixed[SINGLE] = partial(_always, single)
    picked: dict[str, list[tuple[Case, Choice]]] = defaultdict(list)
    lessons = list(product(trainers, folds(cases, protocol)))
    for done, (name, (known, asked)) in enumerate(lessons):
        on_progress(done, len(lessons))
        picked[name] += _picked(trainers[name](known), with_choice(asked))
    picked |= {name: list(_picked(pick, scored)) for name, pick in fixed.items()}
    return {name: _score(pairs) for name, pairs in picked.items() if pairs}


def with_choice(cases: Sequence[Case]) -> list[Case]:
    """Those of several candidates: with one alone nobody can be wrong."""
    return [case for case in cases if len(case.rows) > 1]


def contestants(
    simulate: Simulate = blind, names: Collection[str] = tuple(BASELINES)
) -> dict[str, Trainer]:
    """Our selector and the baselines of these names."""
    return {
        OURS: lambda cases: _selector(cases, simulate, surely=False),
        SURE: lambda cases: _selector(cases, simulate, surely=True),
        **{name: BASELINES[name] for name in names},
    }


def _selector(cases: Sequence[Case], simulate: Simulate, surely: bool) -> Pick:
    rows = [row for case in cases for row in case.rows.values()]
    selector = train(rows, simulate)
    usual = _most_frequent(cases)

    def pick(point: Point, choices: Collection[Choice]) -> Choice:
        ask = selector.choose_surely if surely else selector.choose
        chosen = ask(point, choices)
        if chosen in choices:
            return chosen
        return usual if usual in choices else first(choices)

    return pick


def _always(choice: Choice, _point: Point, _choices: Collection[Choice]) -> Choice:
    return choice


def _most_frequent(cases: Sequence[Case]) -> Choice:
    """For tables without a default: who wins most often."""
    winners = Counter(min(case.rows, key=lambda c: case.rows[c].typical) for case in cases)
    return winners.most_common(1)[0][0]


def _picked(pick: Pick, cases: Sequence[Case]) -> Iterator[tuple[Case, Choice]]:
    """What is chosen where that was measured."""
    for case in cases:
        choice = pick(case.point, frozenset(case.rows))
        if choice in case.rows:
            yield case, choice


def _best_single(cases: Sequence[Case]) -> Choice | None:
    everywhere = set.intersection(*(set(case.rows) for case in cases))
    return min(
        sorted(everywhere, key=str),
        default=None,
        key=lambda choice: sum(case.regret(choice) for case in cases),
    )


def _score(picked: Sequence[tuple[Case, Choice]]) -> Score:
    losses = [case.regret(choice) for case, choice in picked]
    if any(Choice() not in case.rows for case, _ in picked):
        return Score(summary(losses), math.nan, math.nan)
    slower = [is_slower(case, choice) for case, choice in picked]
    before = float(np.mean([case.regret(Choice()) for case, _ in picked]))
    headroom = 1 - float(np.mean(losses)) / before if before > 0 else math.nan
    return Score(summary(losses), float(np.mean(slower)), headroom)


def is_slower(case: Case, choice: Choice) -> bool:
    """Whether it is slower than the default beyond noise."""
    chosen, default = case.rows[choice], case.rows[Choice()]
    return chosen.typical > default.typical * (1 + max(LEAST, _width(chosen), _width(default)))


def _width(row: Row) -> float:
    """Half the width of the interval of a time, relative."""
    return (row.high - row.low) / (2 * row.typical)
