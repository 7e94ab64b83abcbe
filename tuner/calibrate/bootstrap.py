"""Intervals by the bootstrap: every number is computed once from what was measured and many times
from what might have been measured instead.

A drawn quantity is an array of shape (1 + RESAMPLES,): its value, then its value in each resample.
Samples that follow one another are alike, so runs of them are drawn (Künsch, Annals of Statistics
17, 1989), and launches differ, so of several launches some are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.base.statistics import midmean
from tuner.core.calibration import Estimate
from tuner.core.measurement import Measurement
from tuner.core.speedup import widening

RESAMPLES = 400
AT_ONCE = 1 << 22  # samples that are drawn together; a file may have series of millions
SEED = 20240301
INSTANT = 1e-9  # s; no message is faster
QUARTILES = 1.349  # standard deviations between those of a normal distribution


@dataclass(frozen=True)
class Draws:
    """Draws medians and midmeans of series.

    drift   relative standard deviation by which the machine wandered while it was probed, beyond
            what the samples of a series show; common to all series of one resample
    """

    drift: float = 0.0

    def median(self, launches: Sequence[Measurement]) -> FloatArray:
        """Of one point: seconds, the geometric mean of the launches' medians.

        Student's t widens what is drawn of few samples or launches.
        """
        return self._drawn(launches, _logs(launches))

    def midmean(self, launches: Sequence[Measurement]) -> FloatArray:
        """The same of the means of the middle half of the samples: where a few times are possible
        and chance decides among them, a median is one of them and a mean lies between."""
        return self._drawn(launches, _logs(launches, midmean))

    def _drawn(self, launches: Sequence[Measurement], logs: FloatArray) -> FloatArray:
        value = float(logs[:, 0].mean())
        if len(launches) > 1:
            chosen = _launches(len(launches))
            drawn = logs[chosen, np.arange(1, RESAMPLES + 1)[:, None]].mean(axis=1)
            drawn = value + (drawn - value) * widening(len(launches))
        else:
            drawn = value + (logs[0, 1:] - value) * widening(len(launches[0].samples))
        seconds: FloatArray = np.exp(np.concatenate([[value], drawn + self.common]))
        return seconds

    def error(self, launches: Sequence[Measurement]) -> float:
        """Relative standard error of that median, as far as the samples within launches tell.

        From the quartiles: of a handful of samples with one outlier some resamples are far off.
        """
        low, high = np.quantile(_logs(launches)[:, 1:], [0.25, 0.75], axis=1)
        return float(np.sqrt(np.sum(((high - low) / QUARTILES) ** 2)) / len(launches))

    @property
    def common(self) -> FloatArray:
        """Logarithm of how much slower everything was in each resample."""
        return np.random.default_rng(SEED).normal(0.0, self.drift, RESAMPLES)

    def scattered(self, times: FloatArray, scatter: FloatArray, name: str) -> FloatArray:
        """Resamples of shape (1 + RESAMPLES, k) with `scatter`, shape (k,), on top; relative."""
        generator = np.random.default_rng([SEED, crc32(name.encode())])
        noise = np.exp(scatter * generator.standard_normal((RESAMPLES, len(scatter))))
        return np.concatenate([times[:1], times[1:] * noise])


def drift_of(sentinels: Sequence[Sequence[Measurement]]) -> float:
    """Relative standard deviation between repetitions of the same point, each list one of them.

    What the samples of each repetition make of it by themselves is taken off.
    """
    beyond = []
    for repeated in sentinels:
        logs = np.log([max(float(np.median(one.samples)), INSTANT) for one in repeated])
        within = [Draws().error([one]) ** 2 for one in repeated]
        if len(logs) > 1:
            beyond.append(float(logs.var(ddof=1)) - float(np.mean(within)))
    return math.sqrt(max(float(np.mean(beyond)), 0.0)) if beyond else 0.0


def estimate(drawn: FloatArray) -> Estimate:
    """The value and the middle 95 % of the resamples, which it is always within."""
    value = float(drawn[0])
    low, high = np.quantile(drawn[1:], [0.025, 0.975])
    return Estimate(value, float(min(value, low)), float(max(value, high)))


def _median(samples: FloatArray) -> FloatArray:
    return np.asarray(np.median(samples, axis=-1))


def _logs(
    launches: Sequence[Measurement], typical: Callable[[FloatArray], FloatArray] = _median
) -> FloatArray:
    """Logarithms of the medians of a point, shape (launches, 1 + RESAMPLES); always the same."""
    *point, _placement = launches[0].point  # messages have none, and keep their seeds
    seed = crc32(repr(tuple(point)).encode())
    seed ^= crc32(repr(sorted(launches[0].params.items())).encode())
    generator = np.random.default_rng([SEED, seed])
    each = np.array([_resampled(one.samples, generator, typical) for one in launches])
    logs: FloatArray = np.log(np.maximum(each, INSTANT))
    return logs


def _resampled(
    samples: Sequence[float],
    generator: np.random.Generator,
    typical: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """What is typical of the samples and of RESAMPLES draws of runs of them, which wrap round."""
    taken = np.asarray(samples, dtype=float)
    count = len(taken)
    length = max(1, round(count ** (1 / 3)))
    begin = generator.integers(0, count, (RESAMPLES, -(-count // length)))
    found = [typical(taken[None])]
    for some in np.array_split(begin, min(RESAMPLES, 1 + RESAMPLES * count // AT_ONCE)):
        chosen = (some[:, :, None] + np.arange(length)).reshape(len(some), -1)[:, :count] % count
        found.append(typical(taken[chosen]))
    return np.concatenate(found)


def _launches(count: int) -> IntArray:
    """Which launches each resample takes, the same for all series: a slow launch is slow in all."""
    generator = np.random.default_rng([SEED, count])
    return generator.integers(0, count, (RESAMPLES, count))
