"""Output of the result of a study: tables, CSV, plots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from tuner.base.units import format_size, format_time, humanize
from tuner.cli.terminal.output import csv_lines, print_omitted, print_table, print_text
from tuner.machines.model_accuracy import NCCL
from tuner.prediction.nccl_times import nccl_note
from tuner.whatif.axes import AXIS_FORMATTERS, NCCL_AXIS, SIZE_AXIS
from tuner.whatif.study_result import TIE_TOLERANCE, Crossover, StudyPoint, StudyResult

MAX_SHOWN_RANGES = 60
MAX_SHOWN_CROSSOVERS = 20
PointRange = list[StudyPoint]  # neighbouring sizes with the same best algorithm


def print_study(result: StudyResult) -> set[str]:
    """Print the best algorithms, their crossovers, and what keeping a table would cost.

    Return the axes whose values make no difference.
    """
    same = _print_ranges(result)
    _print_crossovers(result, same)
    _print_table_regret(result)
    return same


def _print_table_regret(result: StudyResult) -> None:
    """Print what the table's choices cost on average and at worst, if that is known."""
    kept = [point.table_regret for point in result.points if point.table_regret is not None]
    if not kept:
        return
    known = result.table_regret
    cost = (
        "at no point is it known what that costs"
        if known is None
        else (
            f"on average {known.mean_regret:.1%} slower than the best, at worst"
            f" {known.max_regret:.1%}, over {known.known_points} points"
        )
    )
    print_text(
        f"Keeping the default of {result.default_title}: {cost}"
        if result.default_title
        else "Keeping the table, read as its exported file is (rules for just the numbers of ranks"
        f" that it has): {cost}"
    )
    for reason, count in Counter(one.reason for one in kept if one.regret is None).items():
        print_text(f"  not counted, {count} of {len(kept)} points: {reason}")


def best_ranges(result: StudyResult) -> Iterator[PointRange]:
    """Yield the points of each machine and collective, split where the best algorithm changes."""
    for _, points in groupby(
        result.points, key=lambda p: (p.axis_values, p.collective, p.best.algorithm)
    ):
        yield list(points)


def _print_ranges(result: StudyResult) -> set[str]:
    """Print the best algorithms by ranges of sizes; return the axes that change nothing."""
    axes = varying(result)
    whose = "default's" if result.default_title else "table's"
    kept = [f"{whose} cost"] if result.points[0].table_regret else []
    has_nccl = any(point.nccl_choice for point in result.points)
    kept += ["NCCL by itself"] if has_nccl else []
    found, same = merge_rows(
        [_row(run, axes, has_nccl=has_nccl) for run in best_ranges(result)],
        [[AXIS_FORMATTERS[axis](value) for value in result.axes[axis]] for axis in axes],
    )
    shown = [axis for at, axis in enumerate(axes) if at not in same]
    fixed = ", ".join(
        f"{title(axis)} {AXIS_FORMATTERS[axis](values[0])}"
        for axis, values in result.axes.items()
        if axis not in axes
    )
    where = f"{result.topology} ({fixed})" if fixed else result.topology
    print_table(
        f"{result.name}: the best algorithm on {where}",
        (*map(title, shown), "call", "sizes", "best", "time", "runner-up", *kept),
        found[:MAX_SHOWN_RANGES],
        right=(*map(title, shown), "time", *kept),
        droppable=("runner-up",),
        wrappable=(*map(title, shown), "best", "runner-up"),
    )
    silent = {axes[at] for at in same}
    if not all(map(is_one_choice, points_of_versions(result))):
        silent -= {NCCL_AXIS}
    for axis in [axes[at] for at in same]:
        what = "nothing here" if axis in silent else "only what NCCL chooses by itself"
        print_text(f"{title(axis)} changes {what}")
    print_omitted(len(found), MAX_SHOWN_RANGES, " rows: --csv and --plots have them all")
    if has_nccl:
        print_text(_note_on_nccl(result))
    return silent


def _note_on_nccl(result: StudyResult) -> str:
    """Return which times are predicted from NCCL's model."""
    timed = [
        (one, int(point.axis_values["nodes"]))
        for point in result.points
        for one in point.candidates
    ]
    own = {(one.algorithm, nodes) for one, nodes in timed if one.predicted_by == NCCL}
    own |= {(point.nccl_choice, 1) for point in result.points}  # what it uses by itself
    return nccl_note(own, simulates=any(one.predicted_by != NCCL for one, _ in timed))


def merge_rows(
    rows: list[list[str]], axes: Sequence[Sequence[str]]
) -> tuple[list[list[str]], list[int]]:
    """Merge rows that differ in the value of one axis alone; the axes are the first cells.

    Return the rows without the cells of axes whose values make no difference anywhere, and the
    indices of these axes.
    """
    for at in range(len(axes)):
        alike: dict[tuple[str, ...], list[str]] = {}
        for row in rows:
            alike.setdefault((*row[:at], *row[at + 1 :]), []).append(row[at])
        rows = [[*key[:at], ", ".join(values), *key[at:]] for key, values in alike.items()]
    every = [", ".join(values) for values in axes]
    same = [at for at, text in enumerate(every) if all(row[at] == text for row in rows)]
    return [[cell for at, cell in enumerate(row) if at not in same] for row in rows], same


def points_of_versions(result: StudyResult) -> list[list[StudyPoint]]:
    """Return lists of points that differ in the version of NCCL alone, which chooses at each."""
    axes = [axis for axis in varying(result) if axis != NCCL_AXIS]
    places: dict[tuple[object, ...], list[StudyPoint]] = {}
    for point in result.points:
        others = tuple(point.axis_values[axis] for axis in axes)
        places.setdefault((others, point.collective, point.nbytes), []).append(point)
    return [here for here in places.values() if all(point.nccl_choice for point in here)]


def is_one_choice(points: Sequence[StudyPoint]) -> bool:
    """Return whether what NCCL chooses by itself is the same at all points."""
    return all(chooses_alike(point, points[0]) for point in points)


def chooses_alike(point: StudyPoint, other: StudyPoint) -> bool:
    """Return whether NCCL chooses the same algorithm by itself, which takes as long."""
    own = (point.nccl_choice, point.nccl_seconds)
    return own == (other.nccl_choice, other.nccl_seconds)


def varying(result: StudyResult) -> tuple[str, ...]:
    """Return the axes with several values."""
    return tuple(axis for axis, values in result.axes.items() if len(values) > 1)


def _row(run: PointRange, axes: tuple[str, ...], *, has_nccl: bool) -> list[str]:
    """Return the cells of a range of sizes, with a last one for NCCL if any point has it."""
    cells = [AXIS_FORMATTERS[axis](run[0].axis_values[axis]) for axis in axes]
    cells += [run[0].collective, text_range([format_size(point.nbytes) for point in run])]
    choices = list(dict.fromkeys(str(point.best) for point in run))
    cells.append(humanize(text_range(choices)))
    cells.append(text_range([format_time(point.best.seconds) for point in run]))
    cells.append(_runner_up(run))
    if run[0].table_regret:
        known = [
            point.table_regret.regret
            for point in run
            if point.table_regret and point.table_regret.regret is not None
        ]
        cells.append(f"{max(known):+.1%}" if known else "?")
    return cells + ([_choice_of_nccl(run)] if has_nccl else [])


def _choice_of_nccl(run: PointRange) -> str:
    """Return the times of what NCCL chooses by itself, in the order of the sizes."""
    times = [point.nccl_seconds for point in run]
    return text_range([format_time(seconds) if seconds is not None else "?" for seconds in times])


def text_range(texts: Sequence[str]) -> str:
    """Return the range from the first to the last one."""
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} … {texts[-1]}"


def _runner_up(run: PointRange) -> str:
    """Return the closest other algorithm, by how much it is slower at least, and where."""
    others = [
        (other.seconds / point.best.seconds - 1, other.algorithm, point.nbytes)
        for point in run
        if (other := point.runner_up) and point.best.seconds > 0
    ]
    if not others:
        return ""
    slower, name, nbytes = min(others)
    by = "equal" if slower <= TIE_TOLERANCE else f"{slower:+.1%}"
    return f"{name}, {by}" if len(run) == 1 else f"{name}, {by} at {format_size(nbytes)}"


def _print_crossovers(result: StudyResult, same: set[str]) -> None:
    """Print where the algorithm itself changes; changes of parameters alone are in the JSON."""
    changed = [
        one
        for one in result.crossovers
        if one.lower_best.algorithm != one.upper_best.algorithm
        and all(one.axis_values.get(axis) == result.axes[axis][0] for axis in same)
    ]
    if not changed:
        print_text("the algorithm is the same everywhere")
        return
    fixed = same | {axis for axis, values in result.axes.items() if len(values) == 1}
    alike = [list(group) for _, group in groupby(changed, key=_key_without_size)]
    print_table(
        "where the algorithm changes",
        ("call", "between", "at", "change"),
        (_change(group, fixed) for group in thin_evenly(alike, MAX_SHOWN_CROSSOVERS)),
        wrappable=("between", "at", "change"),
    )
    print_omitted(len(alike), MAX_SHOWN_CROSSOVERS, ": --json has them all")


def thin_evenly(alike: Sequence[list[Crossover]], most: int) -> list[list[Crossover]]:
    """Return at most `most` groups in the order given, spread evenly over the axes."""
    turns: Counter[str] = Counter()
    order = []
    for at, group in enumerate(alike):
        turns[group[0].axis] += 1
        order.append((turns[group[0].axis], at))
    return [alike[at] for at in sorted(at for _, at in sorted(order)[:most])]


def _key_without_size(switch: Crossover) -> tuple[object, ...]:
    """Return a key that is equal for crossovers that differ in the message size alone."""
    others = tuple((axis, value) for axis, value in switch.axis_values.items() if axis != SIZE_AXIS)
    ends = (switch.lower_best.algorithm, switch.upper_best.algorithm)
    return (switch.collective, switch.axis, switch.lower_value, switch.upper_value, others, ends)


def _change(alike: list[Crossover], fixed: set[str]) -> list[str]:
    """Return the cells of crossovers at neighbouring sizes, without the `fixed` axes."""
    first = alike[0]
    shown = AXIS_FORMATTERS[first.axis]
    where = [
        f"{title(axis)} {_axis_range(axis, alike)}"
        for axis in first.axis_values
        if axis not in fixed
    ]
    ends = (first.lower_best, first.upper_best)
    return [
        first.collective,
        f"{title(first.axis)} {shown(first.lower_value)} and {shown(first.upper_value)}",
        ", ".join(where),
        " -> ".join(humanize(str(e)) if len(alike) == 1 else e.algorithm for e in ends),
    ]


def _axis_range(axis: str, alike: list[Crossover]) -> str:
    """Return the values of an axis from the first of some crossovers to the last one."""
    ends = (alike[0].axis_values[axis], alike[-1].axis_values[axis])
    return text_range([AXIS_FORMATTERS[axis](value) for value in ends])


def title(axis: str) -> str:
    """Return the name of an axis for people."""
    return "size" if axis == SIZE_AXIS else axis.replace("_", " ")


def csv_text(result: StudyResult) -> str:
    """Return CSV with a line per point and candidate, in seconds and bytes per second."""
    call = ("collective", "nbytes", "algorithm", "params", "seconds", "predicted_by", "best")
    rows = (
        (
            *point.axis_values.values(),
            point.collective,
            point.nbytes,
            timing.algorithm,
            ";".join(f"{name}={value}" for name, value in sorted(timing.params.items())),
            timing.seconds,
            timing.predicted_by,
            int(timing is point.best),
        )
        for point in result.points
        for timing in point.candidates
    )
    return csv_lines((*result.axes, *call), rows)
