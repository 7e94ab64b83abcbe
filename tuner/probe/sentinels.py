"""Detect drift and noise of a machine from reference points repeated through a probe."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.base.statistics import relative_half_width
from tuner.base.units import format_size
from tuner.core.measurement import Measurement

MAX_DRIFT = 0.05  # relative change from the first to the last sentinels that is reported
MAX_HALF_WIDTH = 0.10  # relative half-width of a median beyond which choices cannot be compared
MAX_DEVIATION = 0.25  # relative distance from the median beyond which a sentinel is an outlier
MIN_SENTINELS_FOR_DRIFT = 3  # sentinels needed to detect drift


def describe_instability(series: Sequence[Measurement]) -> list[str]:
    """Return sentences about drift, outliers and noise; none when the machine is stable."""
    found = sorted(
        (one for one in series if one.kind == "sentinel"), key=lambda one: one.params.get("of", 0)
    )
    if not found:
        return []
    medians = np.array([float(np.median(one.samples)) for one in found])
    middle = float(np.median(medians))
    what = f"{found[0].subject} messages of {format_size(found[0].nbytes)}"
    return [*_drift(medians, what), *_outliers(medians, middle, what), *_noise(found, what)]


def _drift(medians: np.ndarray, subject: str) -> list[str]:
    """Compare the medians of the first and the last third, so that no single sentinel decides."""
    if len(medians) < MIN_SENTINELS_FOR_DRIFT:
        return []
    third = max(len(medians) // 3, 1)
    change = float(np.median(medians[-third:]) / np.median(medians[:third])) - 1
    if abs(change) <= MAX_DRIFT:
        return []
    return [f"drift: {subject} took {change:+.0%} at the end of the probe, compared with its begin"]


def _outliers(medians: np.ndarray, middle: float, subject: str) -> list[str]:
    far = np.flatnonzero(np.abs(medians / middle - 1) > MAX_DEVIATION)
    if not 0 < len(far) <= len(medians) / 3:
        return []
    numbers = ", ".join(str(n + 1) for n in far)
    return [
        f"outliers: {subject} were off by more than {MAX_DEVIATION:.0%} at sentinel {numbers} of"
        f" {len(medians)}: points measured around them deserve doubt"
    ]


def _noise(found: Sequence[Measurement], subject: str) -> list[str]:
    width = float(np.median([relative_half_width(one.samples) for one in found]))
    if width <= MAX_HALF_WIDTH:
        return []
    return [
        f"too noisy: the median of {subject} is known to {width:.0%} only after"
        f" {len(found[0].samples)} repetitions: differences below that are chance; end other"
        " programs or take other hosts"
    ]
