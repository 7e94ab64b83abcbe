"""Measure an MPI library of this computer: messages, reductions, and every Bcast and Allreduce
algorithm it has, at several sizes and communicator sizes, all in each of a few launches."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from tuner.cli import parsing
from tuner.cli.environments import add_library, interpreter
from tuner.cli.output import add_json, console, emit
from tuner.cli.progress import Display, Report
from tuner.measurement import Measurements
from tuner.probe.run import LAUNCHES, Progress, probe
from tuner.units import parse_time

EXAMPLES = """examples:
  tuner probe --out measurements.ndjson
  tuner probe --out measurements.ndjson --ranks 8 --budget 300s --sizes 1KiB,32KiB,1MiB
  tuner probe --library mpich --python .venv-mpich/bin/python --out mpich.ndjson

Every finished point is written at once. Interrupted, the same command resumes."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="NDJSON to write")
    add_library(parser)
    parser.add_argument("--ranks", type=int, help="default: the cores, at least 4 (mpich: 2)")
    parser.add_argument(
        "--budget", type=parse_time, help="measuring time, such as 90s (default: 90s, mpich: 30s)"
    )
    parser.add_argument(
        "--sizes", type=parsing.sizes, help="of the collectives' buffers (default: 4B to 4MiB)"
    )
    parser.add_argument(
        "--launches", type=int, default=LAUNCHES,
        help=f"how often the ranks are started; each start measures all (default: {LAUNCHES})",
    )  # fmt: skip
    parser.add_argument(
        "--target", type=float, default=0.03,
        help="relative half-width of a median's 95 %% interval that suffices (default: 0.03)",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Probe, showing progress on standard error."""
    display = Display(console(error=True))
    with display.stage(f"probing {options.library}") as report:
        measurements = probe(
            options.out, library=options.library,
            python=interpreter(options.library, options.python), ranks=options.ranks,
            budget=options.budget, sizes=options.sizes, target=options.target,
            launches=options.launches,
            on_progress=forwarded(report),
        )  # fmt: skip
    record = summary(measurements) | {"out": str(options.out)}
    emit(options, record, lambda: _print(record))


def forwarded(report: Report) -> Callable[[Progress], None]:
    """Hands a probe's progress to a display."""

    def tell(progress: Progress) -> None:
        report(progress.done / max(progress.total, 1), progress.remaining, progress.text)

    return tell


def summary(measurements: Measurements) -> dict[str, object]:
    """What a probe yielded, in numbers."""
    kinds = [series.kind for series in measurements.series]
    return {
        "cluster": measurements.cluster.name,
        "library": measurements.library,
        "series": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "samples": sum(len(series.samples) for series in measurements.series),
        "excluded": measurements.provenance["excluded"],
    }


def _print(record: dict[str, object]) -> None:
    out = console()
    out.print(f"{record['library']} on {record['cluster']}: {record['samples']} samples")
    for line in record["excluded"] if isinstance(record["excluded"], list) else ():
        out.print(f"left out: {line}", markup=False)
    out.print(f"next: tuner calibrate {record['out']} --out calibration.json", markup=False)
