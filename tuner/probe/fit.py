"""From measurements to a `Calibration`: every parameter with an interval, none without data.

Intervals are percentile bootstraps: the raw samples of every series are resampled, everything is
computed again with the break points kept, and the middle 95 % of the results is the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from tuner.cost import Calibration, Estimate, PathCost, ReductionCost, Segment
from tuner.errors import InputError
from tuner.measurement import Measurement, Measurements
from tuner.probe.piecewise import SHORTEST, Floats, Line, breaks, fit_line, fit_lines, refit
from tuner.probe.plan import DELAY
from tuner.statistics import median_interval
from tuner.topology import MEMORY_BUS, NODE, NODE_OVERSUBSCRIBED

RESAMPLES = 200
SEED = 20240301
CONTENTION = 1.1  # a smaller slowdown by concurrent pairs says nothing about a capacity
INSTANT = 1e-9  # s; no message is faster
FASTEST = 1e-13  # s per byte, 10 TB/s; a line through noisy times may be flatter than any memory

Draw = Callable[[Measurement], float]


@dataclass(frozen=True)
class _Ladder:
    """The ping-pong and burst series of one path class."""

    pingpong: tuple[Measurement, ...]  # ascending nbytes
    bursts: tuple[Measurement, ...]  # smallest nbytes, ascending number of messages
    call: Measurement
    limit: float  # eager limit, bytes

    @property
    def pairs(self) -> int:
        """That communicated at the same time."""
        return self.pingpong[0].p // 2

    @property
    def sizes(self) -> Floats:
        """Bytes."""
        return np.array([float(series.nbytes) for series in self.pingpong])

    def times(self, draw: Draw) -> Floats:
        """One-way seconds without the interpreter's call, which no collective pays per message."""
        raw = np.array([draw(series) for series in self.pingpong])
        return np.maximum(raw - draw(self.call), INSTANT)

    def spread(self) -> Floats:
        """Relative standard error of each median, from its 95 % interval."""
        intervals = [median_interval(series.samples) for series in self.pingpong]
        return np.array([(high - low) / 4 / median for median, low, high in intervals])

    def overhead(self, beta: float, draw: Draw) -> float:
        """Seconds a port is busy per further message of a burst, beyond the flow of its bytes.

        beta    of long messages: that of short ones contains what is looked for here
        """
        few, many = self.bursts
        further = many.params["messages"] - few.params["messages"]
        return max((draw(many) - draw(few)) / further - beta * few.nbytes, 0.0)


def calibrate(measurements: Measurements) -> Calibration:
    """Piecewise alpha-beta per path class, overhead, reduction cost, capacity of the memory bus.

    What the series do not determine is left at its neutral value and named in
    `provenance["undetermined"]`. Raises InputError naming the series that are missing.
    """
    ladders = {
        name: ladder
        for name in (NODE, NODE_OVERSUBSCRIBED)
        if (ladder := _ladder(measurements, name)) is not None
    }
    if NODE not in ladders:
        raise InputError(
            f"the probe of {measurements.cluster.name} lacks what a calibration needs:"
            f" {', '.join(_missing(measurements))}; probe again"
        )
    fitted = {name: _lines(ladder) for name, ladder in ladders.items()}
    undetermined: list[str] = []
    paths = {
        (name, "host"): _path_cost(ladder, fitted[name], undetermined, name)
        for name, ladder in ladders.items()
    }
    return Calibration(
        cluster=measurements.cluster.name,
        library=measurements.library,
        paths=paths,
        reduction={"host": _reduction(measurements)},
        capacities=_capacity(measurements, ladders[NODE], undetermined),
        provenance={
            "measured": dict(measurements.provenance),
            "call_s": _median(ladders[NODE].call),
            "eager_limit": _eager_source(measurements),
            "worst_relative_residual": {n: _residual(ladders[n], fitted[n]) for n in ladders},
            "undetermined": undetermined,
        },
    )


def _series(measurements: Measurements, kind: str, subject: str = "") -> list[Measurement]:
    found = [
        s for s in measurements.series if s.kind == kind and s.subject == (subject or s.subject)
    ]
    return sorted(found, key=lambda series: series.nbytes)


def _missing(measurements: Measurements) -> list[str]:
    wanted = {
        f"pingpong {NODE} at {SHORTEST} sizes or more": len(_series(measurements, "pingpong", NODE))
        >= SHORTEST,
        f"burst {NODE} of two lengths": len(_bursts(measurements, NODE, 2)) == 2,
        "call": bool(_series(measurements, "call")),
        f"eager {NODE}": bool(_series(measurements, "eager")),
    }
    return [name for name, there in wanted.items() if not there]


def _ladder(
    measurements: Measurements, subject: str, which: Callable[[Iterable[int]], int] = min
) -> _Ladder | None:
    """None when a series is missing; of several `p` the smallest, the least disturbed one."""
    call, eager = _series(measurements, "call"), _series(measurements, "eager")
    pingpong = _series(measurements, "pingpong", subject)
    if not (pingpong and call and eager):
        return None
    p = which(series.p for series in pingpong)
    chosen = [series for series in pingpong if series.p == p]
    bursts = _bursts(measurements, subject, p)
    if len(chosen) < SHORTEST or not bursts:
        return None
    return _Ladder(tuple(chosen), bursts, call[0], float(eager[0].nbytes))


def _bursts(measurements: Measurements, subject: str, p: int) -> tuple[Measurement, ...]:
    """The shortest and the longest burst of the smallest messages; empty without two lengths."""
    found = [series for series in _series(measurements, "burst", subject) if series.p == p]
    smallest = [series for series in found if series.nbytes == found[0].nbytes]
    ordered = sorted(smallest, key=lambda series: series.params["messages"])
    return (ordered[0], ordered[-1]) if len(ordered) > 1 else ()


def _eager_source(measurements: Measurements) -> str:
    series = _series(measurements, "eager")[0]
    if np.median(series.samples) < DELAY / 2:
        return f"no sender waited for its receiver up to {series.nbytes} B, the largest tried"
    return f"measured: from {series.nbytes} B on a sender waits for its receiver"


def _median(series: Measurement) -> float:
    return float(np.median(series.samples))


def _resampled(number: int) -> Draw:
    """Medians of resampled series; one series gets the same resample within one `number`."""
    drawn: dict[int, float] = {}

    def draw(series: Measurement) -> float:
        if id(series) not in drawn:
            generator = np.random.default_rng([SEED, number, len(drawn)])
            drawn[id(series)] = float(
                np.median(generator.choice(series.samples, len(series.samples)))
            )
        return drawn[id(series)]

    return draw


def _estimate(compute: Callable[[Draw], Floats]) -> list[Estimate]:
    """Each of the numbers that `compute` gives, with its interval."""
    values = compute(_median)
    drawn = np.array([compute(_resampled(number)) for number in range(RESAMPLES)])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return [
        Estimate(float(v), float(min(v, lowest)), float(max(v, highest)))
        for v, lowest, highest in zip(values, low, high, strict=True)
    ]


def _path_cost(
    ladder: _Ladder, lines: tuple[Line, ...], undetermined: list[str], name: str
) -> PathCost:
    def parameters(draw: Draw) -> Floats:
        """Overhead, then alpha and beta of each line; the overhead is taken out of alpha."""
        drawn = refit(lines, ladder.sizes, ladder.times(draw))
        overhead = ladder.overhead(drawn[-1].beta, draw)
        pairs = [(max(line.alpha - overhead, 0.0), line.beta) for line in drawn]
        return np.array([overhead, *np.ravel(pairs)])

    overhead, *rest = _estimate(parameters)
    begins = breaks(lines, ladder.sizes, [ladder.limit])
    bounds = [0.0, *begins, math.inf]
    segments = tuple(
        Segment(bounds[k], bounds[k + 1], rest[2 * k], rest[2 * k + 1]) for k in range(len(lines))
    )
    flat = [segment for segment in segments if segment.beta.value == 0.0]
    undetermined += [f"{name}: beta of [{s.lo:.0f}, {s.hi:.0f}) B, below resolution" for s in flat]
    if overhead.value == 0.0:
        undetermined.append(f"{name}: overhead, no message of a burst took longer than its bytes")
    return PathCost(segments, ladder.limit, overhead)


def _reduction(measurements: Measurements) -> ReductionCost:
    """Of the library's local sum: its time beyond that of an empty call."""
    ladder = _series(measurements, "reduction")
    if len(ladder) <= SHORTEST or ladder[0].nbytes != 0:
        raise InputError(
            f"the probe of {measurements.cluster.name} lacks what a calibration needs:"
            " reduction at 0 bytes and several other sizes; probe again"
        )
    empty, *rest = ladder
    sizes = np.array([float(series.nbytes) for series in rest])

    def parameters(draw: Draw) -> Floats:
        times = np.maximum(np.array([draw(s) for s in rest]) - draw(empty), INSTANT)
        return np.array(fit_line(sizes, times))

    launch, gamma = _estimate(parameters)
    return ReductionCost(launch, gamma)


def _capacity(
    measurements: Measurements, alone: _Ladder, undetermined: list[str]
) -> dict[str, Estimate]:
    """Bytes per second that all pairs together move, when they slow one another down.

    From as many pairs as have cores of their own, else from oversubscribed ones.
    """
    crowds = [
        crowd
        for subject in (NODE, NODE_OVERSUBSCRIBED)
        if (crowd := _ladder(measurements, subject, max)) and crowd.pairs > 1
    ]
    if not crowds:
        undetermined.append(f"capacity {MEMORY_BUS}: no pairs communicated at the same time")
        return {}
    crowd = crowds[0]
    lines = [_lines(alone)[-1:], _lines(crowd)[-1:]]

    def rates(draw: Draw) -> Floats:
        one = max(refit(lines[0], alone.sizes, alone.times(draw))[0].beta, FASTEST)
        each = max(refit(lines[1], crowd.sizes, crowd.times(draw))[0].beta, FASTEST)
        return np.array([max(crowd.pairs / each, 1 / one), each / one])

    capacity, slowdown = _estimate(rates)
    if slowdown.low < CONTENTION:
        undetermined.append(
            f"capacity {MEMORY_BUS}: {crowd.pairs} pairs did not slow one another down, so it is at"
            f" least {capacity.value:.3g} B/s"
        )
        return {}
    return {MEMORY_BUS: capacity}


def _lines(ladder: _Ladder) -> tuple[Line, ...]:
    return fit_lines(ladder.sizes, ladder.times(_median), ladder.spread())


def _residual(ladder: _Ladder, lines: tuple[Line, ...]) -> float:
    """The largest relative deviation of a fitted time from the measured median."""
    fitted = np.concatenate(
        [line.alpha + line.beta * ladder.sizes[line.first : line.last] for line in lines]
    )
    return float(np.max(np.abs(fitted / ladder.times(_median) - 1)))
