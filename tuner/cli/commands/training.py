"""Predict the training of a model on a machine: images or tokens per second, what limits them,
which settings and algorithms are best, and what another machine would give."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from tuner.base.atomic_io import require_writable_dir, require_writable_file, write_atomically
from tuner.base.errors import InputError
from tuner.base.progress import with_eta
from tuner.base.units import plural
from tuner.cli.options.argument_types import count_option, file_option
from tuner.cli.terminal.output import add_subcommand, print_result, warn
from tuner.cli.terminal.progress import Display
from tuner.cli.views import training_sweep_view, training_view
from tuner.machines.loader import machine_warnings
from tuner.training import scaling, search, sweep, sweep_spec, tuned_workload
from tuner.training.framework_arguments import framework_arguments
from tuner.training.memory_need import activation_warning, require_memory
from tuner.training.perfetto_trace import trace_text
from tuner.training.profile_export import write_profile
from tuner.training.published import uncompared_warning
from tuner.training.recorded_training import RecordedTraining, recording_warnings
from tuner.training.server_load import assumed_rate_warning
from tuner.training.workload import Training, Workload, read_training, read_workload
from tuner.whatif.prices import missing_prices_warning

EXAMPLES = """examples:
  tuner training run workload.yaml
  tuner training run workload.yaml --plots plots --trace trace.json
  tuner training tune workload.yaml --out tuned.yaml
  tuner training sweep sweep.yaml --csv sweep.csv --plots plots

A workload, here saved as workload.yaml:
  name: ResNet-50 on Summit
  model: resnet50            # or a mapping with the numbers of a transformer
  batch: 64                  # samples of a rank
  framework:
    name: horovod
    fusion_threshold: 64MiB
    cycle_time: 5ms
  topology: preset:summit    # or a file
  ranks: [1, 6, 48, 192]
  algorithms: default        # or best, a tuning table, a list of names

A sweep, here saved as sweep.yaml, has more keys:
  vary: {bandwidth: [100Gb/s, 200Gb/s]}  # axes of a study
  epoch: 1281167                         # samples
  cost: {gpu_hour: 2.5}                  # or prices of parts, as in a study

The trace opens in Perfetto (ui.perfetto.dev) and in Chrome."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    what = "predict the time of an iteration over numbers of ranks"
    run = add_subcommand(actions, "run", what, EXAMPLES, run_run)
    what = "find the settings of the framework and the algorithms with the least iteration time"
    tune = add_subcommand(actions, "tune", what, EXAMPLES, run_tune)
    what = "compare the time and the cost of an epoch on machines that vary along axes"
    vary = add_subcommand(actions, "sweep", what, EXAMPLES, run_sweep)
    for action in (run, tune, vary):
        file_option(action, "workload", "YAML or JSON file")
    drawn = "the scaling, the timeline and where the time goes"
    _add_outputs(run, "number of ranks", drawn)
    _add_outputs(vary, "configuration", "time and cost over each axis")
    file_option(
        run,
        "--trace",
        "write a Perfetto trace of the last iteration, for the largest number of ranks",
    )
    file_option(
        run,
        "--profile",
        "write the collective calls of an iteration for the largest number of ranks, for"
        " `tuner tune --profile` and `tuner probe --profile`",
    )
    run.add_argument(
        "--no-limits", action="store_true", help="leave out what limits the iterations"
    )
    count_option(tune, "--ranks", "number of ranks to optimise for (default: the largest)")
    file_option(tune, "--out", "file for the workload with the best settings")
    what = "processes on this computer (default: all cores)"
    count_option(vary, "--jobs", what, metavar="N")


def _add_outputs(action: argparse.ArgumentParser, row: str, drawn: str) -> None:
    file_option(action, "--csv", f"write a line for each {row} there")
    file_option(action, "--plots", f"draw {drawn} there, as SVG and PNG", metavar="DIR")


def run_run(options: argparse.Namespace) -> None:
    """Print the predictions for all numbers of ranks."""
    display = Display()
    with display.stage("reading the workload"):
        workload = read_training(options.workload)
    _check(options.workload, workload, options.csv, options.trace, options.profile)
    warn(uncompared_warning(workload.published, workload.ranks))
    if isinstance(workload, RecordedTraining):
        for sentence in recording_warnings(workload):
            warn(sentence)
    else:
        with _naming(options.workload):
            warn(activation_warning(workload, workload.ranks[-1]))
    if options.plots:
        _require_plots(options.plots)
    with display.stage(f"predicting {workload.name}") as report, _naming(options.workload):
        points = scaling.predict_scaling(
            workload, with_eta(report), explains_limits=not options.no_limits
        )
    if options.csv:
        write_atomically(options.csv, training_view.csv_text(points))
        display.note(f"{options.csv}: {plural(len(points), 'number')} of ranks")
    if options.trace:
        write_atomically(options.trace, trace_text(points[-1].found))
        display.note(f"{options.trace}: open it at ui.perfetto.dev")
    if options.profile:
        write_profile(options.profile, points[-1].found, workload.name, workload.memory)
        display.note(f"{options.profile}: the calls of an iteration, for `tuner tune --profile`")
    if options.plots:
        from tuner.report.training_plots import save_training_plots  # matplotlib takes its time

        with display.stage("drawing"):
            files = save_training_plots(workload, points, options.plots)
        display.note(f"{len(files)} plots are in {options.plots}")
    print_result(
        options.json,
        scaling.scaling_record(workload, points),
        lambda: training_view.print_scaling(workload, points),
    )


def run_tune(options: argparse.Namespace) -> None:
    """Print the best settings and algorithms, and write the workload with them."""
    display = Display()
    with display.stage("reading the workload"):
        workload = read_workload(options.workload)
    _check(options.workload, workload, options.out)
    ranks = options.ranks or workload.ranks[-1]
    with (
        display.stage(f"searching settings for {plural(ranks, 'rank')}") as report,
        _naming(options.workload),
    ):
        require_memory(workload, ranks)
        found = search.tune_training(workload, ranks, with_eta(report))
    if options.out:
        text = tuned_workload.tuned_workload_text(options.workload, found, options.out)
        write_atomically(options.out, text)
        display.note(f"{options.out}: the workload with the settings found")
    lines = framework_arguments(found.workload.framework, workload.model, workload.element_bytes)
    print_result(
        options.json,
        training_view.tuned_record(workload, found, lines),
        lambda: training_view.print_tuned(workload, found, lines),
    )


def run_sweep(options: argparse.Namespace) -> None:
    """Print time and cost of an epoch for all configurations."""
    display = Display()
    with display.stage("reading the sweep"):
        asked, record = sweep_spec.read_sweep(options.workload)
    warn(*machine_warnings(asked.workload.machine))
    warn(assumed_rate_warning(asked.workload))
    warn(missing_prices_warning(asked.prices))
    if options.csv:
        require_writable_file(options.csv, options.workload)
    if options.plots:
        _require_plots(options.plots)
    path, what = options.workload, plural(len(asked.grid), "configuration")
    with display.stage(f"predicting {what}") as report, _naming(path):
        found = sweep.run_sweep(record, path.parent, with_eta(report), options.jobs)
    if options.csv:
        write_atomically(options.csv, training_sweep_view.csv_text(found))
        display.note(f"{options.csv}: {plural(len(found.points), 'configuration')}")
    if options.plots:
        from tuner.report.sweep_plots import save_sweep_plots  # matplotlib takes its time

        with display.stage("drawing"):
            files = save_sweep_plots(found, options.plots)
        display.note(f"{len(files)} plots are in {options.plots}")
    print_result(
        options.json, sweep.sweep_record(found), lambda: training_sweep_view.print_sweep(found)
    )


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let errors of predictions start with the file's name."""
    try:
        yield
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None


def _check(path: Path, workload: Training, *targets: Path | None) -> None:
    """Warn of assumed costs; raise InputError for outputs that cannot be written."""
    warn(*machine_warnings(workload.machine))
    if isinstance(workload, Workload):
        warn(assumed_rate_warning(workload))
    for target in filter(None, targets):
        require_writable_file(target, path)


def _require_plots(folder: Path) -> None:
    require_writable_dir(folder)
    import_module("tuner.report.training_plots")  # before any work, if matplotlib is missing
