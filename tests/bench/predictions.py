"""Measured collectives against predictions from messages alone.

    python -m tests.bench.predictions GRID.ndjson TOPOLOGY [MESSAGES.ndjson] [--table 8x1]

GRID is of `tuner probe run` with all collectives, on the hosts of TOPOLOGY. The calibration is made
of its messages, or of those in MESSAGES. Prints how far predictions are off and how they rank: all,
by collective, by shape, by algorithm and band of sizes; then measured over predicted time of every
algorithm at every size, for every shape or the one that is asked for.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tuner.base.units import format_size
from tuner.calibrate import calibrate
from tuner.calibrate.accuracy import (
    CollectivePrediction,
    PredictionErrors,
    errors_by_algorithm,
    summarise_errors,
    summarise_ranking,
)
from tuner.calibrate.measured_collectives import predict_all, simulatable_collectives
from tuner.cli.terminal.output import print_table
from tuner.core.measurement import Measurements, read_measurements
from tuner.core.table import DEFAULT, RUNNER_OF_KIND
from tuner.machines.topology_files import load_topology
from tuner.probe.probe_spec import ProbeShape, parse_shape

LEAST = 1 << 14  # bytes: below, the processors of an emulated cluster set the pace
ERRORS = ("cases", "median", "mean", "p95", "bias")
RANKS = ("points", "regret", "tau", "within 5 %")


def print_figures(title: str, groups: Mapping[str, Sequence[CollectivePrediction]]) -> None:
    """A line for each group: how far predictions are off, and what choosing by them costs."""
    rows = []
    for name, own in groups.items():
        ranks = summarise_ranking(own)
        rows.append(
            (
                name,
                *_written(summarise_errors(own)),
                str(ranks.points),
                f"{ranks.regret:.1%}",
                f"{ranks.tau:.2f}",
                f"{ranks.close:.0%}",
            )
        )
    print_table(title, ("", *ERRORS, *RANKS), rows, right=(*ERRORS, *RANKS))


def _written(found: PredictionErrors) -> tuple[str, ...]:
    sizes = (f"{value:.1%}" for value in (found.median, found.mean, found.p95))
    return (str(found.cases), *sizes, f"{found.bias:+.1%}")


def grouped(cases: Iterable[CollectivePrediction]) -> dict[str, list[CollectivePrediction]]:
    """All of them, those of each collective, those of each of its shapes."""
    groups: dict[str, list[CollectivePrediction]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: case.point):
        collective = str(case.point[0])
        for name in ("all", collective, f"{collective} {_shape(case)}"):
            groups[name].append(case)
    return dict(sorted(groups.items(), key=lambda group: group[0] != "all"))


def _shape(case: CollectivePrediction) -> ProbeShape:
    return ProbeShape(*case.point[1:3])


def print_bands(cases: Sequence[CollectivePrediction]) -> None:
    """A line of errors for each algorithm and band of sizes."""
    rows = [
        (f"{collective} {algorithm}", _band(low, high), *_written(found))
        for (collective, algorithm, low, high), found in errors_by_algorithm(cases).items()
    ]
    print_table("by algorithm", ("", "sizes", *ERRORS), rows, right=ERRORS)


def _band(low: int, high: int) -> str:
    return f"{format_size(low)} " + ("up" if high > 1 << 40 else f"< {format_size(high)}")


def print_ratios(cases: Iterable[CollectivePrediction], on: ProbeShape) -> None:
    """Measured over predicted times at one shape, sizes across."""
    ratios: dict[str, dict[int, float]] = defaultdict(dict)
    for case in cases:
        if _shape(case) == on:
            name = f"{case.point[0]} {case.choice}"
            ratios[name][case.point[-1]] = case.measured_s / case.predicted_s
    sizes = sorted({size for found in ratios.values() for size in found})
    rows = [
        (name, *(f"{found[size]:.2f}" if size in found else "" for size in sizes))
        for name, found in sorted(ratios.items())
    ]
    columns = [format_size(size) for size in sizes]
    print_table(f"measured / predicted on {on}", ("", *columns), rows, right=columns)


def algorithms_measured(grid: Measurements) -> int:
    """Algorithms at points, LEAST bytes or more, but the library's default."""
    return len(
        {
            (one.point, one.algorithm, frozenset(one.params.items()))
            for one in grid.series
            if one.kind in RUNNER_OF_KIND and one.algorithm != DEFAULT and one.nbytes >= LEAST
        }
    )


def predicted(
    grid: Measurements, messages: Measurements, topology: Path
) -> list[CollectivePrediction]:
    """Everything of the grid that a schedule describes, from the messages alone."""
    where = load_topology(topology)
    own = [call for call in simulatable_collectives(grid, where) if call.point[-1] >= LEAST]
    return predict_all(own, calibrate(messages, where))


def main(options: argparse.Namespace) -> None:
    """Predict and print."""
    grid = read_measurements(options.grid)
    messages = read_measurements(options.messages) if options.messages else grid
    cases = predicted(grid, messages, options.topology)
    print_figures("from messages alone", grouped(cases))
    print(f"{len(cases)} of {algorithms_measured(grid)} have a schedule and so a prediction\n")
    print_bands(cases)
    for on in [options.table] if options.table else sorted(set(map(_shape, cases)), key=str):
        print_ratios(cases, on)


def arguments(description: str) -> argparse.ArgumentParser:
    """Which files."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("grid", type=Path)
    parser.add_argument("topology", type=Path)
    parser.add_argument("messages", type=Path, nargs="?")
    return parser


if __name__ == "__main__":
    asked = arguments("Measured collectives against predictions from messages alone.")
    asked.add_argument("--table", type=parse_shape, metavar="HOSTSxRANKS")
    main(asked.parse_args())
