"""Numbers with their sources, and costs made of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.core.calibration import CostSegment, Estimate, PathCost, ReductionCost

# How certain a number is:
# verified    read in raw data, source code or a configuration
# published   stated by a maker, an operator or a paper
# computed    derived from such numbers
# remembered  common knowledge that was not looked up
# assumed     chosen here because no source gives it, with the reason as its source
CERTAINTIES = ("verified", "published", "computed", "remembered", "assumed")


@dataclass(frozen=True)
class SourcedValue:
    """A value with its unit (`s`, `B/s`, `s/B`, `B`), its source and its certainty."""

    value: float
    unit: str
    source: str
    certainty: str


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

    def to_path_cost(self) -> PathCost:
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


@dataclass(frozen=True)
class SourcedReduction:
    """The cost of a reduction: launch time, and the rate at which received bytes are reduced."""

    launch: SourcedValue
    rate: SourcedValue

    def to_reduction_cost(self) -> ReductionCost:
        return ReductionCost(
            Estimate.exact(self.launch.value), Estimate.exact(1.0 / self.rate.value)
        )

    def sourced_values(self) -> dict[str, SourcedValue]:
        """Return both numbers by name."""
        return {"launch": self.launch, "rate": self.rate}
