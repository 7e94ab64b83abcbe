"""Curves of time over size, taken from measurements and predictions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from tuner.core.measurement import Measurement
from tuner.core.speedup import mean_over_launches
from tuner.core.table import AlgorithmConfig

Curve = list[tuple[int, float]]  # (bytes, seconds), ascending


def measured_collectives(series: Iterable[Measurement]) -> list[tuple[str, int]]:
    """Return the measured (collective, p) in sorted order."""
    return sorted({(s.subject, s.p) for s in series if s.kind == "collective"})


def measured_curves(series: Iterable[Measurement], collective: str, p: int) -> dict[str, Curve]:
    """Return, per algorithm, the typical time at each size with the best parameters."""
    launches: dict[tuple[AlgorithmConfig, int], list[tuple[float, ...]]] = defaultdict(list)
    for s in series:
        if s.kind == "collective" and (s.subject, s.p) == (collective, p):
            launches[AlgorithmConfig(s.algorithm, s.params), s.nbytes].append(s.samples)
    return _best(
        (choice.algorithm, nbytes, mean_over_launches(samples)[0])
        for (choice, nbytes), samples in launches.items()
    )


def predicted_curves(
    predictions: Sequence[Mapping[str, Any]], collective: str, p: int
) -> dict[str, Curve]:
    """Return, per algorithm, the predicted time at each size with the best parameters.

    predictions     records as `tuner simulate` prints them
    """
    return _best(
        (record["algorithm"], record["nbytes"], record["seconds"])
        for record in predictions
        if (record["collective"], record["p"]) == (collective, p)
    )


def prediction_error(measured: Mapping[str, Curve], predicted: Mapping[str, Curve]) -> float | None:
    """Return the median factor by which a prediction is off, upwards or downwards.

    Return None without a prediction for any measured size.
    """
    errors = [
        abs(math.log(dict(predicted[name])[nbytes] / seconds))
        for name, curve in measured.items()
        if name in predicted
        for nbytes, seconds in curve
        if dict(predicted[name]).get(nbytes)
    ]
    return math.exp(median(errors)) if errors else None


def _best(points: Iterable[tuple[str, int, float]]) -> dict[str, Curve]:
    found: dict[str, dict[int, float]] = {}
    for algorithm, nbytes, seconds in points:
        curve = found.setdefault(algorithm, {})
        curve[nbytes] = min(seconds, curve.get(nbytes, seconds))
    return {algorithm: sorted(curve.items()) for algorithm, curve in sorted(found.items())}
