"""Study machines that need not exist: the best algorithm over axes of a machine, where it changes,
and what it would cost to keep the choices of an existing table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from tuner.base.atomic_io import require_writable_dir, require_writable_file, write_atomically
from tuner.base.errors import InputError
from tuner.base.progress import with_eta
from tuner.cli.options.argument_types import file_option
from tuner.cli.terminal.output import finish_command, print_result, warn
from tuner.cli.terminal.progress import Display
from tuner.cli.views import study_answers, study_view
from tuner.machines.loader import machine_warnings, missing_overhead_warning, shared_gpu_warning
from tuner.topology import CUDA
from tuner.topology.readers.safe_yaml import read_yaml
from tuner.whatif.axes import AXES, narrow_uplinks_warning
from tuner.whatif.checked_study import Study
from tuner.whatif.executors import Executor, make_parallel_executor
from tuner.whatif.prices import missing_prices_warning
from tuner.whatif.study_checkpoint import (
    Checkpoint,
    OpenCheckpoint,
    checkpoint_file,
    checkpoint_paths,
    delete_checkpoint,
)
from tuner.whatif.study_result import StudyResult, result_record
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import read_study
from tuner.whatif.study_tasks import StudyTask

EXAMPLES = f"""examples:
  tuner study twice.yaml
  tuner study twice.yaml --csv twice.csv --plots twice
  tuner study twice.yaml --json --jobs 4
  tuner study twice.yaml --dask tcp://10.0.0.1:8786  # on a Dask cluster

A study, here saved as twice.yaml:
  name: twice the network
  topology: preset:dgx-a100  # or a file: topology: flat64.yaml
  vary:                      # or what is in such a file
    nodes: [4, 16, 64]
    bandwidth: [25GB/s, 50GB/s]
  collectives: [bcast, allreduce]
  sizes: [1KiB, 64KiB, 1MiB]
  table: table.json          # optional: what its choices would cost; or default:openmpi
  cost: {{node: 30000, nic: 900}}  # optional: prices, for the best value

Axes: {", ".join(AXES)}.
`calibration: FILE` takes the costs that were measured from there, `algorithms: [ring, binomial]`
restricts the candidates, and `without: [multicast, switch_reduction, nvswitch_reduction]`
withdraws what a machine offers to its collectives. `limits: false` does not look for what limits
the best algorithms. `vary: {{nccl_version: [2.20.5, 2.30.7]}}` shows what an upgrade of NCCL
changes. Interrupted, the same command without --restart goes on where it stopped: until the study
is done its answers are kept in twice.yaml.partial and twice.yaml.partial.limits."""

PARTIAL_SUFFIX = ".partial"
NEWLINE = "\n"
FILE_KEYS = ("topology", "calibration", "table")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("study", type=Path, help="YAML or JSON file")
    file_option(parser, "--csv", "CSV file for every time of every candidate")
    file_option(
        parser,
        "--plots",
        "directory for plots (SVG and PNG) of the best algorithms and of where the time goes",
        metavar="DIR",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--jobs", type=_jobs, metavar="N", help="processes on this computer (default: all cores)"
    )
    where.add_argument("--dask", metavar="ADDRESS", help="run on a Dask cluster instead")
    parser.add_argument("--restart", action="store_true", help="start anew instead of going on")
    finish_command(parser, run, resumes=True)


def _jobs(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1024:
        raise InputError(f"--jobs is a number of processes from 1 to 1024, not {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> None:
    """Run the study, write and print its result."""
    carry = _executor(options.dask, options.jobs)
    answers = Path(f"{options.study}{PARTIAL_SUFFIX}")
    display = Display()
    with display.stage("reading the study"):
        asked = read_study(options.study)
    for machine in asked.all_machines:
        warn(*machine_warnings(machine, has_latency="latency" in asked.axes))
    if CUDA in asked.axes["memory"] and not asked.machines:
        warn(shared_gpu_warning(asked.topology, int(asked.axes["ppn"][-1])))
    warn(narrow_uplinks_warning(asked.topology, asked.axes))
    warn(missing_prices_warning(asked.prices))
    _require_targets(options.csv, options.plots, options.study, answers)
    if options.restart:
        delete_checkpoint(answers)
    with checkpoint_file(answers) as keep:
        with display.stage(f"simulating {asked.number_of_points} points") as report:
            found = run_study(
                asked,
                with_eta(report),
                executor=carry,
                open_checkpoint=_reporting_resume(keep, display),
            )
        try:
            _write(options.csv, options.plots, found, display, asked)
        except InputError as reason:
            raise InputError(
                f"{reason}; the answers stay in {answers}, so that the same command without"
                " --restart, or one with another target, goes on with them"
            ) from None
        if asked.calibration is None:
            warn(*map(missing_overhead_warning, asked.all_machines))
        print_result(options.json, result_record(found), lambda: _print(found))


def _print(found: StudyResult) -> None:
    same = study_view.print_study(found)
    study_answers.print_answers(found, same)


def _require_targets(csv: Path | None, plots: Path | None, study: Path, answers: Path) -> None:
    """Raise InputError before any work for outputs that cannot be written or are inputs."""
    if csv:
        require_writable_file(csv, study, *checkpoint_paths(answers), *_named_files(study))
    if plots:
        require_writable_dir(plots)
        import_module("tuner.report.study_plots")  # before any work, if matplotlib is missing


def _named_files(path: Path) -> list[Path]:
    written = read_yaml(path)
    topology = written.get("topology")
    names = [written.get(key) for key in FILE_KEYS]
    names += topology if isinstance(topology, list) else []
    return [path.parent / text for text in names if isinstance(text, str)]


def _reporting_resume(keep: OpenCheckpoint, display: Display) -> OpenCheckpoint:
    """Wrap a function that opens a checkpoint, to report how much is done already."""

    def kept(asked: Study, tasks: Sequence[StudyTask]) -> Checkpoint:
        answers = keep(asked, tasks)
        if answers.times:
            done = sum(tasks[number].core_seconds for number in answers.times)
            share = done / sum(task.core_seconds for task in tasks)
            display.note(
                f"going on from {share:.0%}: {len(answers.times)} of {len(tasks)}"
                " schedules are answered already"
            )
        return answers

    return kept


def _write(
    csv: Path | None, plots: Path | None, found: StudyResult, display: Display, asked: Study
) -> None:
    if csv:
        text = study_view.csv_text(found)
        write_atomically(csv, text)
        display.note(f"{csv}: {text.count(NEWLINE) - 1} times of {len(found.points)} points")
    if plots:
        from tuner.report.study_plots import save_study_plots  # matplotlib takes its time

        with display.stage("drawing") as report:
            drawn = save_study_plots(asked, found, plots, with_eta(report))
        for text in (f"{len(drawn.files)} plots are in {plots}", *drawn.notes):
            display.note(text)


def _executor(dask: str | None, jobs: int | None) -> Executor:
    if dask:
        from tuner.whatif.dask_executor import make_dask_executor  # Dask, which is an extra

        return make_dask_executor(dask)
    return make_parallel_executor(jobs)
