"""Fit the calibration to measurements: per path class piecewise alpha and beta, and gamma, each
with its 95 % interval."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner.calibrate import calibrate
from tuner.cli.output import add_json, emit, print_table
from tuner.cost import Calibration, Estimate, calibration_record, write_calibration
from tuner.files import require_target
from tuner.measurement import read_measurements
from tuner.units import format_size, format_time

EXAMPLES = """examples:
  tuner calibrate measurements.ndjson --out calibration.json
  tuner calibrate measurements.ndjson --json"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("measurements", type=Path, help="NDJSON written by `tuner probe`")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON to write")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Fit, write, print."""
    if options.out:
        require_target(options.out, options.measurements)
    calibration = calibrate(read_measurements(options.measurements))
    if options.out:
        write_calibration(calibration, options.out)
    emit(options, calibration_record(calibration), lambda: print_calibration(calibration))


def print_calibration(calibration: Calibration) -> None:
    """Paths, then reductions, with their intervals."""
    rows = [
        (path, memory, f"[{format_size(s.lo)}, {format_size(s.hi)})", _time(s.alpha), _rate(s.beta))
        for (path, memory), cost in calibration.paths.items()
        for s in cost.segments
    ]
    print_table(
        f"{calibration.library} on {calibration.cluster}",
        ("path", "memory", "sizes", "alpha", "1/beta"), rows,
    )  # fmt: skip
    print_table(
        "reduction", ("memory", "launch", "1/gamma"),
        [(memory, _time(c.launch), _rate(c.gamma)) for memory, c in calibration.reduction.items()],
    )  # fmt: skip


def _time(estimate: Estimate) -> str:
    low, high = format_time(estimate.low), format_time(estimate.high)
    return f"{format_time(estimate.value)} ({low} to {high})"


def _rate(estimate: Estimate) -> str:
    """Bytes per second of seconds per byte; the interval turns round."""

    def rate(beta: float) -> str:
        return f"{1 / beta / 1e9:.3g}" if beta > 0 else "inf"

    return f"{rate(estimate.value)} GB/s ({rate(estimate.high)} to {rate(estimate.low)})"
