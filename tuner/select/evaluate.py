"""How good a selector is on calls that it has not seen, and how good simple ones are there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.select.baselines import BASELINES, Pick, Trainer, first
from tuner.select.cases import Case, folds
from tuner.select.dataset import Point, Row, Simulate
from tuner.select.regret import Regret, summary
from tuner.select.selector import train
from tuner.table import Choice

OURS, SURE, SINGLE = "tuner", "tuner, if sure", "best single"
LEAST = 0.02  # slower by more than this, or than the times are known to, counts as slower

Tell = Callable[[str], None]


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
    cases: Sequence[Case], protocol: str, trainers: Mapping[str, Trainer]
) -> dict[str, Score]:
    """The scores of those who learn from a part of the cases and choose in the others.

    `SINGLE`, the one choice that would have been best in all of them, is there wherever one was
    measured everywhere; it and the default need not learn. Nobody else is scored where the
    protocol leaves nothing to learn from.
    """
    parts = folds(cases, protocol)
    scores = {}
    for name, trainer in trainers.items():
        taken = [("default", cases, cases)] if name == "default" else [("", *p) for p in parts]
        picked = [
            (case, choice) for _, known, asked in taken
            for case, choice in _picked(trainer(known), asked)
        ]  # fmt: skip
        if picked and (name != "default" or Choice() in cases[0].rows):
            scores[name] = _score(picked)
    single = _best_single(cases)
    if single is not None:
        scores[SINGLE] = _score([(case, single) for case in cases])
    return scores


def contestants(simulate: Simulate, names: Collection[str] = ()) -> dict[str, Trainer]:
    """Ours and the baselines; of the latter only those named, if any are."""
    kept = {name: BASELINES[name] for name in BASELINES if not names or name in names}
    return {
        OURS: lambda cases: _selector(cases, simulate, surely=False),
        SURE: lambda cases: _selector(cases, simulate, surely=True),
        **kept,
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


def _most_frequent(cases: Sequence[Case]) -> Choice:
    """For tables without a default: who wins most often."""
    winners = Counter(min(case.rows, key=lambda c: case.rows[c].median) for case in cases)
    return winners.most_common(1)[0][0]


def _picked(pick: Pick, cases: Sequence[Case]) -> Iterator[tuple[Case, Choice]]:
    for case in cases:
        yield case, pick(case.point, frozenset(case.rows))


def _best_single(cases: Sequence[Case]) -> Choice | None:
    everywhere = set.intersection(*(set(case.rows) for case in cases))
    return min(
        sorted(everywhere, key=str), default=None,
        key=lambda choice: sum(case.regret(choice) for case in cases),
    )  # fmt: skip


def _score(picked: Sequence[tuple[Case, Choice]]) -> Score:
    losses = [case.regret(choice) for case, choice in picked]
    if any(Choice() not in case.rows for case, _ in picked):
        return Score(summary(losses), math.nan, math.nan)
    slower = [_slower(case, choice) for case, choice in picked]
    before = float(np.mean([case.regret(Choice()) for case, _ in picked]))
    headroom = 1 - float(np.mean(losses)) / before if before > 0 else math.nan
    return Score(summary(losses), float(np.mean(slower)), headroom)


def _slower(case: Case, choice: Choice) -> bool:
    chosen, default = case.rows[choice], case.rows[Choice()]
    return chosen.median > default.median * (1 + max(LEAST, _width(chosen), _width(default)))


def _width(row: Row) -> float:
    """Half the width of the interval of a time, relative."""
    return (row.high - row.low) / (2 * row.median)
