"""Curves of time over size, taken from measurements and predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from tuner.measurement import Measurement

Curve = list[tuple[int, float]]  # (bytes, seconds), ascending


def shapes(series: Iterable[Measurement]) -> list[tuple[str, int]]:
    """The (collective, p) that were measured, in reading order."""
    return sorted({(s.subject, s.p) for s in series if s.kind == "collective"})


def measured(series: Iterable[Measurement], collective: str, p: int) -> dict[str, Curve]:
    """Per algorithm the median time at each size, with its best parameters."""
    return _best(
        (s.algorithm, s.nbytes, median(s.samples))
        for s in series
        if s.kind == "collective" and (s.subject, s.p) == (collective, p) and s.samples
    )


def predicted(
    predictions: Sequence[Mapping[str, Any]], collective: str, p: int
) -> dict[str, Curve]:
    """The same for predictions, as `tuner simulate` prints them."""
    return _best(
        (record["algorithm"], record["nbytes"], record["seconds"])
        for record in predictions
        if (record["collective"], record["p"]) == (collective, p)
    )


def _best(points: Iterable[tuple[str, int, float]]) -> dict[str, Curve]:
    found: dict[str, dict[int, float]] = {}
    for algorithm, nbytes, seconds in points:
        curve = found.setdefault(algorithm, {})
        curve[nbytes] = min(seconds, curve.get(nbytes, seconds))
    return {algorithm: sorted(curve.items()) for algorithm, curve in sorted(found.items())}
