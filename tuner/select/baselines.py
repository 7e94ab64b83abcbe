"""Simple selectors, as baselines for ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.neighbors import KNeighborsRegressor

from tuner.core.table import AlgorithmChoice
from tuner.select.cases import EvaluationCase
from tuner.select.dataset import CallPoint, group_by

SelectFunction = Callable[
    [CallPoint, Collection[AlgorithmChoice]], AlgorithmChoice
]  # returns one of the choices if possible
Trainer = Callable[[Sequence[EvaluationCase]], SelectFunction]

_N_TREES = 200
_N_NEIGHBOURS = 3
_SEED = 0


def default_or_first(choices: Collection[AlgorithmChoice]) -> AlgorithmChoice:
    """Return the default if it is available, else the first choice by name."""
    return AlgorithmChoice() if AlgorithmChoice() in choices else min(choices, key=str)


def train_nearest_winner(cases: Sequence[EvaluationCase]) -> SelectFunction:
    """Train a selector of the winner at the nearest measured call whose winner is available."""
    places = np.array([case.point.log_coordinates for case in cases])
    winners = [case.fastest for case in cases]

    def pick(point: CallPoint, choices: Collection[AlgorithmChoice]) -> AlgorithmChoice:
        far = np.square(places - point.log_coordinates).sum(axis=1).round(9)
        order = np.argsort(far, kind="stable")
        return next((winners[n] for n in order if winners[n] in choices), default_or_first(choices))

    return pick


def train_k_neighbours(cases: Sequence[EvaluationCase]) -> SelectFunction:
    """Train a selector of the least time predicted from the three nearest calls, by distance."""
    return _train_regressors(
        cases, lambda rows: KNeighborsRegressor(min(_N_NEIGHBOURS, rows), weights="distance")
    )


def train_random_forest(cases: Sequence[EvaluationCase]) -> SelectFunction:
    """Train a selector of the least time predicted by a random forest."""
    return _train_regressors(cases, lambda _: RandomForestRegressor(_N_TREES, random_state=_SEED))


BASELINES: dict[str, Trainer] = {
    "nearest": train_nearest_winner,
    "neighbours": train_k_neighbours,
    "forest": train_random_forest,
}


def _train_regressors(
    cases: Sequence[EvaluationCase], make: Callable[[int], RegressorMixin]
) -> SelectFunction:
    """Train one regressor per choice, from log coordinates to the logarithm of the time."""
    rows = (row for case in cases for row in case.observations.values())
    fitted = {
        choice: make(len(own)).fit(
            [row.point.log_coordinates for row in own], [math.log(row.seconds) for row in own]
        )
        for choice, own in group_by(rows, lambda row: row.choice).items()
    }

    def pick(point: CallPoint, choices: Collection[AlgorithmChoice]) -> AlgorithmChoice:
        known = sorted((choice for choice in choices if choice in fitted), key=str)
        if not known:
            return default_or_first(choices)
        return min(
            known, key=lambda choice: float(fitted[choice].predict([point.log_coordinates])[0])
        )

    return pick
