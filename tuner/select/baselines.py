"""Simple ways of choosing, for a selector to be better than."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.neighbors import KNeighborsRegressor

from tuner.core.table import Choice
from tuner.select.cases import Case
from tuner.select.dataset import Point

Pick = Callable[[Point, Collection[Choice]], Choice]  # one of those that can be had
Trainer = Callable[[Sequence[Case]], Pick]

_TREES, _NEIGHBOURS, _SEED = 200, 3, 0


def first(choices: Collection[Choice]) -> Choice:
    """The default where it can be had, or any other; always the same."""
    return Choice() if Choice() in choices else min(choices, key=str)


def nearest(cases: Sequence[Case]) -> Pick:
    """What won at the nearest measured call whose winner can be had."""
    places = np.array([case.point.place for case in cases])
    winners = [min(case.rows, key=lambda choice: case.rows[choice].typical) for case in cases]

    def pick(point: Point, choices: Collection[Choice]) -> Choice:
        far = np.square(places - point.place).sum(axis=1).round(9)
        order = np.argsort(far, kind="stable")
        return next((winners[n] for n in order if winners[n] in choices), first(choices))

    return pick


def neighbours(cases: Sequence[Case]) -> Pick:
    """The least time, each learned from the nearest three calls, by distance."""
    return _regression(
        cases, lambda rows: KNeighborsRegressor(min(_NEIGHBOURS, rows), weights="distance")
    )


def forest(cases: Sequence[Case]) -> Pick:
    """The least time, each learned by a random forest."""
    return _regression(cases, lambda _: RandomForestRegressor(_TREES, random_state=_SEED))


BASELINES: dict[str, Trainer] = {"nearest": nearest, "neighbours": neighbours, "forest": forest}


def _regression(cases: Sequence[Case], make: Callable[[int], RegressorMixin]) -> Pick:
    """The logarithm of the time of every choice from the place."""
    features: dict[Choice, list[tuple[float, ...]]] = defaultdict(list)
    logs: dict[Choice, list[float]] = defaultdict(list)
    for case in cases:
        for choice, row in case.rows.items():
            features[choice].append(case.point.place)
            logs[choice].append(math.log(row.typical))
    fitted = {choice: make(len(own)).fit(own, logs[choice]) for choice, own in features.items()}

    def pick(point: Point, choices: Collection[Choice]) -> Choice:
        known = sorted((choice for choice in choices if choice in fitted), key=str)
        if not known:
            return first(choices)
        return min(known, key=lambda choice: float(fitted[choice].predict([point.place])[0]))

    return pick
