"""Fit the calibration to measurements: per path class piecewise alpha and beta, and gamma, each
with its 95 % interval; what NCCL takes on the GPUs of a machine, to a run of nccl-tests; or
compare two calibrations of one cluster."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from tuner.base.atomic_io import require_writable_dir, require_writable_file, write_atomically
from tuner.base.errors import UsageError
from tuner.base.progress import progress_from_counts
from tuner.base.units import format_time, plural
from tuner.calibrate import CalibrationFit, fit_calibration
from tuner.calibrate.drift import ParameterDrift, compare_calibrations
from tuner.calibrate.nccl_costs import NcclCalibration, calibrate_nccl, calibrated_record, nccl_runs
from tuner.calibrate.refine import Refinement, refine
from tuner.cli.options.argument_types import file_option
from tuner.cli.options.host_options import read_with_topology
from tuner.cli.terminal.output import (
    finish_command,
    print_cautions,
    print_command,
    print_result,
    print_table,
    print_text,
)
from tuner.cli.terminal.progress import Display
from tuner.cli.views.calibration_view import (
    format_estimate,
    format_ratio,
    parameter_label,
    print_calibration,
)
from tuner.core.calibration import (
    Calibration,
    calibration_record,
    read_calibration,
    write_calibration,
)
from tuner.core.measurement import Measurements
from tuner.machines.loader import load_machine
from tuner.mpi_libraries import LIBRARY_MODULES
from tuner.topology import Topology

EXAMPLES = """examples:
  tuner calibrate measurements.ndjson --out calibration.json
  tuner calibrate measurements.ndjson --topology racks.yaml --out calibration.json --plots fit
  tuner calibrate measurements.ndjson --topology racks.yaml --refine --out calibration.json
  tuner calibrate measurements.ndjson --json
  tuner calibrate nccl.txt --topology preset:dgx-h100 --out mine.yaml  # output of nccl-tests
  tuner calibrate compare january.json february.json  # drift"""

COMPARE = "compare"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="NDJSON written by `tuner probe`; output of nccl-tests, best of all_reduce_perf on"
        f" two GPUs and on all of a node; or the word {COMPARE} and two calibrations",
    )
    file_option(parser, "--out", "JSON file to write; of nccl-tests a machine in YAML")
    file_option(
        parser,
        "--topology",
        "topology of the probed cluster, in any format that `tuner topology` reads; gives the"
        " latency of its links, and every distance costs of its own",
    )
    file_option(
        parser,
        "--plots",
        "draw measured times, lines, breaks and residuals of every path (SVG and PNG)",
        metavar="DIR",
    )
    parser.add_argument(
        "--refine",
        action="store_true",
        help="fit what ping-pongs do not show to the measured collectives; used if calls that are"
        " held out are predicted better and ranked no worse",
    )
    finish_command(parser, run)


def run(options: argparse.Namespace) -> None:
    """Fit, write, plot and print a calibration, or compare two."""
    if options.files[0] == COMPARE:
        if options.out or options.topology or options.plots or options.refine:
            raise UsageError(f"`tuner calibrate {COMPARE}` only prints: use --json and redirect it")
        _compare(options.files[1:], options.json)
        return
    if len(options.files) > 1:
        raise UsageError(
            f"calibrate takes one file of measurements, not {len(options.files)}: put several"
            f" together with `tuner probe merge`; `calibrate {COMPARE} A B` compares calibrations"
        )
    measured = Path(options.files[0])
    if options.out:
        require_writable_file(options.out, measured)
    if (runs := nccl_runs(measured)) is not None:
        if options.refine or options.plots or not options.topology:
            raise UsageError(
                "output of nccl-tests is fitted with --topology, the machine that it is of, and"
                " without --refine and --plots"
            )
        fitted = _calibrate_nccl(runs, measured.name, options.topology, options.out)
        print_result(options.json, asdict(fitted), lambda: _print_nccl(fitted, options.out))
        return
    if options.plots:
        require_writable_dir(options.plots)
        import_module("tuner.report.fit_plots")  # before any work, if matplotlib is missing
    measurements, topology = read_with_topology(measured, options.topology)
    found = fit_calibration(measurements, topology)
    refined = _refine(found, measurements, topology) if options.refine else None
    calibration = refined.calibration if refined else found.calibration
    if options.out:
        write_calibration(calibration, options.out)
    if options.plots:
        _draw(found, calibration if refined and refined.accepted else None, options.plots)

    def text() -> None:
        print_calibration(calibration)
        if refined:
            _print_refined(refined)
        if options.out:
            print_text(f"{options.out}: written")
        if options.out and _can_tune(measurements):
            print_command("next:", _tune_command(measured, options.out, options.topology))

    print_result(options.json, calibration_record(calibration), text)


def _compare(files: Sequence[str], as_json: bool) -> None:
    """Print how two calibrations differ."""
    if len(files) != 2:
        raise UsageError(f"`tuner calibrate {COMPARE}` takes two calibrations: the earlier first")
    changes = compare_calibrations(*(read_calibration(Path(name)) for name in files))
    print_result(as_json, [_record(change) for change in changes], lambda: _print(changes))


def _calibrate_nccl(
    runs: Measurements, name: str, topology: Path, out: Path | None
) -> NcclCalibration:
    """Fit what NCCL takes on the GPUs of a machine, write the machine to `out`, and return it.

    name    of the file with the runs, as the source of the costs
    """
    found = calibrate_nccl(runs, load_machine(topology).topology)
    if out:
        record = calibrated_record(topology, found.after, name, out)
        write_atomically(out, yaml.safe_dump(record, sort_keys=False))
    return found


def _print_nccl(found: NcclCalibration, out: Path | None) -> None:
    columns = ("launch", "hop", "simple", "full channel", "copies", "median error")
    costs = (("before", found.before, found.error_before), ("now", found.after, found.error_after))
    rows = [
        (
            name,
            *map(format_time, (one.launch, one.hop, one.simple, one.full_channel or 0.0)),
            f"{one.copy_rate / 1e9:.4g} GB/s",
            f"{error:.1%}",
        )
        for name, one, error in costs
    ]
    title = f"what NCCL takes on these GPUs, fitted to {plural(found.calls, 'call')}"
    print_table(title, ("", *columns), rows, right=columns)
    cautions = []
    if found.left_out:
        cautions.append(
            f"Results of {', '.join(found.left_out)} are left out: no time is predicted of them, or"
            " their algorithm was forced."
        )
    if found.is_ambiguous:
        cautions.append(
            "All calls have equally many hops, so that launch and hop are right together only: add"
            " a run on fewer GPUs, such as -g 2."
        )
    print_cautions(cautions)
    if out:
        print_text(f"{out}: written")
        words = ["tuner", "nccl", "estimate", "--topology", str(out), "--sizes", "8,1MiB,1GiB"]
        print_command("next:", shlex.join(words))


def _refine(
    found: CalibrationFit, measurements: Measurements, topology: Topology | None
) -> Refinement:
    with Display().stage("fitting to the measured collectives") as report:
        return refine(
            found.calibration, measurements, topology, on_progress=progress_from_counts(report)
        )


def _can_tune(measurements: Measurements) -> bool:
    """Return whether a table can be made of the measurements."""
    measured = any(one.kind == "collective" for one in measurements.series)
    return measured and measurements.library.partition(" ")[0] in LIBRARY_MODULES


def _tune_command(measured: Path, calibration: Path, topology: Path | None) -> str:
    """Return the command that makes a table with this calibration."""
    known = ("--topology", str(topology)) if topology else ()
    files = ("--measurements", str(measured), "--calibration", str(calibration), *known)
    return shlex.join(["tuner", "tune", *files, "--out", "table.json"])


def _print_refined(refined: Refinement) -> None:
    print_table(
        "collectives that were kept out",
        ("calibration", "calls", "median error", "mean", "p95", "regret", "tau", "within 5 %"),
        [
            (
                name,
                str(own.errors.cases),
                f"{own.errors.median:.1%}",
                f"{own.errors.mean:.1%}",
                f"{own.errors.p95:.1%}",
                f"{own.ranking.regret:.2%}",
                f"{own.ranking.tau:.3f}",
                f"{own.ranking.close:.1%}",
            )
            for name, own in (("ping-pongs", refined.before), ("refined", refined.after))
        ],
        right=("calls", "median error", "mean", "p95", "regret", "tau", "within 5 %"),
        droppable=("p95", "mean", "within 5 %"),
    )
    if refined.accepted:
        print_text(f"refined: {refined.reason}")
    else:
        print_cautions([f"not refined: {refined.reason}"])


def _draw(found: CalibrationFit, refined: Calibration | None, folder: Path) -> None:
    from tuner.report.fit_plots import save_fit_plots  # matplotlib takes its time

    for path in save_fit_plots(found, folder, refined):
        print_text(f"{path}: written", error=True)


def _record(change: ParameterDrift) -> dict[str, Any]:
    return {**asdict(change), "ratio": change.ratio, "significant": change.is_significant}


def _print(changes: list[ParameterDrift]) -> None:
    print_table(
        "drift",
        ("parameter", "before", "after", "ratio", ""),
        [
            (
                parameter_label(change.parameter),
                format_estimate(change.parameter, change.before),
                format_estimate(change.parameter, change.after),
                format_ratio(change.parameter, change.ratio),
                "significant" if change.is_significant else "",
            )
            for change in changes
        ],
        right=("ratio",),
        wrappable=("parameter", "before", "after"),
    )
    number = sum(change.is_significant for change in changes)
    print_text(f"{number} of {len(changes)} parameters changed significantly")
