"""What a study answers, for people: what limits the calls, what each step gains, what to buy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tuner.base.units import format_size, format_time
from tuner.cli.terminal.output import print_omitted, print_table, print_text
from tuner.cli.views.study_view import (
    chooses_alike,
    is_one_choice,
    merge_rows,
    points_of_versions,
    text_range,
    title,
    varying,
)
from tuner.core.collective import Collective
from tuner.whatif.axes import AXIS_FORMATTERS, NCCL_AXIS
from tuner.whatif.machine_resources import MIN_SENSITIVITY, RESOURCE_NAMES
from tuner.whatif.study_result import AxisStep, MachineValue, StudyPoint, StudyResult
from tuner.whatif.study_summary import limit_name, limits_by_size, points_after

MAX_SHOWN_STEPS = 40
MAX_SHOWN_LIMITS = 40
MAX_SHOWN_CHOICES = 40
MAX_SHOWN_MACHINES = 40


def print_answers(result: StudyResult, same: set[str]) -> None:
    """Print limits, what steps along axes gain, the price of speed, a summary and how sure it is.

    same    axes that change nothing, which are left out
    """
    _print_nccl_choices(result)
    _print_limits(result)
    _print_axis_steps(result, same)
    _print_machine_values(result)
    print_text(f"In short: {result.summary}")
    for sentence in result.verdicts:
        print_text(f"Verdict: {sentence}")
    if result.accuracy:
        print_text(result.accuracy)


def _print_nccl_choices(result: StudyResult) -> None:
    """Print what versions of NCCL choose by themselves, side by side, where they differ."""
    versions = result.axes.get(NCCL_AXIS, ())
    axes = [axis for axis in varying(result) if axis != NCCL_AXIS]
    known = [here for here in points_of_versions(result) if not is_one_choice(here)]
    if not known:
        return
    rows = [_nccl_row(list(run), axes) for _, run in groupby(known, lambda h: _nccl_key(h, axes))]
    own = [f"NCCL {version}" for version in versions]
    print_table(
        "what NCCL chooses by itself",
        (*map(title, axes), "call", "sizes", *own),
        rows[:MAX_SHOWN_CHOICES],
        right=map(title, axes),
        wrappable=("sizes", *own),
    )
    print_omitted(len(rows), MAX_SHOWN_CHOICES, " rows: --json has them all")
    print_text(
        "They choose alike at all other points. The same algorithm and protocol are taken to last"
        " as long in each version, but for all-to-alls in LL; any other time of the same algorithm"
        " is that of another protocol."
    )


def _nccl_key(here: Sequence[StudyPoint], axes: Sequence[str]) -> tuple[object, ...]:
    """Return what is alike at neighbouring sizes that share a row; `here` has all versions."""
    others = (here[0].axis_values[axis] for axis in axes)
    pairs = zip((here[0], *here), here, strict=False)
    return (
        *others,
        here[0].collective,
        *((p.nccl_choice, chooses_alike(p, before)) for before, p in pairs),
    )


def _nccl_row(run: Sequence[Sequence[StudyPoint]], axes: Sequence[str]) -> list[str]:
    """Return the cells of neighbouring sizes, each of which has the points of all versions."""
    first = run[0][0]
    cells = [AXIS_FORMATTERS[axis](first.axis_values[axis]) for axis in axes]
    cells += [first.collective, text_range([format_size(here[0].nbytes) for here in run])]
    for number, point in enumerate(run[0]):
        times = [format_time(here[number].nccl_seconds or 0.0) for here in run]
        same = number and all(chooses_alike(here[number], here[number - 1]) for here in run)
        cells.append("same" if same else f"{point.nccl_choice} {text_range(times)}")
    return cells


def _print_limits(result: StudyResult) -> None:
    """Print how many times as fast the best algorithms are with each resource twice as fast."""
    points = [point for point in result.points if point.sensitivities]
    if not points:
        return
    axes = varying(result)
    runs = groupby(points, key=lambda p: (p.axis_values, p.collective, limit_name(p)))
    rows, same = merge_rows(
        [_limit_row(list(run), axes) for _, run in runs],
        [[AXIS_FORMATTERS[axis](value) for value in result.axes[axis]] for axis in axes],
    )
    told = [title(axis) for at, axis in enumerate(axes) if at not in same]
    gains = "times as fast with this twice as fast"
    print_table(
        "what limits the best algorithms",
        (*told, "call", "sizes", "limited by", gains),
        rows[:MAX_SHOWN_LIMITS],
        right=told,
        wrappable=(*told, "sizes", "limited by", gains),
    )
    print_omitted(len(rows), MAX_SHOWN_LIMITS, " rows: --json has them all")


def _limit_row(run: Sequence[StudyPoint], axes: Sequence[str]) -> list[str]:
    """Return the cells of neighbouring sizes with one limit."""
    cells = [AXIS_FORMATTERS[axis](run[0].axis_values[axis]) for axis in axes]
    cells += [run[0].collective, text_range([format_size(point.nbytes) for point in run])]
    return [*cells, limit_name(run[0]), _gains(run)]


def _gains(run: Sequence[StudyPoint]) -> str:
    """Return what doubling resources gains, such as `latency 1.36 … 1.27`, the largest first."""
    gains = {name: [point.sensitivities[name] for point in run] for name in run[0].sensitivities}
    worth = sorted(
        (name for name in gains if max(gains[name]) >= MIN_SENSITIVITY),
        key=lambda name: -max(gains[name]),
    )
    return ", ".join(
        f"{RESOURCE_NAMES[name]} {text_range([f'{gain:.2f}' for gain in gains[name]])}"
        for name in worth
    )


def _print_axis_steps(result: StudyResult, same: set[str]) -> None:
    """Print what each step along an axis gains, but for axes that change nothing (`same`)."""
    steps = [one for one in result.axis_steps if one.axis not in same]
    if not steps:
        return
    own = ["NCCL by itself"] if any(one.nccl_speedups for one in result.axis_steps) else []
    print_table(
        "what a step along an axis gains",
        ("axis", "step", "call", "times as fast", *own, "most at", "then limited by"),
        (_step(one, result) for one in steps[:MAX_SHOWN_STEPS]),
        right=("times as fast", *own),
        droppable=("most at",),
        wrappable=("step", "most at", "then limited by"),
    )
    print_omitted(len(steps), MAX_SHOWN_STEPS, ": --json has them all")


def _step(one: AxisStep, result: StudyResult) -> list[str]:
    """Return the cells of a step; axes with one value are left out of where it gains most."""
    shown = AXIS_FORMATTERS[one.axis]
    times = _factors(one.min_speedup, one.max_speedup)
    own = [_factors(*one.nccl_speedups)] if one.nccl_speedups else []
    others = [
        f"{title(axis)} {AXIS_FORMATTERS[axis](value)}"
        for axis, value in one.max_at.items()
        if len(result.axes.get(axis, (0, 0))) > 1
    ]
    after = points_after(one, result.points)
    return [
        title(one.axis),
        f"{shown(one.lower_value)} to {shown(one.upper_value)}",
        one.collective,
        times,
        *(own or [""] * any(step.nccl_speedups for step in result.axis_steps)),
        ", ".join(others) if " to " in times else "",
        limits_by_size(after) if after else "",
    ]


def _factors(least: float, most: float) -> str:
    """Return the range of some factors, as `1.02 to 1.95`."""
    return " to ".join(dict.fromkeys((f"{least:.2f}", f"{most:.2f}")))


def _print_machine_values(result: StudyResult) -> None:
    """Print the price of each machine, and what speed costs on it."""
    values = result.machine_values
    if not values:
        return
    axes = varying(result)
    calls = tuple(dict.fromkeys(call for one in values for call in one.relative_cost))
    parts = [plural_name(part) for part in values[0].parts]
    print_table(
        "price of each machine, and of its speed: price per node times the time of a call, 1.00 for"
        " the best value",
        (*map(title, axes), *parts, "price", *calls),
        (_value_row(one, axes, calls) for one in values[:MAX_SHOWN_MACHINES]),
        right=(*map(title, axes), *parts, "price", *calls),
        droppable=parts,
    )
    print_omitted(len(values), MAX_SHOWN_MACHINES, ": --json has them all")


def plural_name(part: str) -> str:
    """Return the name of a part for a column of numbers."""
    return "switches" if part == "switch" else f"{part}s"


def _value_row(one: MachineValue, axes: Sequence[str], calls: Sequence[Collective]) -> list[str]:
    where = [AXIS_FORMATTERS[axis](one.axis_values[axis]) for axis in axes]
    costs = [
        f"{one.relative_cost[call]:.2f}" if call in one.relative_cost else "" for call in calls
    ]
    return [*where, *map(str, one.parts.values()), f"{one.price:,.0f}", *costs]
