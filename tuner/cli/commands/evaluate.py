"""Score selectors and tables on measured tables: how much slower than the best are their choices,
at calls that they have not seen?"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError, UsageError
from tuner.base.progress import subtask_progress, with_eta
from tuner.base.spelling import unknown_name
from tuner.base.units import plural
from tuner.cli.commands.import_results import add_format_option
from tuner.cli.options import argument_types
from tuner.cli.options.argument_types import file_option, name_list
from tuner.cli.terminal.output import finish_command, print_result, warn
from tuner.cli.terminal.progress import Display
from tuner.cli.views.evaluation_view import ScoredSet, print_scores, score_records
from tuner.cli.views.probe_replays import ReplayedProbes, print_probes, probe_records
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
    compared_rows,
    drop_algorithms,
    folds,
    group_cases,
    is_collective_reading,
    prior_rows,
    with_alternatives,
)
from tuner.select.dataset import CallPoint, SimulateFunction, no_simulation
from tuner.select.evaluate import TUNER, selections, selector_trainers
from tuner.select.replay import replay_shares
from tuner.select.simulated_times import Simulator
from tuner.workflows.known_defaults import fill_in_defaults, known_defaults

NOTHING_TO_CHOOSE = (
    "nothing to choose from: every call was measured with one algorithm alone, as far as the files"
    " name algorithms; give --pooled to choose among the libraries in a file"
)
TEST_FILES = "other files"  # protocol of --test
PROBES = "probes"  # protocol of --probes
DEFAULT_SEEDS = 3
MEAN_COLUMN_PREFIXES = ("mean_", "avg_")  # a table with units can state medians instead
EXAMPLES = """examples:
  tuner evaluate results.csv
  tuner evaluate results.csv --baselines nearest,forest --exclude-algorithms ignore
  tuner evaluate nccl.csv --pooled --cv leave-one-size-out
  tuner evaluate machine1.csv machine2.csv --cv new-machine
  tuner evaluate machine1.csv machine2.csv --test machine3.csv
  tuner evaluate machine1.csv machine2.csv --probes 0.5%,5%,10%
  tuner evaluate m.ndjson --calibration c.json --topology racks.yaml --table table.json

The regret of a choice is its time over that of the best candidate measured there, less one.
`tuner` is the selector that looks for the least regret; `tuner, if sure` leaves the default only
where a gain of over 5 % is expected and a loss of over 5 % has a probability of at most 10 %, as
rules for calls that were not measured do; on a machine of which nothing was measured it is the
default. `nearest` copies the winner of the nearest call, `neighbours` and `forest` regress each
candidate's time. `slower` is the share of choices slower than the default beyond noise; `headroom`
is the part of the default's regret that is saved.

With --probes the results stand for what probes would measure: experiments are chosen as in `tuner
tune`, each answer is noisy, and the table for all calls, measured or not, is scored after each
share of the seconds that measuring everything takes. `slower` is then by over 5 %. Where results
are of several machines, each is also probed with the others as a prior.

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
        "results to score the selectors on, which then learn from all FILEs (default:"
        " cross-validation)",
        nargs="+",
        default=[],
    )
    parser.add_argument(
        "--probes",
        type=argument_types.fraction_list,
        metavar="PERCENT,...",
        help="score tables of probes that take these shares of the time of measuring everything",
    )
    argument_types.count_option(
        parser,
        "--seeds",
        f"number of replays of the probes, each with its own noise (default: {DEFAULT_SEEDS})",
        metavar="N",
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
    read = partial(read_cases, form=options.format, pooled=options.pooled)
    if options.probes:
        _require_alone(vars(options))
        cases = fill_in_defaults(read(options.files, simulate=no_simulation))
        cases = drop_algorithms(cases, options.exclude_algorithms)
        return _print_probes(cases, options.probes, options.seeds or DEFAULT_SEEDS, options.json)
    if options.seeds:
        raise UsageError("--seeds is for --probes: give --probes, or leave --seeds out")
    unknown = set(options.baselines) - set(BASELINES)
    if unknown:
        raise UsageError(unknown_name("baseline", min(unknown), BASELINES))
    simulate = _simulate(options.calibration, options.topology)
    trainers = selector_trainers(simulate, options.baselines, known_defaults)
    table = read_table(options.table) if options.table else None
    protocol = options.cv or LEAVE_NODE_COUNT_OUT
    if options.test:
        protocol = TEST_FILES
        _check_test(options.files, options.test, options.cv, options.pooled)
    measured = read(options.files, simulate=simulate), read(options.test, simulate=simulate)
    every = tuple(map(fill_in_defaults, measured))
    drop_algorithms([*chain(*every)], options.exclude_algorithms)  # raises if neither has one
    cases, tests = (_without(own, options.exclude_algorithms) for own in every)
    own_sets = _test_sets(cases, tests) if options.test else _held_out_sets(cases, protocol)
    asked = [case for own, _ in own_sets.values() for case in own]
    if not with_alternatives(asked):
        raise InputError(NOTHING_TO_CHOOSE)
    tables = {str(options.table): _table_pick(table, asked, options.table)} if table else {}
    if table:
        _warn_of_own(table, options.table, options.test or options.files)
        _warn_of_unmeasured(options.table, tables[str(options.table)], asked)
    tell = with_eta(Display().line_report("asking the selectors"))
    found, why = list[ScoredSet](), defaultdict[str, list[str]](list)
    for number, (name, (own, parts)) in enumerate(own_sets.items()):
        part = subtask_progress(tell, number, len(own_sets), name)
        if picked := selections(own, parts, trainers, tables, part):
            found.append(ScoredSet(name, picked))
            if TUNER not in picked:
                why[_nothing_learned(own, protocol)].append(name)
    for reason, names_of in why.items():
        warn(f"{'; '.join(names_of)}: {reason}")
    record = {"protocol": protocol, **score_records(found)}
    return print_result(options.json, record, lambda: print_scores(found, protocol))


def _require_alone(given: Mapping[str, Any]) -> None:
    """Raise UsageError for options that contradict --probes."""
    names = ("cv", "test", "table", "calibration", "topology")
    others = [name for name in names if given[name]]
    others += ["baselines"] if given["baselines"] != tuple(BASELINES) else []
    if others:
        raise UsageError(f"--probes and --{others[0]} exclude one another: give one of them")


def _print_probes(
    cases: Sequence[EvaluationCase], shares: Sequence[float], seeds: int, as_json: bool
) -> None:
    found = _replayed(cases, shares, seeds)
    record = {"protocol": PROBES, "sets": probe_records(found)}
    print_result(as_json, record, lambda: print_probes(found))


def _replayed(
    cases: Sequence[EvaluationCase], shares: Sequence[float], seeds: int
) -> list[ReplayedProbes]:
    """Return the replayed probes of each set, where it can be with those of others as a prior."""
    sets = {name: own for name, own in group_cases(cases).items() if with_alternatives(own)}
    if not sets:
        raise InputError(NOTHING_TO_CHOOSE)
    tell = with_eta(Display().line_report("replaying probes"))
    found = list[ReplayedProbes]()
    for number, (name, own) in enumerate(sets.items()):
        part = subtask_progress(tell, number, len(sets), name)
        rows, others = compared_rows(own), prior_rows(cases, own[0])
        if not rows:
            warn(f"{name}: not probed, since the library's default was not measured")
            continue
        default_runs = known_defaults(own[0].library)
        for prior in ((), others) if others else ((),):
            runs = []
            for seed in range(seeds):
                part(seed, seeds)
                runs.append([*replay_shares(rows, shares, 1 + seed, prior, default_runs)])
            found.append(ReplayedProbes(name, bool(prior), runs))
    if not found:
        raise InputError("expected times of the library's default, which tables are compared with")
    return found


def _check_test(
    files: Sequence[Path], tests: Sequence[Path], protocol: str | None, pooled: bool
) -> None:
    """Raise UsageError where other options or common files contradict `tests`."""
    if protocol:
        raise UsageError("--test and --cv exclude one another: give one of them")
    if pooled:
        raise UsageError(
            "--test and --pooled exclude one another: which libraries a file has decides how"
            " --pooled names algorithms"
        )
    if both := {path.resolve() for path in files} & {path.resolve() for path in tests}:
        raise UsageError(f"{min(both)} is named both before and after --test: name it once")


CasesAndFolds = tuple[Sequence[EvaluationCase], Sequence[Fold]]


def _held_out_sets(cases: Sequence[EvaluationCase], protocol: str) -> dict[str, CasesAndFolds]:
    """Return the calls of each set that a protocol holds out, or all, and what it splits them by.

    Sets without anything to choose are left out.
    """
    found = dict[str, CasesAndFolds]()
    for name, own in group_cases(cases, protocol == NEW_MACHINE).items():
        if with_alternatives(own):
            parts = folds(own, protocol)
            found[name] = [case for _, asked in parts for case in asked] or own, parts
    return found


def _test_sets(
    cases: Sequence[EvaluationCase], tests: Sequence[EvaluationCase]
) -> dict[str, CasesAndFolds]:
    """Return the sets of calls of one kind in other files, with all cases of it to learn from."""
    known = group_cases(cases, pooled=True, to_learn=True)
    asked = group_cases(tests, pooled=True)
    if not tests or not known.keys() & asked.keys():
        raise InputError(
            f"the files to learn from have calls of {', '.join(known) or 'nothing'}, those to test"
            f" of {', '.join(asked) or 'nothing'}: give results of the same collectives and memory"
        )
    if lost := len(tests) - sum(map(len, asked.values())):
        warn(f"{plural(lost, 'call')} left out, where the library's default was not measured")
    for name in [name for name in asked if name not in known]:
        warn(f"{name}: left out, since the files to learn from have no such calls")
    return {name: (own, [(known[name], own)]) for name, own in asked.items() if name in known}


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
    files: Sequence[Path], form: str, simulate: SimulateFunction, pooled: bool
) -> list[EvaluationCase]:
    """Read the cases of files in any known format, as they were measured.

    form        format of the files that `tuner probe` did not write
    pooled      whether the libraries in a file are candidates, like algorithms
    """
    probed = [path for path in files if path.suffix == ".ndjson"]
    others = [path for path in files if path not in probed]
    read = [
        case
        for path in probed
        for case in cases_from_measurements(read_measurements(path), simulate)
    ]
    readings = {path: _readings(path, form) for path in others}
    check_algorithm_names(chain(*readings.values()))
    for path, own in readings.items():
        found = cases_from_readings(own, pooled)
        _warn_of_unlinked_runs(path, found)
        read += found
    return read


def _warn_of_unlinked_runs(path: Path, cases: Sequence[EvaluationCase]) -> None:
    """Warn of calls that are several cases, since nothing says how their runs compare."""
    found = Counter((case.group, case.library, case.point) for case in with_alternatives(cases))
    if apart := sum(count > 1 for count in found.values()):
        warn(
            f"{path}: {plural(apart, 'call')} measured in runs that have no algorithm in common,"
            " so that their times are not compared with one another"
        )


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
