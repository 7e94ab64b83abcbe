"""Make a tuning table from measurements and their calibration: simulate every candidate, train
the selector, and keep the library's default wherever nothing is significantly faster."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tuner.cli.output import add_json, console, emit
from tuner.cli.progress import Display, counted
from tuner.cli.rules import print_rules
from tuner.cost import Calibration, read_calibration
from tuner.errors import InputError
from tuner.export import mpich, openmpi
from tuner.measurement import Measurements, read_measurements
from tuner.select.dataset import Row, label
from tuner.select.predict import simulator
from tuner.select.selector import train
from tuner.select.tabulate import tabulate
from tuner.table import TuningTable, table_record, write_table
from tuner.topologies import single_node

EXAMPLES = """examples:
  tuner tune --measurements measurements.ndjson --calibration calibration.json --out table.json
  tuner tune --measurements measurements.ndjson --calibration calibration.json --out table.json \\
      --json

Then `tuner table show table.json`, `tuner table export table.json --to openmpi`."""

EXPORTS = {"openmpi": openmpi, "mpich": mpich}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--measurements", type=Path, required=True, metavar="FILE")
    parser.add_argument("--calibration", type=Path, required=True, metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON to write")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Make, write and print the table."""
    measurements = read_measurements(options.measurements)
    calibration = read_calibration(options.calibration)
    display = Display(console(error=options.json))
    with display.stage("simulating and selecting") as report:
        _, table = make_table(measurements, calibration, counted(report))
    write_table(table, options.out)
    emit(options, table_record(table), lambda: print_rules(table))


def make_table(
    measurements: Measurements,
    calibration: Calibration,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Sequence[Row], TuningTable]:
    """The labelled rows and the table. Raises InputError when the two do not belong together."""
    theirs = (calibration.cluster, calibration.library)
    if theirs != (measurements.cluster.name, measurements.library):
        raise InputError(
            f"the calibration is of {theirs[1]} on {theirs[0]}, the measurements of"
            f" {measurements.library} on {measurements.cluster.name}: calibrate these measurements"
        )
    export = EXPORTS.get(measurements.library.partition(" ")[0])
    if export is None:
        raise InputError(
            f"tables cannot be made for {measurements.library!r}, only for {' and '.join(EXPORTS)}"
        )
    simulate = simulator(calibration, single_node(measurements.cluster, calibration))
    rows = label(measurements, simulate, progress)
    return rows, tabulate(measurements, rows, train(rows, simulate), export.order_safe)


def predictions(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The simulated times of labelled rows, as `tuner simulate` prints them."""
    return [
        {
            "collective": row.point.collective.value, "algorithm": row.choice.algorithm,
            "params": dict(row.choice.params), "p": row.point.p, "nbytes": row.point.nbytes,
            "seconds": row.simulated,
        }
        for row in rows
        if not math.isnan(row.simulated)
    ]  # fmt: skip
