"""Make a tuning table from measurements and their calibration: simulate every candidate, train
the selector, and keep the library's default wherever nothing is significantly faster."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.cli.output import add_json, console, emit
from tuner.cli.progress import Display, counted
from tuner.cli.rules import print_rules
from tuner.cost import read_calibration
from tuner.files import require_target
from tuner.measurement import read_measurements
from tuner.select.dataset import Row
from tuner.select.make import make_table
from tuner.table import table_record, write_table
from tuner.topologies.formats import load_topology

EXAMPLES = """examples:
  tuner tune --measurements measurements.ndjson --calibration calibration.json --out table.json
  tuner tune --measurements measurements.ndjson --calibration calibration.json \\
      --topology racks.yaml --out table.json

Then `tuner table show table.json`, `tuner table export table.json --to openmpi`."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--measurements", type=Path, required=True, metavar="FILE")
    parser.add_argument("--calibration", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--topology", type=Path, metavar="FILE",
        help="of the cluster that was measured; needed for several hosts",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON to write")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Make, write and print the table."""
    read = [options.measurements, options.calibration, *filter(None, [options.topology])]
    require_target(options.out, *read)
    topology = load_topology(options.topology) if options.topology else None
    measurements = read_measurements(options.measurements)
    calibration = read_calibration(options.calibration)
    display = Display(console(error=True))
    with display.stage("simulating and selecting") as report:
        _, table = make_table(measurements, calibration, counted(report), topology)
    write_table(table, options.out)
    emit(options, table_record(table), lambda: print_rules(table))


def predictions(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The simulated times of labelled rows, as `tuner simulate` prints them."""
    return [
        {
            "collective": str(row.point.collective), "algorithm": row.choice.algorithm,
            "params": dict(row.choice.params), "p": row.point.p, "nbytes": row.point.nbytes,
            "seconds": row.simulated,
        }
        for row in rows
        if not math.isnan(row.simulated)
    ]  # fmt: skip
