"""Score selectors and tables on measured tables: how much slower than the best are their choices,
at calls that they have not seen?"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from tuner.base.errors import InputError, UsageError
from tuner.base.progress import subtask_progress, with_eta
from tuner.base.spelling import unknown_name
from tuner.base.units import plural
from tuner.cli.commands.import_results import add_format_option
from tuner.cli.options.argument_types import file_option, name_list
from tuner.cli.terminal.output import (
    finish_command,
    print_cautions,
    print_result,
    print_table,
    print_text,
    warn,
)
from tuner.cli.terminal.progress import Display
from tuner.core.calibration import read_calibration
from tuner.core.collective import Collective
from tuner.core.measurement import read_measurements
from tuner.core.table import AlgorithmChoice, Rule, TuningTable, read_table
from tuner.formats.registry import LIBRARIES
from tuner.importers import BenchmarkResult, UserMetadata, read_all
from tuner.importers.algorithm_names import check_algorithm_names
from tuner.machines.topology_files import load_topology
from tuner.select.baselines import BASELINES, SelectFunction
from tuner.select.cases import (
    CV_PROTOCOLS,
    HELD_OUT_VARIABLE,
    LEAVE_NODE_COUNT_OUT,
    LEAVE_SIZE_OUT,
    NEW_MACHINE,
    EvaluationCase,
    Fold,
    cases_from_measurements,
    cases_from_readings,
    drop_algorithms,
    folds,
    group_cases,
    is_collective_reading,
)
from tuner.select.dataset import CallPoint, SimulateFunction
from tuner.select.evaluate import (
    DEFAULT_LABEL,
    TUNER,
    TUNER_SIGNIFICANT,
    Score,
    Selections,
    no_simulation,
    score_selections,
    selections,
    selector_trainers,
    with_alternatives,
)
from tuner.select.simulated_times import Simulator

NOTHING_TO_CHOOSE = (
    "nothing to choose from: every call was measured with one algorithm alone, as far as the files"
    " name algorithms; give --pooled to choose among the libraries in a file"
)
TEST_FILES = "other files"  # protocol of --test
MIN_NOTABLE_REGRET = 0.005  # smallest difference of mean regrets that is reported
MEAN_COLUMN_PREFIXES = ("mean_", "avg_")  # a table with units can state medians instead
EXAMPLES = """examples:
  tuner evaluate results.csv
  tuner evaluate results.csv --baselines nearest,forest --exclude-algorithms ignore
  tuner evaluate nccl.csv --pooled --cv leave-one-size-out
  tuner evaluate machine1.csv machine2.csv --cv new-machine
  tuner evaluate machine1.csv machine2.csv --test machine3.csv
  tuner evaluate m.ndjson --calibration c.json --topology racks.yaml --table table.json

The regret of a choice is its time over that of the best candidate measured there, less one.
`tuner` is the selector that looks for the least regret; `tuner, if sure` leaves the default only
where a gain is believed with 95 %, as rules for calls that were not measured do. `nearest` copies
the winner of the nearest call, `neighbours` and `forest` regress each candidate's time. `slower`
counts choices slower than the default beyond noise; `headroom` is the part of the default's regret
that is saved.

Without --calibration and --topology nothing is simulated, and no calibration is fitted or looked
for: `tuner` and `tuner, if sure` then learn from the measured times alone. With both, what they
believe of a call starts from its simulated time, as it always does in `tuner tune`. The baselines
never see simulated times."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_input_options(parser)
    parser.add_argument(
        "--cv",
        choices=CV_PROTOCOLS,
        default=LEAVE_NODE_COUNT_OUT,
        metavar="NAME",
        help=f"cross-validation: what is held out, {', '.join(CV_PROTOCOLS)} (default:"
        f" {LEAVE_NODE_COUNT_OUT})",
    )
    parser.add_argument(
        "--baselines",
        type=name_list,
        default=tuple(BASELINES),
        metavar="NAME,...",
        help=f"simple selectors to compare with: {', '.join(BASELINES)} (default: all)",
    )
    file_option(
        parser,
        "--test",
        "results to score selectors on that learn from all FILEs, instead of cross-validation",
        nargs="+",
        default=[],
    )
    file_option(parser, "--table", "tuning table to score, too")
    file_option(
        parser,
        "--calibration",
        "calibration to simulate calls with, on --topology (default: no simulation)",
    )
    file_option(parser, "--topology", "topology of the cluster, for simulation")
    finish_command(parser, run)


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options for input files and how to read them."""
    file_option(
        parser,
        "files",
        "measurements of a probe (.ndjson), or results that `tuner import-results` reads",
        nargs="+",
    )
    parser.add_argument(
        "--pooled",
        action="store_true",
        help="compare the libraries in a file as candidates, like algorithms (default: each by"
        " itself)",
    )
    parser.add_argument(
        "--exclude-algorithms",
        type=name_list,
        default=(),
        metavar="NAME,...",
        help="algorithms to disregard",
    )
    add_format_option(parser)


def run(options: argparse.Namespace) -> None:
    """Read all files, and score every set of comparable cases."""
    unknown = set(options.baselines) - set(BASELINES)
    if unknown:
        raise UsageError(unknown_name("baseline", min(unknown), BASELINES))
    simulate = _simulate(options.calibration, options.topology)
    trainers = selector_trainers(simulate, options.baselines)
    table = read_table(options.table) if options.table else None
    reading = partial(read_cases, form=options.format, simulate=simulate, pooled=options.pooled)
    cases = reading(options.files, excluded=options.exclude_algorithms)
    tests = _without(reading(options.test, excluded=()), options.exclude_algorithms)
    own_sets = _test_sets(cases, tests) if options.test else _held_out_sets(cases, options.cv)
    asked = [case for own, _ in own_sets.values() for case in own]
    tables = {str(options.table): _table_pick(table, asked, options.table)} if table else {}
    if table:
        _warn_of_own(table, options.table, [*options.files, *options.test])
        _warn_of_unmeasured(options.table, tables[str(options.table)], asked)
    if not with_alternatives(asked):
        raise InputError(NOTHING_TO_CHOOSE)
    tell = with_eta(Display().line_report("asking for what was left out"))
    found, why = dict[str, dict[str, Score]](), defaultdict[str, list[str]](list)
    for number, (name, (own, parts)) in enumerate(own_sets.items()):
        part = subtask_progress(tell, number, len(own_sets), name)
        picked = selections(own, parts, trainers, tables, part)
        found |= _scores_by_machine(name, picked)
        if picked and TUNER not in picked:
            why[_nothing_learned(own, options.cv)].append(name)
    for reason, names_of in why.items():
        warn(f"{'; '.join(names_of)}: {reason}")
    record = {
        name: [{"selector": key, **score.to_record()} for key, score in own.items()]
        for name, own in found.items()
    }
    protocol = TEST_FILES if options.test else options.cv
    print_result(
        options.json,
        {"protocol": protocol, "sets": record},
        lambda: _print(found, found.keys() - own_sets.keys(), protocol),
    )


CasesAndFolds = tuple[Sequence[EvaluationCase], Sequence[Fold]]


def _held_out_sets(cases: Sequence[EvaluationCase], protocol: str) -> dict[str, CasesAndFolds]:
    """Return the sets of comparable cases with what a protocol holds out of each."""
    return {
        name: (own, folds(own, protocol))
        for name, own in group_cases(cases, protocol == NEW_MACHINE).items()
    }


def _test_sets(
    cases: Sequence[EvaluationCase], tests: Sequence[EvaluationCase]
) -> dict[str, CasesAndFolds]:
    """Return the sets of calls of one kind in other files, with all cases of it to learn from."""
    known = group_cases(cases, pooled=True)
    asked = group_cases(tests, pooled=True)
    if not known.keys() & asked.keys():
        raise InputError(
            f"the files have calls of {', '.join(known)}, and those to test of {', '.join(asked)}:"
            " nothing is learned for these; give results of the same collectives and memory"
        )
    for name in asked.keys() - known.keys():
        warn(f"{name}: left out, since the files to learn from have no such calls")
    return {name: (own, [(known[name], own)]) for name, own in asked.items() if name in known}


def _scores_by_machine(name: str, picked: Selections) -> dict[str, dict[str, Score]]:
    """Return the scores of a set and, where it has several machines, of each of them."""
    groups = sorted({case.group for pairs in picked.values() for case, _ in pairs})
    several = groups if len(groups) > 1 else []
    total = {name: score_selections(picked)} if picked else {}
    return total | {f"{name}, {group}": score_selections(picked, group) for group in several}


def _without(cases: Sequence[EvaluationCase], names: Collection[str]) -> list[EvaluationCase]:
    """Return the cases without algorithms of these names, which need not be measured in them."""
    measured = {choice.algorithm for case in cases for choice in case.observations}
    return drop_algorithms(cases, measured.intersection(names))


def _warn_of_own(table: TuningTable, named: Path, files: Sequence[Path]) -> None:
    """Warn of input files that the table was made of."""
    for path in files:
        if path.suffix != ".ndjson":
            continue
        if read_measurements(path).provenance == table.provenance.get("probe"):
            warn(
                f"{named} was made of {path}: its scores there say nothing of calls that"
                " were not measured; score it on other measurements"
            )


def _nothing_learned(cases: Sequence[EvaluationCase], protocol: str) -> str:
    """Return why selectors that learn are not scored, and what to do."""
    others = [
        other
        for other in (LEAVE_NODE_COUNT_OUT, LEAVE_SIZE_OUT)
        if other != protocol and folds(cases, other)
    ]
    return (
        f"all of it is of one {HELD_OUT_VARIABLE[protocol]}, so {protocol} leaves nothing"
        " to learn from:"
        f" {TUNER} and the baselines are not scored; give results of another one, or choose another"
        f" --cv{', such as ' if others else ''}{' or '.join(others)}"
    )


def _simulate(calibration: Path | None, topology: Path | None) -> SimulateFunction:
    if calibration is None and topology is None:
        return no_simulation
    if calibration is None or topology is None:
        raise UsageError("simulating needs both --calibration and --topology")
    return Simulator(read_calibration(calibration), load_topology(topology))


def read_cases(
    files: Sequence[Path],
    form: str,
    simulate: SimulateFunction,
    pooled: bool,
    excluded: Collection[str],
) -> list[EvaluationCase]:
    """Read the cases of files in any known format.

    form        format of the files that `tuner probe` did not write
    pooled      whether the libraries in a file are candidates, like algorithms
    excluded    algorithms to disregard
    """
    probed = [path for path in files if path.suffix == ".ndjson"]
    others = [path for path in files if path not in probed]
    read = [
        case
        for path in probed
        for case in cases_from_measurements(read_measurements(path), simulate)
    ]
    readings = [_readings(path, form) for path in others]
    check_algorithm_names(chain(*readings))
    for own in readings:
        read += cases_from_readings(own, pooled)
    return drop_algorithms(read, excluded)


def _readings(path: Path, form: str) -> Sequence[BenchmarkResult]:
    """Read a file that another program wrote, and warn of anything unusual in it."""
    readings, notes = read_all([path], form, UserMetadata(has_options=False))
    for note in notes:
        warn(note)
    unused = [reading for reading in readings if not is_collective_reading(reading)]
    if unused:
        warn(
            f"{path}: {len(unused)} of {plural(len(readings), 'reading')} tell no time of a"
            f" collective on some nodes, and are left out: the first is in line {unused[0].line}"
        )
    means = sum(reading.statistic.startswith(MEAN_COLUMN_PREFIXES) for reading in readings)
    if means:
        warn(
            f"{path}: {means} of {plural(len(readings), 'reading')} are means, which a few slow"
            " calls move far: give medians (median_us) where there are any"
        )
    return readings


def _table_pick(table: TuningTable, cases: Sequence[EvaluationCase], path: Path) -> SelectFunction:
    """Return a function that chooses as a table does, with the default where it has no rule.

    Warns of calls without a rule. Raises InputError where the results are of other libraries.
    """
    of = {word for case in cases for word in case.group.split() if word in LIBRARIES}
    if of and table.library.partition(" ")[0] not in of:
        raise InputError(
            f"{path} is for {table.library}, the results are of {' and '.join(sorted(of))}: its"
            " algorithms are others there; score it on results of its library"
        )

    def rule(point: CallPoint) -> Rule | None:
        if point.collective not in list(Collective):
            return None
        keys = (point.key("commutative"), point.key())
        return next((rule for key in keys if (rule := table.lookup(key, point.nbytes))), None)

    def pick(point: CallPoint, _choices: Collection[AlgorithmChoice]) -> AlgorithmChoice:
        found = rule(point)
        return found.choice if found else AlgorithmChoice()

    silent = sum(rule(case.point) is None for case in cases)
    if silent:
        warn(
            f"{path}, of {table.library} on {table.cluster.name}, has no rules for {silent} of"
            f" {plural(len(cases), 'call')}: the default stands for it there"
        )
    return pick


def _warn_of_unmeasured(path: Path, pick: SelectFunction, asked: Sequence[EvaluationCase]) -> None:
    """Warn of calls where the table's choice was not measured."""
    calls = with_alternatives(asked)
    lost = sum(pick(case.point, case.observations) not in case.observations for case in calls)
    if lost:
        warn(
            f"{path} is not scored at {lost} of {plural(len(calls), 'call')}: what it says there"
            " was not measured"
        )


def _print(found: Mapping[str, Mapping[str, Score]], parts: Collection[str], protocol: str) -> None:
    """Print a table for each set and each part of one; cautions are those of whole sets."""
    columns = ("selector", "mean", "95% interval", "p95", "worst", "slower", "headroom", "calls")
    for name, own in found.items():
        rows = [(key, *_cells(score)) for key, score in own.items()]
        print_table(
            f"{name}: regret, %, {protocol}",
            columns,
            rows,
            right=columns[1:],
            droppable=("p95", "95% interval", "headroom", "worst"),
            wrappable=("selector",),
        )
    totals = {name: own for name, own in found.items() if name not in parts}
    print_cautions(f"{name}: {one}." for name, own in totals.items() for one in _cautions(own))
    if any(DEFAULT_LABEL not in own for own in found.values()):
        print_text(
            "Where the library's default was not measured, or is left out, nothing tells what is"
            " slower than it, nor which part of its regret is saved."
        )


def _cautions(scores: Mapping[str, Score]) -> Iterator[str]:
    """Yield where our selector keeps the default, is slower, or has more regret than another."""
    sure, default = scores.get(TUNER_SIGNIFICANT), scores.get(DEFAULT_LABEL)
    if sure and default and sure.regret == default.regret:
        yield f"{TUNER_SIGNIFICANT} is sure of nothing: it keeps the default in all calls"
    ours = scores.get(TUNER)
    if ours is None:
        return
    calls = ours.regret.points
    if ours.slower_fraction > 0:
        share = f"{ours.slower_fraction:.0%} of {plural(calls, 'call')}"
        yield f"{TUNER} chose something slower than the default in {share}"
    for name, score in scores.items():
        better = score.regret.mean < ours.regret.mean - MIN_NOTABLE_REGRET
        if name != TUNER_SIGNIFICANT and better and score.regret.points == calls:
            yield (
                f"{name} has less regret than {TUNER}, {score.regret.mean:.1%} against"
                f" {ours.regret.mean:.1%}"
            )


def _cells(score: Score) -> tuple[str, ...]:
    regret = score.regret
    mean, *bounds, p95, worst = (
        f"{100 * value:.1f}" for value in (regret.mean, *regret.interval, regret.p95, regret.worst)
    )
    shares = [
        "" if math.isnan(value) else f"{round(100 * value)}%"
        for value in (score.slower_fraction, score.regret_reduction)
    ]
    return (mean, " to ".join(bounds), p95, worst, *shares, str(regret.points))
