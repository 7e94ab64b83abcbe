"""Numbers that know where they come from, and costs made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from tuner.core.calibration import Estimate, PathCost, ReductionCost, Segment

# How sure a number is: read in raw data, source code or a configuration; stated by a maker, an
# operator or a paper; worked out from such numbers; common knowledge that nobody looked up; chosen
# here because no source gives it, with the reason as its source.
CERTAINTIES = ("verified", "published", "computed", "remembered", "assumed")
MICRO, GIGA = 1e-6, 1e9


@dataclass(frozen=True)
class Sourced:
    """A value with its unit (`s`, `B/s`, `s/B`, `B`), its source and how sure it is."""

    value: float
    unit: str
    source: str
    certainty: str

    def elsewhere(self) -> Sourced:
        """The same, taken for a machine on which nobody measured it."""
        return replace(self, source=f"{self.source}; not measured here", certainty="assumed")


def micros(value: float, source: str, certainty: str) -> Sourced:
    """A time given in microseconds."""
    return Sourced(value * MICRO, "s", source, certainty)


def giga(value: float, source: str, certainty: str) -> Sourced:
    """A rate given in GB/s (10^9 bytes)."""
    return Sourced(value * GIGA, "B/s", source, certainty)


FREE = Sourced(0.0, "s", "contained in the alpha of the path class", "computed")


@dataclass(frozen=True)
class Line:
    """Messages of `lo` bytes and more take alpha + bytes / rate."""

    lo: float
    alpha: Sourced
    rate: Sourced
    staged: bool = False

    def seconds(self, nbytes: float) -> float:
        """An undisturbed message."""
        return self.alpha.value + nbytes / self.rate.value


@dataclass(frozen=True)
class Costs:
    """One path class in one kind of memory; lines in ascending order, the first from 0."""

    lines: tuple[Line, ...]
    eager_limit: Sourced = Sourced(0.0, "B", "no message goes ahead of its receiver", "assumed")
    overhead: Sourced = Sourced(0.0, "s", "contained in alpha", "computed")

    def elsewhere(self) -> Costs:
        """The same lines, taken for a machine on which nobody measured them."""
        lines = tuple(
            replace(line, alpha=line.alpha.elsewhere(), rate=line.rate.elsewhere())
            for line in self.lines
        )
        return replace(self, lines=lines)

    def path_cost(self) -> PathCost:
        """What a calibration holds."""
        ends = [*(line.lo for line in self.lines[1:]), math.inf]
        return PathCost(
            tuple(
                Segment(
                    line.lo,
                    hi,
                    Estimate.exact(line.alpha.value),
                    Estimate.exact(1.0 / line.rate.value),
                    line.staged,
                )
                for line, hi in zip(self.lines, ends, strict=True)
            ),
            self.eager_limit.value,
            Estimate.exact(self.overhead.value),
        )

    def numbers(self) -> dict[str, Sourced]:
        """Every number by name."""
        found = {}
        for line in self.lines:
            found[f"alpha from {line.lo:g} B"] = line.alpha
            found[f"rate from {line.lo:g} B"] = line.rate
        return found | {"eager below": self.eager_limit, "overhead": self.overhead}


def line(alpha: Sourced, rate: Sourced, eager_limit: Sourced | None = None) -> Costs:
    """One line for all sizes."""
    lines = (Line(0.0, alpha, rate),)
    return Costs(lines) if eager_limit is None else Costs(lines, eager_limit)


def joined(small: Sourced, large_from: float, large: Line) -> tuple[Line, ...]:
    """Small messages: from the measured time of the smallest up to where the large line begins.

    Between the two nothing was fitted: the straight line that joins them.
    """
    rate = large_from / (large.seconds(large_from) - small.value)
    between = Sourced(
        rate, "B/s", f"joins the small messages with the line from {large_from:g} B", "computed"
    )
    return (Line(0.0, small, between), Line(large_from, large.alpha, large.rate, large.staged))


def through(
    points: Mapping[int, float], source: str, certainty: str, *, staged_from: float = math.inf
) -> tuple[Line, ...]:
    """Lines from point to point of measured times: bytes -> seconds, ascending, not falling.

    The last line goes on with the slope that it has between the last two points.
    """
    sizes = list(points)
    lines = []
    for a, b in pairwise(sizes):
        rate = (b - a) / (points[b] - points[a])
        told = f"{source}; through {a} B and {b} B"
        lines.append(
            Line(
                float(a),
                Sourced(points[a] - a / rate, "s", told, certainty),
                Sourced(rate, "B/s", told, certainty),
                a >= staged_from,
            )
        )
    return tuple(lines)


@dataclass(frozen=True)
class Reduction:
    """Launch time and the rate at which arriving bytes are folded in."""

    launch: Sourced
    rate: Sourced

    def reduction_cost(self) -> ReductionCost:
        """What a calibration holds."""
        return ReductionCost(
            Estimate.exact(self.launch.value), Estimate.exact(1.0 / self.rate.value)
        )

    def numbers(self) -> dict[str, Sourced]:
        """Both numbers by name."""
        return {"launch": self.launch, "rate": self.rate}
