"""Numbers with their sources, and costs made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from tuner.core.calibration import CostSegment, Estimate, PathCost, ReductionCost

# How certain a number is:
# verified    read in raw data, source code or a configuration
# published   stated by a maker, an operator or a paper
# computed    derived from such numbers
# remembered  common knowledge that was not looked up
# assumed     chosen here because no source gives it, with the reason as its source
CERTAINTIES = ("verified", "published", "computed", "remembered", "assumed")
MICRO, GIGA = 1e-6, 1e9


@dataclass(frozen=True)
class SourcedValue:
    """A value with its unit (`s`, `B/s`, `s/B`, `B`), its source and its certainty."""

    value: float
    unit: str
    source: str
    certainty: str

    def as_assumed(self) -> SourcedValue:
        """Return a copy for a machine on which the value was not measured."""
        return replace(self, source=f"{self.source}; not measured here", certainty="assumed")


def microseconds(value: float, source: str, certainty: str) -> SourcedValue:
    """Return a time given in microseconds."""
    return SourcedValue(value * MICRO, "s", source, certainty)


def gigabytes_per_s(value: float, source: str, certainty: str) -> SourcedValue:
    """Return a rate given in GB/s (10^9 bytes)."""
    return SourcedValue(value * GIGA, "B/s", source, certainty)


INCLUDED_LATENCY = SourcedValue(0.0, "s", "contained in the alpha of the path class", "computed")


@dataclass(frozen=True)
class SourcedSegment:
    """A cost line: messages of `min_bytes` and more take alpha + bytes / rate."""

    min_bytes: float
    alpha: SourcedValue
    rate: SourcedValue
    staged: bool = False

    def seconds(self, nbytes: float) -> float:
        """Return the time of a message without contention."""
        return self.alpha.value + nbytes / self.rate.value


@dataclass(frozen=True)
class SourcedPathCost:
    """The cost of one path class in one kind of memory; segments ascend from 0 bytes."""

    segments: tuple[SourcedSegment, ...]
    eager_limit: SourcedValue = SourcedValue(
        0.0, "B", "no message goes ahead of its receiver", "assumed"
    )
    overhead: SourcedValue = SourcedValue(0.0, "s", "contained in alpha", "computed")

    def as_assumed(self) -> SourcedPathCost:
        """Return a copy for a machine on which the segments were not measured."""
        lines = tuple(
            replace(line, alpha=line.alpha.as_assumed(), rate=line.rate.as_assumed())
            for line in self.segments
        )
        return replace(self, segments=lines)

    def to_path_cost(self) -> PathCost:
        """Return the cost for a calibration."""
        ends = [*(line.min_bytes for line in self.segments[1:]), math.inf]
        return PathCost(
            tuple(
                CostSegment(
                    line.min_bytes,
                    hi,
                    Estimate.exact(line.alpha.value),
                    Estimate.exact(1.0 / line.rate.value),
                    line.staged,
                )
                for line, hi in zip(self.segments, ends, strict=True)
            ),
            self.eager_limit.value,
            Estimate.exact(self.overhead.value),
        )

    def sourced_values(self) -> dict[str, SourcedValue]:
        """Return every number by name."""
        found = {}
        for line in self.segments:
            found[f"alpha from {line.min_bytes:g} B"] = line.alpha
            found[f"rate from {line.min_bytes:g} B"] = line.rate
        return found | {"eager below": self.eager_limit, "overhead": self.overhead}


def single_segment(
    alpha: SourcedValue, rate: SourcedValue, eager_limit: SourcedValue | None = None
) -> SourcedPathCost:
    """Return a cost of one segment for all sizes."""
    lines = (SourcedSegment(0.0, alpha, rate),)
    return SourcedPathCost(lines) if eager_limit is None else SourcedPathCost(lines, eager_limit)


def interpolated_segments(
    small: SourcedValue, large_from: float, large: SourcedSegment
) -> tuple[SourcedSegment, ...]:
    """Return a segment for small messages and the fitted one for large messages.

    small       measured time of the smallest message
    large_from  bytes from which `large` holds
    large       fitted segment

    Nothing was fitted below `large_from`; a straight line joins the two.
    """
    rate = large_from / (large.seconds(large_from) - small.value)
    between = SourcedValue(
        rate, "B/s", f"joins the small messages with the line from {large_from:g} B", "computed"
    )
    return (
        SourcedSegment(0.0, small, between),
        SourcedSegment(large_from, large.alpha, large.rate, large.staged),
    )


def segments_through_points(
    points: Mapping[int, float], source: str, certainty: str, *, staged_from: float = math.inf
) -> tuple[SourcedSegment, ...]:
    """Return straight lines between measured times.

    points      bytes -> seconds, ascending in both
    staged_from bytes from which messages are staged through the host

    The last line continues beyond the last point.
    """
    sizes = list(points)
    lines = []
    for a, b in pairwise(sizes):
        rate = (b - a) / (points[b] - points[a])
        told = f"{source}; through {a} B and {b} B"
        lines.append(
            SourcedSegment(
                float(a),
                SourcedValue(points[a] - a / rate, "s", told, certainty),
                SourcedValue(rate, "B/s", told, certainty),
                a >= staged_from,
            )
        )
    return tuple(lines)


@dataclass(frozen=True)
class SourcedReduction:
    """The cost of a reduction: launch time, and the rate at which received bytes are reduced."""

    launch: SourcedValue
    rate: SourcedValue

    def to_reduction_cost(self) -> ReductionCost:
        """Return the cost for a calibration."""
        return ReductionCost(
            Estimate.exact(self.launch.value), Estimate.exact(1.0 / self.rate.value)
        )

    def sourced_values(self) -> dict[str, SourcedValue]:
        """Return both numbers by name."""
        return {"launch": self.launch, "rate": self.rate}
