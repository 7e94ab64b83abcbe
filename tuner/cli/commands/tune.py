"""Make a tuning table: simulate every candidate, train the selector, and keep the library's default
wherever nothing is significantly faster.

With `--hosts`, or in a job of Slurm, LSF or PBS without `--calibration`, the hosts are measured for
it: messages first, then, batch by batch, the calls and algorithms that tell most about the best
choice, until the budget is spent or the mean regret is below its target with 95 % certainty. Every
budget gives a table. Else the table is made from measurements and their calibration."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner import mpi_libraries
from tuner.base.atomic_io import require_writable_file
from tuner.base.errors import InputError, UsageError, shortened_repr
from tuner.base.processes import available_cores
from tuner.base.progress import progress_from_counts
from tuner.base.units import parse_duration, plural
from tuner.calibrate import calibrate
from tuner.cli.options import argument_types, host_options
from tuner.cli.options.argument_types import count_option, file_option, measured_sizes_option
from tuner.cli.options.host_options import add_library_options, add_thread_level_option
from tuner.cli.terminal.output import finish_command, print_result, print_text, warn
from tuner.cli.terminal.progress import Display
from tuner.cli.views.table_view import format_rule_count, print_rules
from tuner.core.calibration import read_calibration, write_calibration
from tuner.core.measurement import Measurements, provenance_texts
from tuner.core.table import LIBRARY, TuningTable, table_record, write_table
from tuner.launch import Launcher
from tuner.probe.monitor import forward_progress
from tuner.probe.probe_file import SKIPPED_NOTE_PREFIX
from tuner.probe.probe_spec import ProbeShape, ProbeSpec
from tuner.report.cautions import table_cautions
from tuner.select.build_table import make_table
from tuner.select.constraints import Constraints, constraints_from_options
from tuner.select.dataset import BATCHES_KEY, Observation, measured_pairs
from tuner.select.experiment_design import RegretBound
from tuner.select.significance import compare_all_with_default, needs_more_launches
from tuner.topology import Topology
from tuner.workflows.active_tuning import Callbacks, StoppingRule, TuningResult, run_active_tuning
from tuner.workflows.time_limit import TimeLimit, read_scheduling_times, slowdown_between

DEFAULT_BUDGET_S = 600.0  # seconds
QUICK_BUDGET_S = 60.0  # seconds
QUICK_SAVED_SHARE = 0.5  # of the default's mean regret
DEFAULT_TARGET_REGRET = 0.02  # mean regret
MAX_SHOWN_NAMES = 6  # names of unknown algorithms
EXAMPLES = """examples:
  tuner tune --measurements measurements.ndjson --calibration calibration.json --out table.json
  tuner tune --measurements measurements.ndjson --calibration calibration.json \\
      --topology racks.yaml --shapes 3x1,5x1,6x1,7x1 --out table.json
  tuner tune --hosts node1,node2,node3,node4 --topology racks.yaml --budget 10min \\
      --target-regret 2% --measurements cluster.ndjson --out table.json
  tuner tune --quick --hosts node1,node2,node3,node4 --measurements cluster.ndjson --out table.json
  tuner tune --measurements m.ndjson --calibration c.json --reproducible --max-rules 20 \\
      --exclude-algorithms allreduce:ring,bcast:chain --out table.json

Then `tuner table show table.json`, `tuner table export table.json --format openmpi`."""

NEARLY_SPENT = 0.1  # of the budget: what is left when no further batch fits
CALL_OPTIONS = ("sizes", "profile", "placements", "collectives", "tuner_algorithms", "repetitions")
START_OPTIONS = ("name", "launcher", "ppn", "thread_level")
MEASURING_OPTIONS = ("library", "budget", "target_regret", "quick", *CALL_OPTIONS, *START_OPTIONS)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    file_option(
        parser, "--measurements", "NDJSON file to read, or to write with --hosts", required=True
    )
    file_option(parser, "--calibration", "JSON file to read, or to write with --hosts")
    file_option(parser, "--out", "JSON file to write", required=True)
    add_library_options(parser)
    add_thread_level_option(parser)
    parser.add_argument(
        "--budget",
        type=parse_duration,
        help="maximum wall-clock time of the whole command with --hosts, such as 10min (default,"
        " with --quick 1min)",
    )
    parser.add_argument(
        "--target-regret",
        type=argument_types.fraction,
        default=DEFAULT_TARGET_REGRET,
        metavar="PERCENT",
        help="stop when the mean regret is below this, such as 2%% (default)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="stop as soon as half of the default's mean regret is expected to be gone",
    )
    measured_sizes_option(parser)
    _add_constraint_options(parser.add_argument_group("what the table may say"))
    host_options.add_measurement_options(parser.add_argument_group("several hosts"))
    finish_command(
        parser,
        run,
        measure=("messages", "shared", "sweep"),
        ci_width=0.03,
        usual={name: parser.get_default(name) for name in MEASURING_OPTIONS},
    )


def _add_constraint_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--exclude-algorithms",
        dest="excluded_algorithms",
        type=argument_types.name_list,
        default=(),
        metavar="NAME,...",
        help="algorithms that no rule may use: ring, or for one collective allreduce:ring",
    )
    group.add_argument(
        "--reproducible",
        action="store_true",
        help="use only reductions that combine every element in the same order, so that results do"
        " not depend on where in the buffer it is",
    )
    count_option(
        group,
        "--max-rules",
        "maximum number of rules, default rules included; the most valuable are kept",
        metavar="K",
    )
    group.add_argument(
        "--commutative-only",
        action="store_true",
        help="make no rules for operators that do not commute (default: rules that are safe for"
        " these, and others for operators that do)",
    )


def run(options: argparse.Namespace) -> None:
    """Make, write and print the table."""
    calibrated = options.calibration is not None
    there = host_options.given_hosts(options) if calibrated else host_options.resolve_hosts(options)
    options.resumes = not there.is_local
    if there.is_local:
        _require_no_measuring(
            [name for name, usual in options.usual.items() if getattr(options, name) != usual]
        )
    constraints = constraints_from_options(vars(options))
    read = (options.measurements, options.calibration, options.topology)
    require_writable_file(options.out, *read)
    if there.is_local:
        shapes = options.shapes
        table, cautions = _make_table(*read, shapes, constraints)
    else:
        if calibrated:
            require_writable_file(options.calibration, options.measurements, options.topology)
        spec = host_options.probe_spec_of(options, there)
        launcher, shapes = host_options.find_launcher(options, spec.library), spec.shapes
        stop = stopping_rule(options.budget, options.target_regret, options.quick)
        table, cautions = _measure_and_tune(
            *read[:2], spec, launcher, stop, constraints, options.begun
        )
    write_table(table, options.out)
    if not options.json:
        print_rules(table)
    for caution in (*cautions, *_without_rules(table, shapes), *table_cautions(table)):
        warn(caution)
    print_result(
        options.json,
        table_record(table),
        lambda: _print_written(table, options.out, options.max_rules),
    )


def stopping_rule(budget: float | None, target_regret: float, quick: bool) -> StoppingRule:
    """Return the rule under which measuring on hosts stops.

    budget  seconds; None for the usual budget
    """
    if quick:
        return StoppingRule(budget or QUICK_BUDGET_S, target_regret, QUICK_SAVED_SHARE)
    return StoppingRule(budget or DEFAULT_BUDGET_S, target_regret)


def _without_rules(table: TuningTable, wanted: Sequence[ProbeShape]) -> Iterator[str]:
    for shape in wanted:
        if not any((key.nodes, key.ppn) == (shape.nodes, shape.ppn) for key in table.keys):
            yield f"{shape} gets no rules: no measurements cover this shape"


def _print_written(table: TuningTable, out: Path, max_rules: int | None) -> None:
    if max_rules is not None and "compaction" in table.provenance:
        added = table.provenance["compaction"]["added_regret"]
        print_text(
            f"{format_rule_count(table)} instead of one per size add {added:.2%} to the mean regret"
        )
    departing = sum(not rule.choice.is_default for rule in table.rules)
    print_text(
        f"{departing} of {format_rule_count(table)} depart from the library's default"
        if departing
        else "nothing gained: the default is kept everywhere"
    )
    if table.rules and not any(key.is_in_files for key in table.keys):
        print_text(
            f"{out}: written. Next: `tuner run --table {out} -- COMMAND`, as none of its rules is"
            " written to native files"
        )
        return
    trial = (
        ", on the hosts that it is for: `tuner table accept`, which keeps the rules that make a C"
        " program faster, and `tuner table validate`; then"
        if table.library.partition(" ")[0] in mpi_libraries.LIBRARY_MODULES
        else ":"
    )
    print_text(f"{out}: written. Next{trial} `tuner table export` for the library's own file")


def _require_no_measuring(given: Sequence[str]) -> None:
    """Raise UsageError for options that say what to measure, where nothing is measured."""
    asked = [f"--{name.replace('_', '-')}" for name in given]
    if asked:
        says, them = "says" if len(asked) == 1 else "say", " and ".join(asked)
        raise UsageError(
            f"{them} {says} what to measure on --hosts; without hosts the table is of all that the"
            f" measurements hold: name hosts, or leave {them} out"
        )


def _make_table(
    measured: Path,
    calibration: Path | None,
    topology: Path | None,
    shapes: Sequence[ProbeShape],
    constraints: Constraints,
) -> tuple[TuningTable, list[str]]:
    """Make a table of existing measurements; return it and cautions for its reader."""
    measurements, where = host_options.read_with_topology(measured, topology)
    if calibration is None:
        raise UsageError("say what the measurements were calibrated to: --calibration FILE")
    fitted = read_calibration(calibration)
    cautions = _unknown_algorithm_cautions(measurements)
    with Display().stage("simulating and selecting") as report:
        rows, table = make_table(
            measurements,
            fitted,
            progress_from_counts(report),
            where,
            [(shape.nodes, shape.ppn) for shape in shapes],
            constraints=constraints,
            cores=available_cores(),
        )
    if BATCHES_KEY not in measurements.provenance:
        cautions += launch_count_cautions(rows)
    return table, cautions


def launch_count_cautions(rows: Sequence[Observation]) -> list[str]:
    """Return a sentence on gains that would be significant with more launches."""
    contests = compare_all_with_default(rows)
    short = [one.point for one in contests if needs_more_launches(one)]
    if not short:
        return []
    launches = max(len(row.samples) for row in rows if row.point in short)
    return [
        f"with {launches} launches only gains that hardly vary between them are beyond doubt: at"
        f" {len(short)} of {plural(len(contests), 'call')} an algorithm was faster in every launch,"
        " which is not enough for a rule; probe with more (--launches)"
    ]


def _unknown_algorithm_cautions(measurements: Measurements) -> list[str]:
    """Return a sentence on algorithms that no rule can name, such as those of other programs."""
    known = mpi_libraries.library_module(measurements.library).ALGORITHMS
    named = {
        (point.collective, choice.algorithm)
        for point, choice in measured_pairs(measurements)
        if choice.runner == LIBRARY and not choice.is_default
    }
    unknown = [
        f"{of} {shortened_repr(name)}"
        for of, name in sorted(named)
        if name not in known.get(of, ())
    ]
    if not unknown:
        return []
    shown = ", ".join(unknown[:MAX_SHOWN_NAMES]) + (
        " ..." if len(unknown) > MAX_SHOWN_NAMES else ""
    )
    return [f"{measurements.library} cannot express these algorithms; they get no rules: {shown}"]


def _measure_and_tune(
    out: Path,
    calibration: Path | None,
    spec: ProbeSpec,
    launcher: Launcher,
    stop: StoppingRule,
    constraints: Constraints,
    begun: float,
) -> tuple[TuningTable, list[str]]:
    """Measure on hosts and make a table; return it and cautions for its reader."""
    display = Display()

    def tell(bound: RegretBound, spent: float) -> None:
        display.note(f"after {spent:.0f} s a table would have {bound}")

    limit = TimeLimit(stop.budget, begun, slowdown_between(read_scheduling_times()))
    with display.stage(f"measuring {spec.library} on {plural(spec.nodes, 'host')}") as report:
        found = run_active_tuning(
            out,
            spec,
            launcher,
            stop,
            constraints=constraints,
            limit=limit,
            callbacks=Callbacks(forward_progress(report), on_batch=tell, on_note=display.note),
        )
    if calibration is not None:
        _write_calibration(found, spec.topology, calibration)
    bound, left_out = found.regret_bound, skipped_notes(found.measurements)
    if bound is None or bound.upper <= stop.target_regret:
        return found.table, left_out
    if stop.is_met(bound):
        display.note(
            f"{stop.saved_share:.0%} of the default's mean regret is expected to be gone; the same"
            " command without --quick goes on"
        )
        return found.table, left_out
    is_spent = limit.remaining < NEARLY_SPENT * stop.budget
    rest = "the same command goes on" if is_spent else "nothing left to measure would change that"
    caution = (
        f"the target was not reached: the table has {bound}, and not below"
        f" {stop.target_regret:.1%}; {rest}"
    )
    return found.table, [*left_out, caution]


def skipped_notes(measurements: Measurements) -> list[str]:
    """Return the notes of measurements on calls for which there was no time."""
    notes = provenance_texts(measurements.provenance, "notes")
    return [note for note in notes if note.startswith(SKIPPED_NOTE_PREFIX)]


def _write_calibration(found: TuningResult, topology: Topology | None, path: Path) -> None:
    """Write the calibration; fit it now if the table was made without one."""
    try:
        write_calibration(found.calibration or calibrate(found.measurements, topology), path)
    except InputError as reason:
        warn(f"{path}: not written: {reason}")
