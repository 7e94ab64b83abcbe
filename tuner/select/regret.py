"""Regret: time of the chosen algorithm over time of the best one, minus one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.errors import InputError
from tuner.select.dataset import Chooser, Point, Row, Simulate, by_point
from tuner.select.selector import train
from tuner.table import Choice


@dataclass(frozen=True)
class Regret:
    """Over `points` calls, unweighted: 0.1 is ten percent slower than the best measured."""

    mean: float
    p95: float
    worst: float
    points: int


def regret(choose: Chooser, rows: Sequence[Row]) -> Regret:
    """Of a selector's or table's choices, on measured points, against the best of `rows`: leave out
    those of choices that were not to be had, such as unsafe ones for an order-safe ladder.

    The best of noisy times is a little better than the truth, so that even a perfect choice has
    some regret. Raises InputError when a choice was not measured where it was made.
    """
    losses = [_loss(choose(point), point, own) for point, own in by_point(rows).items()]
    return summary(losses)


def held_out_regret(rows: Sequence[Row], simulate: Simulate) -> Regret:
    """Of the selector on sizes that it did not see: each inner size of a ladder is left out once.

    Raises InputError when no key was probed at three sizes.
    """
    losses: list[float] = []
    for point, own in by_point(rows).items():
        others = [row for row in rows if row.point != point]
        sizes = {row.point.nbytes for row in others if row.point.key() == point.key()}
        if sizes and min(sizes) < point.nbytes < max(sizes):
            measured = {row.choice for row in own}
            selector = train(others, simulate)
            losses.append(_loss(selector.choose(point, measured), point, own))
    return summary(losses)


def _loss(choice: Choice, point: Point, own: Sequence[Row]) -> float:
    times = {row.choice: row.typical for row in own}
    if choice not in times:
        raise InputError(f"{point}: {choice} was not measured, so its regret is unknown")
    return times[choice] / min(times.values()) - 1


def summary(losses: Sequence[float]) -> Regret:
    """Of the regrets of single calls; raises InputError without any."""
    if not losses:
        raise InputError("there are no points to evaluate regret on; probe three sizes or more")
    return Regret(
        float(np.mean(losses)), float(np.quantile(losses, 0.95)), max(losses), len(losses)
    )
