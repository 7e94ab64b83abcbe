"""Study machines that need not exist: the best algorithm over axes of a topology, where it
changes, and what it would cost to keep the choices of an existing table."""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

from tuner.cli.output import add_json, console, emit, print_table
from tuner.cli.progress import Display, counted
from tuner.files import write_atomically
from tuner.sim import study
from tuner.sim.study.axes import FORMATS, NBYTES
from tuner.units import format_size, format_time

EXAMPLES = f"""examples:
  tuner whatif twice.yaml
  tuner whatif twice.yaml --csv twice.csv
  tuner whatif twice.yaml --json

A study, here saved as twice.yaml:
  name: twice the network
  topology:             # or a file: topology: flat64.yaml
    name: flat64
    nodes: 64
    latency: 2us
    bandwidth: 12.5GB/s
  vary:
    nodes: [4, 16, 64]
    bandwidth: [12.5GB/s, 25GB/s]
  collectives: [bcast, allreduce]
  sizes: [1KiB, 64KiB, 1MiB]
  table: table.json     # optional: what its choices would cost

Axes: {", ".join(study.AXES)}.
`calibration: FILE` takes the costs that were measured from there, `algorithms: [ring, binomial]`
restricts the candidates."""

SHOWN_SWITCHES = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("study", type=Path, help="YAML or JSON file")
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="write every time of every candidate there"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the study, print its result."""
    asked = study.read_study(options.study)
    display = Display(console(error=options.json))
    with display.stage(f"simulating {asked.number_of_points} points") as report:
        result = study.run(asked, counted(report))
    if options.csv:
        write_atomically(options.csv, _csv(result))
    emit(options, study.result_record(result), lambda: _print(result))


def _print(result: study.StudyResult) -> None:
    _print_points(result)
    _print_switches(result)
    keeping = result.keeping
    if keeping is not None:
        console().print(
            f"Keeping the table, read as its exported file is (the rules of the most ranks not"
            f" above): on average {keeping.mean:.1%} slower than the best, at worst"
            f" {keeping.worst:.1%}, over {keeping.points} points; {keeping.unknown} more where the"
            " library decides by itself, and how is not known",
            markup=False,
        )


def _print_points(result: study.StudyResult) -> None:
    axes = tuple(result.axes)
    kept = ("table's cost",) if result.points[0].kept else ()
    print_table(
        f"{result.name}: the best algorithm on {result.topology}",
        (*axes, "call", "size", "best", "time", "runner-up", "its time", *kept),
        (_row(point) for point in result.points),
        right=(*axes, "size", "time", "its time", *kept),
    )


def _row(point: study.StudyPoint) -> list[str]:
    """The cells of a point."""
    cells = [FORMATS[axis](value) for axis, value in point.at.items()]
    cells += [point.collective, format_size(point.nbytes)]
    for timing in (point.best, point.runner_up):
        cells += ["", ""] if timing is None else [str(timing), format_time(timing.seconds)]
    if point.kept:
        cells.append("?" if point.kept.regret is None else f"{point.kept.regret:+.1%}")
    return cells


def _print_switches(result: study.StudyResult) -> None:
    """Changes of the algorithm itself; those of parameters alone are in the JSON."""
    changed = [one for one in result.switches if one.before.algorithm != one.after.algorithm]
    fixed = {axis for axis, values in result.axes.items() if len(values) == 1}
    print_table(
        "where the algorithm changes" if changed else "the algorithm is the same everywhere",
        ("call", "along", "between", "at", "from", "to"),
        (_change(switch, fixed) for switch in changed[:SHOWN_SWITCHES]),
    )
    if len(changed) > SHOWN_SWITCHES:
        console().print(f"and {len(changed) - SHOWN_SWITCHES} more: --json has them all")


def _change(switch: study.Switch, fixed: set[str]) -> list[str]:
    """The cells of a switch; axes of one value go without saying."""
    shown = FORMATS[switch.axis]
    others = [
        f"{_title(axis)} {FORMATS[axis](value)}"
        for axis, value in switch.at.items()
        if axis not in fixed
    ]
    return [
        switch.collective, _title(switch.axis), f"{shown(switch.below)} and {shown(switch.above)}",
        ", ".join(others), str(switch.before), str(switch.after),
    ]  # fmt: skip


def _title(axis: str) -> str:
    return "size" if axis == NBYTES else axis.replace("_", " ")


def _csv(result: study.StudyResult) -> str:
    """One line per point and candidate; latencies in seconds, bandwidths in bytes per second."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*result.axes, "collective", "nbytes", "algorithm", "params", "seconds", "best"])
    for point in result.points:
        for timing in point.timings:
            params = ";".join(f"{name}={value}" for name, value in sorted(timing.params.items()))
            lines.writerow([
                *point.at.values(), point.collective, point.nbytes, timing.algorithm, params,
                timing.seconds, int(timing is point.best),
            ])  # fmt: skip
    return text.getvalue()
