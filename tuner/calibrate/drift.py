"""Compare the parameters of two calibrations of one cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.base.errors import InputError
from tuner.base.units import format_exact_size
from tuner.core.calibration import Calibration, CostSegment, Estimate, PathCost

MIN_RELATIVE_DRIFT = 0.02  # a smaller change is not significant, however narrow the intervals

NamedEstimate = tuple[str, Estimate]


@dataclass(frozen=True)
class ParameterDrift:
    """One parameter in both calibrations, in seconds, bytes, seconds per byte or bytes per second.

    before, after   None where a calibration does not have it
    """

    parameter: str
    before: Estimate | None
    after: Estimate | None

    @property
    def ratio(self) -> float | None:
        """Return after over before; None where it is undefined."""
        if self.before is None or self.after is None or self.before.value == 0.0:
            return None
        return self.after.value / self.before.value

    @property
    def is_significant(self) -> bool:
        """Return whether the values clearly differ.

        Their intervals are disjoint, and they differ by over `MIN_RELATIVE_DRIFT`.
        A parameter that only one calibration has is a difference between the probes.
        """
        a, b = self.before, self.after
        if a is None or b is None:
            return False
        apart = a.high < b.low or b.high < a.low
        return apart and abs(a.value - b.value) > MIN_RELATIVE_DRIFT * a.value


def compare_calibrations(before: Calibration, after: Calibration) -> list[ParameterDrift]:
    """Return every parameter of either calibration, significant changes first.

    Otherwise they are in the order of `before`. Raises InputError for calibrations of different
    clusters or libraries.
    """
    if before.cluster != after.cluster:
        raise InputError(
            f"one calibration is of {before.cluster}, the other of {after.cluster}: compare two of"
            " one cluster"
        )
    if before.library.partition(" ")[0] != after.library.partition(" ")[0]:
        raise InputError(
            f"one calibration is of {before.library}, the other of {after.library}: compare two of"
            " one library"
        )
    pairs = _matching_segments(before, after)
    old, new = (
        dict(_named_parameters(one, pairs, side)) for side, one in enumerate((before, after))
    )
    changes = [ParameterDrift(name, old.get(name), new.get(name)) for name in {**old, **new}]
    return sorted(changes, key=lambda change: not change.is_significant)


SegmentPairs = dict[tuple[str, str], Sequence[tuple[CostSegment, CostSegment]]]


def _matching_segments(before: Calibration, after: Calibration) -> SegmentPairs:
    """Return, for every common path, the segments that correspond to each other.

    These are all segments if there are as many in both, else the first, of short messages, and the
    last, of long ones.
    """
    pairs: SegmentPairs = {}
    for key in before.paths.keys() & after.paths.keys():
        a, b = before.paths[key].segments, after.paths[key].segments
        ends = {0: (a[0], b[0]), 1: (a[-1], b[-1])}
        pairs[key] = list(zip(a, b, strict=True)) if len(a) == len(b) else list(ends.values())
    return pairs


def _named_parameters(
    calibration: Calibration, pairs: SegmentPairs, side: int
) -> Iterator[NamedEstimate]:
    for (path, memory), cost in calibration.paths.items():
        name = path if memory == "host" else f"{path} ({memory})"
        yield from _path_parameters(name, cost, pairs.get((path, memory)), side)
    for memory, fold in calibration.reduction.items():
        yield f"reduction {memory}: launch", fold.launch
        yield f"reduction {memory}: gamma", fold.gamma
    for resource, capacity in calibration.capacities.items():
        yield f"capacity {resource}", capacity
    if calibration.pointer_query_seconds > 0.0:
        yield "pointer query", Estimate.exact(calibration.pointer_query_seconds)
    for what, begin in (
        ("shared", calibration.port_sharing_threshold),
        ("striped", calibration.striping_threshold),
    ):
        if begin < math.inf:
            yield f"{what} from", Estimate.exact(begin)


def _path_parameters(
    name: str, cost: PathCost, pairs: Sequence[tuple[CostSegment, CostSegment]] | None, side: int
) -> Iterator[NamedEstimate]:
    yield f"{name}: overhead", cost.overhead
    yield f"{name}: eager limit", Estimate.exact(cost.eager_limit)
    if cost.sync_ack_threshold < math.inf:
        yield f"{name}: acknowledged from", Estimate.exact(cost.sync_ack_threshold)
    for both in pairs or [(own, own) for own in cost.segments]:
        # named after the segment of the first calibration, so that both names are equal
        start, stop = round(both[0].start_bytes), _rounded_size(both[0].stop_bytes)
        span = f"[{format_exact_size(start)}, {format_exact_size(stop)})"
        yield f"{name} {span}: alpha", both[side].alpha
        yield f"{name} {span}: beta", both[side].beta
        if any(segment.latency_per_byte.value > 0.0 for segment in both):
            yield f"{name} {span}: lag", both[side].latency_per_byte


def _rounded_size(size: float) -> float:
    return size if math.isinf(size) else round(size)
