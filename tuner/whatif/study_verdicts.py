"""Sentences that say what each step along an axis of a study gains, and what it meets then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuner.whatif.axes import AXIS_FORMATTERS, AxisValue, format_rate
from tuner.whatif.machine_resources import RESOURCE_NAMES
from tuner.whatif.study_result import TIE_TOLERANCE, AxisStep, StudyPoint
from tuner.whatif.study_summary import MIN_GAIN, limit_name, place, points_after

MANY_TIMES = 2.0  # times as fast, from which a gain is no percentage


def verdicts(
    points: Sequence[StudyPoint], axes: Mapping[str, Sequence[AxisValue]], steps: Sequence[AxisStep]
) -> tuple[str, ...]:
    """Return a sentence for each step along the axes that have an effect, or along all."""
    several = [axis for axis, own in axes.items() if len(own) > 1]
    effective = {step.axis for step in steps if _has_effect(step)}
    return tuple(
        _verdict(step, points, several) for step in steps if step.axis in effective or not effective
    )


def _has_effect(step: AxisStep) -> bool:
    speedups = (step.min_speedup, step.max_speedup, *step.nccl_speedups)
    return max(abs(one - 1.0) for one in speedups) > TIE_TOLERANCE


def _verdict(step: AxisStep, points: Sequence[StudyPoint], axes: Sequence[str]) -> str:
    shown = AXIS_FORMATTERS[step.axis]
    change = (
        f"{step.collective}: {step.axis.replace('_', ' ')} {shown(step.upper_value)}"
        f" {_effect(step.min_speedup, step.max_speedup, shown(step.lower_value))}"
    )
    where = place(step.max_at, axes) if step.min_speedup < step.max_speedup else ""
    after = [one for one in points_after(step, points) if one.coordinates == step.upper_at]
    reasons = [*(f"bounded by {_bound(one)}" for one in after), *_consequences(step)]
    told = f": {'; '.join(reasons)}" if reasons else ""
    return f"{change}{f' (most at {where})' if where else ''}{told}."


def _effect(least: float, most: float, base: str = "") -> str:
    """Return in words what speedups from the least to the most are.

    base    what it is faster or slower than
    """
    at_most = "" if least == most else "at most "
    over, than = (f" over {base}", f" as {base}") if base else ("", "")
    effects = []
    if most >= MANY_TIMES:
        effects.append(f"is {at_most}{most:.2f} times as fast{than}")
    elif most >= MIN_GAIN:
        effects.append(f"gains {at_most}{most - 1:.0%}{over}")
    if least <= 1 / MIN_GAIN:
        effects.append(f"costs {at_most}{1 / least - 1:.0%}{over}")
    return " and ".join(effects) or f"gains nothing{over}"


def _bound(point: StudyPoint) -> str:
    """Return what limits the fastest call of a point, and what would limit it next."""
    limits = [name for name in point.limits if name in point.rates]
    if not limits:
        most = max(point.shares.values(), default=0.0)
        return f"{limit_name(point)} ({most:.0%} of the time)"
    rate = min(point.rates.values())
    further = {name: own for name, own in point.rates.items() if name not in limits and own > rate}
    text = f"{limit_name(point)} at {format_rate(rate)}"
    if not further:
        return text
    following = min(further, key=lambda name: further[name])
    return f"{text}, then by {RESOURCE_NAMES[following]} at {format_rate(further[following])}"


def _consequences(step: AxisStep) -> Iterator[str]:
    if step.break_even is not None:
        yield f"above {format_rate(step.break_even)} nothing is gained"
    if step.nccl_speedups:
        gained = _effect(min(step.nccl_speedups), max(step.nccl_speedups))
        yield f"what NCCL chooses by itself {gained}"
