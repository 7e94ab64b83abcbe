"""Make a tuning table: simulate every candidate, train the selector, and keep the library's default
wherever nothing is significantly faster.

With `--hosts`, or in a job of Slurm, LSF or PBS without `--calibration`, the hosts are measured for
it: messages first, then, round by round, the calls and algorithms that tell most about the best
choice, until the budget is spent or the mean regret is below its target with 95 % certainty. Every
budget gives a table. Else the table is made from measurements and their calibration."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner import mpi_libraries
from tuner.base.atomic_io import require_target
from tuner.base.errors import InputError, quoted
from tuner.base.progress import counted
from tuner.base.units import parse_duration, plural
from tuner.calibrate import calibrate
from tuner.cli import argument_types, host_options
from tuner.cli.interpreters import add_library, add_thread_level, settle_library
from tuner.cli.output import add_json, console, emit, print_text, warn
from tuner.cli.progress import Display
from tuner.cli.table_view import counted_rules, print_rules
from tuner.core.calibration import read_calibration, write_calibration
from tuner.core.measurement import Measurements
from tuner.core.table import LIBRARY, TuningTable, table_record, write_table
from tuner.launch import Hosts
from tuner.launch.interpreters import interpreter
from tuner.probe.monitor import forwarded
from tuner.probe.probe_spec import Shape
from tuner.select.build_table import DESIGNED, make_table
from tuner.select.constraints import Constraints, constraints_from
from tuner.select.dataset import Row, measured_pairs
from tuner.select.experiment_design import Bound
from tuner.select.significance import hold_all, wants_launches
from tuner.sim.process_pool import usable
from tuner.topology import Topology
from tuner.workflows import acceptance
from tuner.workflows.active_tuning import Callbacks, Goal, Guided, guided
from tuner.workflows.time_limit import TimeLimit, scheduled, slowdown

BUDGET = 600.0  # seconds
TARGET = 0.02  # mean regret
SHOWN = 6  # names
EXAMPLES = """examples:
  tuner tune --measurements measurements.ndjson --calibration calibration.json --out table.json
  tuner tune --measurements measurements.ndjson --calibration calibration.json \\
      --topology racks.yaml --shapes 3x1,5x1,6x1,7x1 --out table.json
  tuner tune --hosts node1,node2,node3,node4 --topology racks.yaml --budget 10min \\
      --target-regret 2% --measurements cluster.ndjson --out table.json
  tuner tune --measurements m.ndjson --calibration c.json --reproducible --rules 20 \\
      --forbid allreduce:ring,bcast:chain --out table.json

Then `tuner table show table.json`, `tuner table export table.json --to openmpi`."""

MEASURING = (
    "library",
    "budget",
    "target_regret",
    "sizes",
    "placements",
    "collectives",
    "schedules",
    "repetitions",
    "name",
    "launch",
    "ppn",
    "thread_level",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--measurements",
        type=Path,
        required=True,
        metavar="FILE",
        help="NDJSON to read; with --hosts, to write",
    )
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="JSON to read; with --hosts, to write"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON to write")
    add_library(parser)
    add_thread_level(parser)
    parser.add_argument(
        "--budget",
        type=parse_duration,
        default=BUDGET,
        help="maximum wall-clock time of the whole command with --hosts, such as 10min (default)",
    )
    parser.add_argument(
        "--target-regret",
        type=argument_types.fraction,
        default=TARGET,
        metavar="PERCENT",
        help="mean of what the chosen takes longer than the best, such as 2%% (default)",
    )
    parser.add_argument(
        "--sizes",
        type=argument_types.sizes,
        help="of the collectives' buffers (default: 4B to 4MiB)",
    )
    _wishes(parser.add_argument_group("what the table may say"))
    host_options.arguments(parser.add_argument_group("several hosts"))
    add_json(parser)
    parser.set_defaults(
        run=run,
        parts=("messages", "shared", "sweep"),
        target=0.03,
        usual={name: parser.get_default(name) for name in MEASURING},
    )


def _wishes(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--forbid",
        type=argument_types.names,
        default=(),
        metavar="NAME,...",
        help="algorithms that no rule may use: ring, or of one collective allreduce:ring",
    )
    group.add_argument(
        "--reproducible",
        action="store_true",
        help="reductions only by algorithms that combine every element in the same order, so that"
        " its bits do not depend on where in the buffer it is",
    )
    group.add_argument(
        "--rules",
        type=argument_types.positive,
        metavar="K",
        help="how many the table may have, those for the default among them: the best ones",
    )
    group.add_argument(
        "--commutative-only",
        action="store_true",
        help="no rules for operators that do not commute (default: rules that are safe for these,"
        " and others for operators that do)",
    )


def constraints_of(options: argparse.Namespace) -> Constraints:
    """What the options say; raises InputError for what cannot be met by any table."""
    return constraints_from(vars(options))


def run(options: argparse.Namespace) -> None:
    """Make, write and print the table."""
    calibrated = options.calibration is not None
    there = host_options.given(options) if calibrated else host_options.hosts_of(options)
    options.resumes = not there.local
    if there.local:
        _require_no_measuring(options)
    table, cautions = _made(options) if there.local else _measured(options, there)
    write_table(table, options.out)
    if not options.json:
        print_rules(table)
    for caution in (*cautions, *_without_rules(table, options.shapes)):
        warn(caution)
    emit(options, table_record(table), lambda: _print_written(table, options))


def _without_rules(table: TuningTable, wanted: Sequence[Shape]) -> Iterator[str]:
    for shape in wanted:
        if not any((key.nodes, key.ppn) == (shape.nodes, shape.ppn) for key in table.keys):
            yield f"there are no rules for {shape}: nothing measured tells about such ranks"


def _print_written(table: TuningTable, options: argparse.Namespace) -> None:
    if options.rules is not None and "compaction" in table.provenance:
        added = table.provenance["compaction"]["added_regret"]
        print_text(
            f"{counted_rules(table)} instead of one per size add {added:.2%} to the mean regret"
        )
    departing = sum(not rule.choice.is_default for rule in table.rules)
    print_text(
        f"{departing} of {counted_rules(table)} depart from the library's default"
        if departing
        else "nothing gained: the default is kept everywhere"
    )
    trial = (
        ", on the hosts that it is for: `tuner table accept`, which keeps the rules that make a C"
        " program faster, and `tuner table prove`; then"
        if table.library.partition(" ")[0] in acceptance.LIBRARIES
        else ":"
    )
    print_text(
        f"{options.out}: written. Next{trial} `tuner table export` for the library's own file"
    )


def _require_no_measuring(options: argparse.Namespace) -> None:
    asked = [
        f"--{name.replace('_', '-')}"
        for name, usual in options.usual.items()
        if getattr(options, name) != usual
    ]
    if asked:
        says, them = "says" if len(asked) == 1 else "say", " and ".join(asked)
        raise InputError(
            f"{them} {says} what to measure on --hosts; without hosts the table is of all that the"
            f" measurements hold: name hosts, or leave {them} out"
        )


def _made(options: argparse.Namespace) -> tuple[TuningTable, list[str]]:
    """Return the table, and cautions for its reader."""
    others = filter(None, [options.calibration, options.topology])
    require_target(options.out, options.measurements, *others)
    measurements, topology = host_options.read_measured(options.measurements, options.topology)
    if options.calibration is None:
        raise InputError("say what the measurements were calibrated to: --calibration FILE")
    calibration = read_calibration(options.calibration)
    cautions = _unknown(measurements)
    shapes = [(shape.nodes, shape.ppn) for shape in options.shapes]
    with Display(console(error=True)).stage("simulating and selecting") as report:
        rows, table = make_table(
            measurements,
            calibration,
            counted(report),
            topology,
            shapes,
            constraints=constraints_of(options),
            cores=usable(),
        )
    if DESIGNED not in measurements.provenance:
        cautions += few_launches(rows)
    return table, cautions


def few_launches(rows: Sequence[Row]) -> list[str]:
    """Return a sentence on gains that are not beyond doubt for want of launches alone."""
    contests = hold_all(rows)
    short = [one.point for one in contests if wants_launches(one)]
    if not short:
        return []
    launches = max(len(row.samples) for row in rows if row.point in short)
    return [
        f"with {launches} launches only gains that hardly vary between them are beyond doubt: at"
        f" {len(short)} of {plural(len(contests), 'call')} an algorithm was faster in every launch,"
        " which is not enough for a rule; probe with more (--launches)"
    ]


def _unknown(measurements: Measurements) -> list[str]:
    """Return a sentence on algorithms that no rule can say, such as those of other programs."""
    known = mpi_libraries.named(measurements.library).ALGORITHMS
    named = {
        (point.collective, choice.algorithm)
        for point, choice in measured_pairs(measurements)
        if choice.via == LIBRARY and not choice.is_default
    }
    unknown = [
        f"{of} {quoted(name)}" for of, name in sorted(named) if name not in known.get(of, ())
    ]
    if not unknown:
        return []
    shown = ", ".join(unknown[:SHOWN]) + (" ..." if len(unknown) > SHOWN else "")
    return [
        f"no rule of {measurements.library} can say these algorithms, so there are none for them:"
        f" {shown}"
    ]


def _measured(options: argparse.Namespace, there: Hosts) -> tuple[TuningTable, list[str]]:
    """Return the table, and cautions for its reader."""
    written = [options.measurements, *filter(None, [options.calibration])]
    require_target(options.out, *written, *filter(None, [options.topology]))
    if options.calibration is not None:
        require_target(options.calibration, options.measurements, *filter(None, [options.topology]))
    display = Display(console(error=True))
    settle_library(options)
    request = host_options.request_of(options, there)
    launcher = host_options.launcher_of(options, interpreter(options.library, options.python))

    def tell(bound: Bound, spent: float) -> None:
        display.note(
            f"after {spent:.0f} s a table would have a mean regret of"
            f" {bound.expected:.1%}, with 95 % certainty below {bound.upper:.1%}"
        )

    limit = TimeLimit(options.budget, options.begun, slowdown(scheduled()))
    with display.stage(f"measuring {options.library} on {plural(request.nodes, 'host')}") as report:
        found = guided(
            options.measurements,
            request,
            launcher,
            Goal(options.budget, options.target_regret),
            name=options.name,
            constraints=constraints_of(options),
            limit=limit,
            callbacks=Callbacks(forwarded(report), tell, display.note),
        )
    if options.calibration is not None:
        _leave_calibration(found, request.topology, options.calibration)
    return found.table, _missed(found.bound, options.target_regret)


def _missed(bound: Bound | None, target: float) -> list[str]:
    if bound is None or bound.upper <= target:
        return []
    return [
        f"the target was not reached: the mean regret is {bound.expected:.1%}, with 95 % certainty"
        f" below {bound.upper:.1%}, and not below {target:.1%}; the same command goes on"
    ]


def _leave_calibration(found: Guided, topology: Topology | None, path: Path) -> None:
    """Write the calibration, which a table of few measured calls was made without."""
    try:
        write_calibration(found.calibration or calibrate(found.measurements, topology), path)
    except InputError as reason:
        warn(f"{path}: not written: {reason}")
