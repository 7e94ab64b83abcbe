"""Study machines that need not exist: the best algorithm over axes of a machine, where it changes,
and what it would cost to keep the choices of an existing table."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner.cli import studies
from tuner.cli.output import add_json, console, emit
from tuner.cli.progress import Display, timed
from tuner.errors import InputError
from tuner.files import write_atomically
from tuner.sim import study
from tuner.sim.study.carry import Carry

EXAMPLES = f"""examples:
  tuner whatif twice.yaml
  tuner whatif twice.yaml --csv twice.csv --plots twice
  tuner whatif twice.yaml --json --jobs 4
  tuner whatif twice.yaml --scheduler tcp://10.0.0.1:8786     (on a Dask cluster)

A study, here saved as twice.yaml:
  name: twice the network
  topology: preset:dgx-a100  # or a file: topology: flat64.yaml
  vary:                      # or what is in such a file
    nodes: [4, 16, 64]
    bandwidth: [25GB/s, 50GB/s]
  collectives: [bcast, allreduce]
  sizes: [1KiB, 64KiB, 1MiB]
  table: table.json          # optional: what its choices would cost

Axes: {", ".join(study.AXES)}.
`calibration: FILE` takes the costs that were measured from there, `algorithms: [ring, binomial]`
restricts the candidates. Interrupted, the same command goes on where it stopped: until the study
is done its answers are kept in twice.yaml.partial."""

PARTIAL = ".partial"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("study", type=Path, help="YAML or JSON file")
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="write every time of every candidate there"
    )
    parser.add_argument(
        "--plots", type=Path, metavar="DIR",
        help="draw there, as SVG and PNG, which algorithm is best where, and where the time goes",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--jobs", type=_jobs, metavar="N", help="processes on this computer (default: all cores)"
    )
    where.add_argument("--scheduler", metavar="ADDRESS", help="run on a Dask cluster instead")
    parser.add_argument("--fresh", action="store_true", help="start anew, keep no answers")
    add_json(parser)
    parser.set_defaults(run=run)


def _jobs(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1024:
        raise InputError(f"--jobs is a number of processes from 1 to 1024, not {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> None:
    """Run the study, write and print its result."""
    carry = _carry(options)
    answers = Path(f"{options.study}{PARTIAL}")
    if options.fresh:
        answers.unlink(missing_ok=True)
    display = Display(console(error=options.json))
    with display.stage("reading the study"):
        asked = study.read_study(options.study)
    with study.kept_in(answers) as keep:
        with display.stage(f"simulating {asked.number_of_points} points") as report:
            result = study.run(asked, timed(report), carry=carry, keep=keep)
        if options.csv:
            write_atomically(options.csv, studies.csv_text(result))
        if options.plots:
            _draw(asked, result, options.plots, display)
        emit(options, study.result_record(result), lambda: studies.show(result))


def _draw(asked: study.Study, result: study.StudyResult, folder: Path, display: Display) -> None:
    from tuner.report.study_plots import save_study  # matplotlib takes its time

    with display.stage("drawing") as report:
        files = save_study(asked, result, folder, timed(report))
    display.note(f"{len(files)} plots are in {folder}")


def _carry(options: argparse.Namespace) -> Carry:
    if options.scheduler:
        return study.on_cluster(options.scheduler)
    return study.locally(options.jobs)
