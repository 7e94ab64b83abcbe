"""A paragraph that says what a study found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from tuner.base.units import format_size
from tuner.core.collective import Collective
from tuner.whatif.axes import AXIS_FORMATTERS, SIZE_AXIS, AxisValue, GridPoint
from tuner.whatif.machine_resources import RESOURCE_NAMES
from tuner.whatif.study_result import AxisStep, MachineValue, StudyPoint

NO_LIMIT = "no single resource"
MIN_GAIN = 1.01  # times as fast that are worth a word
MAX_NAMED_ALGORITHMS = 3


def limit_name(point: StudyPoint) -> str:
    """Return the names of the resources that limit the best algorithm of a point."""
    return " and ".join(RESOURCE_NAMES[name] for name in point.limits) or NO_LIMIT


def limits_by_size(points: Sequence[StudyPoint]) -> str:
    """Return what limits the calls of one machine, as `latency to 64KiB, NICs from 1MiB`."""
    runs = [list(run) for _, run in groupby(points, key=limit_name)]
    if len(runs) == 1:
        return limit_name(points[0])
    first, *middle, last = runs
    texts = [f"{limit_name(first[0])} to {format_size(first[-1].nbytes)}"]
    texts += [f"{limit_name(run[0])} {_sizes(run)}" for run in middle]
    return ", ".join([*texts, f"{limit_name(last[0])} from {format_size(last[0].nbytes)}"])


def _sizes(run: Sequence[StudyPoint]) -> str:
    first, last = format_size(run[0].nbytes), format_size(run[-1].nbytes)
    return f"at {first}" if len(run) == 1 else f"from {first} to {last}"


def points_after(step: AxisStep, points: Sequence[StudyPoint]) -> list[StudyPoint]:
    """Return the points with sensitivities after a step, where it gains most."""
    after = step.upper_at
    return [
        point
        for point in points
        if point.collective is step.collective
        and point.sensitivities
        and all(point.axis_values[axis] == after[axis] for axis in point.axis_values)
    ]


def summarise(
    points: Sequence[StudyPoint],
    axes: Mapping[str, Sequence[AxisValue]],
    values: Sequence[MachineValue],
) -> str:
    """Return the paragraph: best algorithms, limits, best value."""
    several = [axis for axis, own in axes.items() if len(own) > 1]
    sentences = list[str]()
    for collective in dict.fromkeys(point.collective for point in points):
        own = [point for point in points if point.collective is collective]
        sentences.append(f"{collective}: {_best_algorithms(own)}.")
        sentences += _about_nccl(own, several)
        sentences += _about_limits(own)
        sentences += _about_value(collective, values, several)
    return " ".join(sentences)


def _best_algorithms(points: Sequence[StudyPoint]) -> str:
    counted = Counter(point.best.algorithm for point in points).most_common()
    if len(counted) == 1:
        return f"{counted[0][0]} is the fastest everywhere"
    named = [f"{name} at {number}" for name, number in counted[:MAX_NAMED_ALGORITHMS]]
    others = len(counted) - len(named)
    more = [f"{others} other{'s' if others > 1 else ''} at the rest"] if others else []
    return f"of {len(points)} points, the fastest is {', '.join([*named, *more])}"


def _about_nccl(points: Sequence[StudyPoint], axes: Sequence[str]) -> Iterator[str]:
    slower = [
        (seconds / point.best.seconds, point)
        for point in points
        if (seconds := point.nccl_seconds) is not None and point.best.seconds > 0.0
    ]
    if not slower:
        return
    ratio, point = max(slower, key=lambda pair: pair[0])
    best = sum(point.best.algorithm == point.nccl_choice for _, point in slower)
    if best == len(points):
        yield "NCCL chooses it by itself."
    elif ratio < 1.0:
        yield (
            "What NCCL chooses by itself is faster than all of these: it takes at most"
            f" {ratio:.2f} times as long."
        )
    elif ratio < MIN_GAIN:
        yield f"What NCCL chooses by itself takes at most {ratio - 1:.1%} longer."
    else:
        yield (
            f"What NCCL chooses by itself is the fastest at {best} of {len(slower)} points, and"
            f" takes at most {ratio:.2f} times as long ({point.nccl_choice} at"
            f" {place(point.coordinates, axes)})."
        )


def _about_limits(points: Sequence[StudyPoint]) -> Iterator[str]:
    counted = Counter(limit_name(point) for point in points if point.sensitivities).most_common()
    if counted:
        named = ", ".join(f"{name} ({number})" for name, number in counted)
        yield f"What limits the fastest, with numbers of points: {named}."


def _about_value(
    collective: Collective, values: Sequence[MachineValue], axes: Sequence[str]
) -> Iterator[str]:
    priced = [one for one in values if collective in one.relative_cost]
    if len(priced) > 1:
        best = min(priced, key=lambda one: one.relative_cost[collective])
        where = place(best.axis_values, axes)
        yield f"{where[0].upper()}{where[1:]} gives the best value for its price."


def place(at: GridPoint, axes: Sequence[str]) -> str:
    """Return the values of the axes with several values, and of the size if it is there."""
    return ", ".join(
        f"{'size' if axis == SIZE_AXIS else axis.replace('_', ' ')} {AXIS_FORMATTERS[axis](value)}"
        for axis, value in at.items()
        if axis == SIZE_AXIS or axis in axes
    )
