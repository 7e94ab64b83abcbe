"""Output of a sweep of training: table, CSV."""

from __future__ import annotations

from tuner.base.units import format_time
from tuner.cli.terminal.output import csv_lines, print_omitted, print_table, print_text
from tuner.cli.views.study_view import merge_rows, title
from tuner.cli.views.training_view import format_rate
from tuner.training.scaling import counted_unit
from tuner.training.sweep import SweepPoint, SweepResult, format_epoch, summarise_sweep
from tuner.training.sweep_spec import DEFAULT_YEARS, FORMATTERS, FRAMEWORK

MAX_SHOWN_POINTS = 60


def format_cost(cost: float) -> str:
    """Return a price to three significant digits, or as a whole number."""
    return f"{cost:,.0f}" if cost >= 1000 else f"{cost:.3g}"


def print_sweep(result: SweepResult) -> None:
    """Print all configurations, those that differ in one axis alone together, and a summary."""
    sweep = result.sweep
    axes = [axis for axis, values in sweep.axes.items() if len(values) > 1]
    unit, per_sample = counted_unit(sweep.workload)
    rows, same = merge_rows(
        [_row(point, axes, per_sample) for point in result.points],
        [[FORMATTERS[axis](value) for value in sweep.axes[axis]] for axis in axes],
    )
    shown = [title(axis) for at, axis in enumerate(axes) if at not in same]
    numbers = (f"{unit}/s", "efficiency", "epoch", "cost")
    print_table(
        f"{sweep.workload.name}: time{' and cost' if result.cheapest else ''} of an epoch",
        (*shown, "iteration", *numbers, "scaling limited by"),
        rows[:MAX_SHOWN_POINTS],
        right=(*(one for one in shown if one != title(FRAMEWORK)), "iteration", *numbers),
        droppable=("iteration", "efficiency"),
        wrappable=(*shown, "scaling limited by"),
    )
    print_omitted(len(rows), MAX_SHOWN_POINTS, " rows: --csv and --plots have them all")
    for at in same:
        print_text(f"{title(axes[at])} changes nothing here")
    if sweep.prices:
        years = f"{sweep.years:g} years" + (" (default)" if sweep.years == DEFAULT_YEARS else "")
        print_text(f"Prices of parts are spread over {years} of use")
    print_text(f"In short: {summarise_sweep(result)}")


def _row(point: SweepPoint, axes: list[str], per_sample: int) -> list[str]:
    return [
        *(FORMATTERS[axis](point.axis_values[axis]) for axis in axes),
        format_time(point.seconds),
        format_rate(point.rate * per_sample),
        f"{point.efficiency:.1%}",
        format_epoch(point.epoch) if point.epoch else "",
        "" if point.cost is None else format_cost(point.cost),
        point.limit,
    ]


def csv_text(result: SweepResult) -> str:
    """Return CSV with a line for each configuration, in seconds and samples per second."""
    own = ("seconds", "exposed", "rate", "efficiency", "epoch", "cost", "limit")
    axes = list(result.sweep.axes)
    extra = [name for name in ("ranks", "nodes") if name not in axes]
    rows = (
        (
            *(float(v) if isinstance(v, float) else v for v in point.axis_values.values()),
            *(getattr(point, name) for name in (*extra, *own)),
        )
        for point in result.points
    )
    return csv_lines((*axes, *extra, *own), rows)
