"""Output of predicted training and of the search for settings: tables, CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tuner.base.units import format_size, format_time, humanize, plural
from tuner.cli.terminal.output import csv_lines, print_table, print_text
from tuner.training.iteration import PredictedCall, PredictedIteration
from tuner.training.scaling import ExplainedIteration, counted_unit, published_at, scaling_accuracy
from tuner.training.search import TunedTraining, describe_settings
from tuner.training.timeline import CALL, PHASES, WAIT
from tuner.training.training_limits import LIMIT_NAMES
from tuner.training.workload import Training, Workload

MAX_SHOWN_CALLS = 20
ROUNDING = 1e-9  # relative errors of sums of seconds
MIN_SHARE = 5e-4  # of an iteration that is shown
SCHEDULE_SUFFIX = " via schedule"  # of algorithms that no library was asked to run
PHASE_NAMES = {CALL: "calls"}  # columns whose title differs from the phase


def format_rate(rate: float) -> str:
    """Return a rate for people: to three significant digits below 1000, else a whole number."""
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"


def format_exposed(found: PredictedIteration) -> str:
    """Return the exposed time of an iteration, 0 where nothing but rounding is left of it."""
    return format_time(found.exposed) if found.exposed > ROUNDING * found.seconds else "0"


def print_scaling(workload: Training, points: Sequence[ExplainedIteration]) -> None:
    """Print predictions over numbers of ranks, where the time goes, the calls, and the rate."""
    _print_predictions(workload, points)
    _print_shares(points)
    _print_limits(points)
    for point in points:
        if point.servers is not None:
            print_text(point.servers.sentence(point.found))
    last = points[-1].found
    _print_calls(f"calls of an iteration on {plural(last.ranks, 'rank')}", last.calls)
    if isinstance(workload, Workload):
        print_text(_about_rate(workload))
    if accuracy := scaling_accuracy(workload, points):
        print_text(accuracy)
    for one in workload.published:
        print_text(f"Published for {plural(one.ranks, 'rank')}: {one.source or 'no source given'}")


def _print_predictions(workload: Training, points: Sequence[ExplainedIteration]) -> None:
    unit, per_sample = counted_unit(workload)
    rate = f"{unit}/s"
    numbers = ("ranks", "nodes", "iteration", "compute", "exposed", rate)
    right = (*numbers, "efficiency", "published", "speedup")
    print_table(
        workload.name,
        (*right, "scaling limited by"),
        (_prediction_row(workload, one, per_sample) for one in points),
        right=right,
        droppable=("nodes", "compute", "speedup"),
        wrappable=("scaling limited by",),
    )


def _prediction_row(workload: Training, one: ExplainedIteration, per_sample: int) -> list[str]:
    found, known = one.found, published_at(workload, one.found.ranks)
    return [
        str(found.ranks),
        str(found.nodes),
        format_time(found.seconds),
        format_time(found.compute),
        format_exposed(found),
        format_rate(found.rate * per_sample),
        f"{found.efficiency:.1%}",
        f"{known.efficiency(found.alone):.1%}" if known else "",
        f"{found.rate / found.alone:.1f}",
        one.limit,
    ]


def _print_shares(points: Sequence[ExplainedIteration]) -> None:
    """Print the share of each phase; exposed ones only, so that they add up to the iteration."""
    titles = tuple(PHASE_NAMES.get(phase, phase) for phase in PHASES)
    rows = (
        [str(one.found.ranks), *(_share(one.shares[phase], one.found.seconds) for phase in PHASES)]
        for one in points
    )
    title = "where the time goes: computation, and what a rank waits for while it does not compute"
    print_table(title, ("ranks", *titles), rows, right=("ranks", *titles))
    if any(one.shares[WAIT] > MIN_SHARE * one.found.seconds for one in points):
        print_text("wait: for framework cycles, servers, slower ranks or other stages\n")


def _share(seconds: float, whole: float) -> str:
    return f"{seconds / whole:.1%}" if seconds > MIN_SHARE * whole else ""


def _print_limits(points: Sequence[ExplainedIteration]) -> None:
    explained = [one for one in points if len(one.limits) > 1]
    if not explained:
        return
    names = [name for name in LIMIT_NAMES if any(name in one.limits for one in explained)]
    titles = [LIMIT_NAMES[name] for name in names]
    print_table(
        "times as fast with this twice as fast",
        ("ranks", *titles),
        (
            [
                str(one.found.ranks),
                *(f"{one.limits[name]:.2f}" if name in one.limits else "" for name in names),
            ]
            for one in explained
        ),
        right=("ranks", *titles),
        droppable=tuple(titles[:1:-1]),
    )


def _print_calls(title: str, calls: Sequence[PredictedCall]) -> None:
    """Print the calls that take most time; calls whose sizes look alike are one row."""
    alike: dict[tuple[str, ...], list[PredictedCall]] = {}
    for one in calls:
        alike.setdefault(_call_cells(one), []).append(one)
    if not alike:
        return
    longest = sorted(alike, key=lambda cells: -_total(alike[cells]))[:MAX_SHOWN_CALLS]
    print_table(
        title,
        ("call", "size", "group", "algorithm", "count", "each", "all"),
        (_call_row(cells, own) for cells, own in alike.items() if cells in longest),
        right=("size", "count", "each", "all"),
        droppable=("group", "all"),
        wrappable=("algorithm",),
    )
    if len(alike) > len(longest):
        print_text(f"and {len(alike) - len(longest)} shorter calls: --json has them all")


def _call_cells(one: PredictedCall) -> tuple[str, ...]:
    group = one.call.group
    return (
        one.call.operation,
        format_size(one.call.nbytes),
        str(group.size) if group.stride == 1 else f"{group.size}, stride {group.stride}",
        humanize(one.algorithm.removesuffix(SCHEDULE_SUFFIX)),
    )


def _total(calls: Iterable[PredictedCall]) -> float:
    return sum(one.count * one.seconds for one in calls)


def _call_row(cells: tuple[str, ...], own: Sequence[PredictedCall]) -> list[str]:
    count, seconds = sum(one.count for one in own), _total(own)
    return [*cells, str(count), format_time(seconds / count), format_time(seconds)]


def _about_rate(workload: Workload) -> str:
    unit, per_sample = counted_unit(workload)
    rate = workload.rate
    return (
        f"One rank alone: {format_rate(rate.rate * per_sample)} {unit}/s"
        f" ({rate.certainty}: {rate.source})"
    )


def csv_text(points: Sequence[ExplainedIteration]) -> str:
    """Return CSV with a line for each number of ranks, in seconds and samples per second."""
    own = ("seconds", "compute", "exposed", "communication")
    shares = (f"share_{phase}" for phase in PHASES)
    rows = (
        (
            one.found.ranks,
            one.found.nodes,
            *(getattr(one.found, name) for name in own),
            one.found.rate,
            one.found.efficiency,
            one.found.rate / one.found.alone,
            *(one.shares[phase] / one.found.seconds for phase in PHASES),
            one.limit,
        )
        for one in points
    )
    rates = ("samples_per_second", "efficiency", "speedup")
    return csv_lines(("ranks", "nodes", *own, *rates, *shares, "limit"), rows)


def print_tuned(workload: Workload, found: TunedTraining, lines: Iterable[str]) -> None:
    """Print predictions before and after the search, and the settings that were found."""
    _print_gain(workload, found)
    print_text(
        f"An iteration becomes {found.speedup:.3f} times as fast;"
        f" {found.tried} combinations of settings and algorithms were predicted.\n"
    )
    _print_calls("calls after tuning", found.after.calls)
    if found.workload.policy is not workload.policy:
        print_text(
            "The algorithms are the fastest known: a tuning table makes the library use them"
            " (`tuner training run --profile`, then `tuner tune --profile`).\n"
        )
    commands = list(lines)
    if commands:
        print_text("settings as the framework takes them:")
        for line in commands:
            print_text(f"  {line}")


def _print_gain(workload: Workload, found: TunedTraining) -> None:
    """Print the predictions with the given settings and with those that were found."""
    unit, per_sample = counted_unit(workload)
    columns = ("", "iteration", "exposed", f"{unit}/s", "efficiency", "calls", "settings")
    rows = [
        [
            name,
            format_time(one.seconds),
            format_exposed(one),
            format_rate(one.rate * per_sample),
            f"{one.efficiency:.1%}",
            str(sum(call.count for call in one.calls)),
            settings,
        ]
        for name, one, settings in (
            ("given", found.before, describe_settings(_given(workload, found))),
            ("tuned", found.after, describe_settings(found.changed) or "as given"),
        )
    ]
    print_table(
        f"{workload.name}, {plural(found.after.ranks, 'rank')}",
        columns,
        rows,
        right=columns[1:6],
        droppable=("calls",),
        wrappable=("settings",),
    )


def _given(workload: Workload, found: TunedTraining) -> dict[str, Any]:
    return {name: getattr(workload.framework, name) for name in found.changed}


def tuned_record(workload: Workload, found: TunedTraining, lines: Sequence[str]) -> dict[str, Any]:
    """Return the result of the search as JSON has it."""
    return {
        "name": workload.name,
        "ranks": found.after.ranks,
        "before": _iteration_record(found.before) | {"settings": _given(workload, found)},
        "after": _iteration_record(found.after) | {"settings": dict(found.changed)},
        "speedup": found.speedup,
        "tried": found.tried,
        "arguments": list(lines),
    }


def _iteration_record(found: PredictedIteration) -> dict[str, Any]:
    return {
        "seconds": found.seconds,
        "exposed": found.exposed,
        "samples_per_second": found.rate,
        "efficiency": found.efficiency,
        "calls": [
            {
                "operation": one.call.operation,
                "nbytes": one.call.nbytes,
                "count": one.count,
                "algorithm": one.algorithm,
                "seconds": one.seconds,
            }
            for one in found.calls
        ],
    }
