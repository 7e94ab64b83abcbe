"""Time the real library with a table's file: which rules to keep, and what they gain."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner import mpi_libraries
from tuner.base.progress import ProgressCallback, StageCallback, progress_from_counts, with_eta
from tuner.base.thread_levels import THREAD_SINGLE
from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.core.table import OPERATORS, Rule, TuningTable
from tuner.formats.registry import FORMATS, ExportOptions
from tuner.formats.rules_by_ranks import all_rule_lists, describe_rule
from tuner.launch import LOCAL_HOST, Hosts, Launcher, MultiHostLauncher, ShapeLauncher
from tuner.launch.shared_directory import shared_directory
from tuner.validation.acceptance import Acceptance, accept_rules, accepted_table, withdraw_rules
from tuner.validation.heldout import HeldoutResult, compare_heldout, heldout_record, losing_parts
from tuner.validation.libraries import TUNED_LIBRARIES
from tuner.validation.shared_verdicts import with_shared_verdicts, without_shared_rules
from tuner.validation.timing import (
    CONDITIONS,
    LaunchOptions,
    TimedCall,
    TimingProgram,
    build_program,
)
from tuner.validation.validation import empty_call_failures
from tuner.workflows import native_files

TRYING_SHARE = 0.6  # of the time for verdicts: rules are tried in it, and then compared again
DECIDING_SHARE = 0.2  # share of the time of a comparison that decides about rules, roughly
CALL_BUDGET_S = 0.004  # seconds for each call, condition and side in a round
LOG = logging.getLogger("tuner")
Compare = Callable[
    [TuningTable, Collection[TimedCall], bool, ProgressCallback], list[HeldoutResult]
]


def accept_winning_rules(
    table: TuningTable,
    launcher: Launcher,
    report: StageCallback,
    hosts: Hosts = LOCAL_HOST,
    on_warning: Callable[[str], None] = LOG.warning,
    *,
    budget: float = math.inf,
) -> TuningTable:
    """Return the table with only the rules that win against the library as its user has it.

    hosts       hosts on which ranks are started
    budget      seconds after which the times so far decide, if there are enough
    on_warning  called with what makes the times less certain, and with rules that end programs

    Raises InputError where the environment overrides the library's choice of algorithms, and
    ProbeError when the ranks fail.
    """
    module = mpi_libraries.library_module(launcher.library)
    mpi_libraries.require_no_override(module.OVERRIDING_PATTERN)
    known, records = table, list[Mapping[str, Any]]()
    tell, classes, whole = with_eta(report), _operator_classes(table), launcher.profile.unsplittable
    begun = time.monotonic()
    with shared_directory(hosts.is_local) as place:
        program = _timing_program(launcher, place, table, on_warning)
        for number, operators in enumerate(classes):
            part = without_shared_rules(_rules_for_operators(known, operators), table, whole)
            side = prepare_side(part, operators, launcher, place)
            fatal = _empty_call_failures(part, operators, launcher, hosts, side, place)
            if fatal:
                on_warning("; ".join(fatal.values()))
                part = withdraw_rules(part, fatal)
                side = prepare_side(part, operators, launcher, place)
            found = accept_rules(
                part,
                operators,
                ShapeLauncher(launcher, hosts),
                program,
                side,
                seconds=CALL_BUDGET_S,
                directory=place,
                deadline=begun + budget * (number + 1) / len(classes),
                progress=_part_of(tell, number / len(classes), (number + 1) / len(classes)),
                on_warning=on_warning,
            )
            kept = accepted_table(part, operators, found, whole)
            known = _replace_rules(known, with_shared_verdicts(kept, table, known, whole))
            records.append({**_record(operators, found), "fatal": list(fatal.values())})
    provenance = {**table.provenance, "acceptance": {**_conditions(program), "files": records}}
    return TuningTable(table.cluster, table.library, known.rules, provenance)


def withdraw_losing_rules(
    table: TuningTable,
    launcher: Launcher,
    report: StageCallback,
    hosts: Hosts = LOCAL_HOST,
    on_note: Callable[[str], None] = LOG.warning,
    *,
    budget: float = math.inf,
) -> tuple[TuningTable, list[dict[str, Any]]]:
    """Withdraw rules where they lose in a new comparison; return the table and what it gains.

    The comparison uses other message sizes than the acceptance, and takes place at another time.
    The gains, one record per call, are measured at sizes that decided nothing; there are none where
    every rule is withdrawn.

    on_note     called with how much is withdrawn, and whatever makes the times less certain
    budget      seconds after which the times so far decide and are reported, if there are enough

    Raises the same errors as `compare_with_default`.
    """
    found, used, lost = list[HeldoutResult](), set[TimedCall](), list[Rule]()
    tell = with_eta(report)
    deadline = time.monotonic() + budget
    with _comparison(table, launcher, hosts, on_note, deadline) as compared:
        deciding = _part_of(tell, 0.0, DECIDING_SHARE)
        while again := losing_parts(
            table,
            _sum_operators(launcher),
            tried := compared(table, used, False, deciding),
            launcher.profile.unsplittable,
        ):
            ranges = plural(len(again), "range")
            on_note(f"{ranges} of sizes did not win again and {_is(again)} withdrawn")
            lost, found, table = lost + again, found + tried, withdraw_rules(table, again)
            used |= {one.timed_call for one in tried}
            if time.monotonic() > deadline:  # the others have just won
                break
        else:
            found, used = found + tried, used | {one.timed_call for one in tried}
        changes = any(not rule.choice.is_default for rule in table.rules)
        last = compared(table, used, True, _part_of(tell, DECIDING_SHARE, 1.0)) if changes else []
    asked = [list(each) for each in sorted(map(_call_key, used))]
    told = {**_comparison_record(lost, found, last), "used": asked}
    provenance = {**table.provenance, "comparison": told}
    records = [heldout_record(one) for one in last]
    return TuningTable(table.cluster, table.library, table.rules, provenance), records


def _comparison_record(
    lost: Sequence[Rule], deciding: Sequence[HeldoutResult], last: Sequence[HeldoutResult]
) -> dict[str, Any]:
    """Return what a table says of the comparison that withdrew these rules."""
    undecided = {str(one.timed_call) for one in deciding if one.undecided and not one.wrong}
    return {
        "withdrawn": [describe_rule(rule) for rule in lost],
        "wrong": sorted({str(one.timed_call) for one in (*deciding, *last) if one.wrong}),
        "undecided": sorted(undecided),
    }


def time_against_default(
    table: TuningTable,
    launcher: Launcher,
    report: StageCallback,
    hosts: Hosts = LOCAL_HOST,
    on_warning: Callable[[str], None] = LOG.warning,
) -> list[dict[str, Any]]:
    """Compare tuned with default at sizes that were used for nothing else, one record per call.

    Raises InputError where the environment overrides the library's choice of algorithms, and
    ProbeError when the ranks fail.
    """
    decided = table.provenance.get("comparison", {}).get("used", [])
    used = {TimedCall(Collective(name), *rest) for name, *rest in decided}
    progress = progress_from_counts(report)
    with _comparison(table, launcher, hosts, on_warning) as compared:
        return [heldout_record(one) for one in compared(table, used, True, progress)]


def _part_of(tell: Callable[[float, str], None], begin: float, end: float) -> ProgressCallback:
    """Return a callback (done, total) for the part of a stage from one fraction to another."""
    return lambda done, total: tell(begin + (end - begin) * done / total, f"{done} of {total}")


def _call_key(call: TimedCall) -> tuple[str, int, int, int]:
    return str(call.collective), call.nodes, call.ppn, call.nbytes


@contextmanager
def _comparison(
    table: TuningTable,
    launcher: Launcher,
    there: Hosts,
    tell: Callable[[str], None],
    deadline: float = math.inf,
) -> Iterator[Compare]:
    """Yield a function that compares a table with the library's default.

    It takes the table, the calls that were used before and must not be used again, whether to
    include calls that the table leaves to the default (controls), and a callback for its progress.
    """
    mpi_libraries.require_no_override(
        mpi_libraries.library_module(launcher.library).OVERRIDING_PATTERN
    )
    operators = _sum_operators(launcher)
    with shared_directory(there.is_local) as place:
        program = _timing_program(launcher, place, table, tell)

        def compared(
            table: TuningTable,
            used: Collection[TimedCall],
            controls: bool,
            progress: ProgressCallback,
        ) -> list[HeldoutResult]:
            return compare_heldout(
                table,
                ShapeLauncher(launcher, there),
                program,
                prepare_side(table, operators, launcher, place),
                operators=operators,
                used=used,
                controls=controls,
                seconds=CALL_BUDGET_S,
                directory=place,
                deadline=deadline,
                progress=progress,
                on_warning=tell,
            )

        yield compared


def _sum_operators(launcher: Launcher) -> str:
    """Return the operator class whose rules decide about sums.

    Where a library's file does not tell operators apart, every operator gets the rules that are
    safe for any.
    """
    return "commutative" if launcher.profile.tells_operators_apart else "any"


def _is(rules: Sequence[Rule]) -> str:
    return "is" if len(rules) == 1 else "are"


def _empty_call_failures(
    table: TuningTable,
    operators: str,
    launcher: Launcher,
    hosts: Hosts,
    side: LaunchOptions,
    directory: Path,
) -> dict[Rule, str]:
    """Return the rules of a file under which calls without data fail, with a sentence on each.

    A program that never times such calls would not notice.
    """
    rules = [rule for rule_list in all_rule_lists(table, operators) for rule in rule_list]
    ppn = max((rule.key.ppn for rule in rules), default=1)
    failed = empty_call_failures(
        launcher if hosts.is_local else MultiHostLauncher(launcher, hosts, ppn),
        rules,
        directory,
        settings={**side.settings, **side.environment},
    )
    return {
        rule: f"{describe_rule(rule)} is withdrawn: {reason}" for rule, reason in failed.items()
    }


def _timing_program(
    launcher: Launcher, place: Path, table: TuningTable, tell: Callable[[str], None]
) -> TimingProgram:
    program = build_program(launcher.compiler, place, thread_level_of(table))
    if program.fallback_reason:
        tell(f"an mpi4py program is timed instead of a C program: {program.fallback_reason}")
    return program


def thread_level_of(table: TuningTable) -> str:
    """Return the thread level that the table was measured at."""
    probe = table.provenance.get("probe", {})
    return str(probe.get("thread_level", THREAD_SINGLE))


def prepare_side(
    table: TuningTable, operators: str, launcher: Launcher, workdir: Path
) -> LaunchOptions:
    """Write the table's files into `workdir`; return the launch options that activate them."""
    wish = ExportOptions(
        commutative_only=operators != OPERATORS[0] and not launcher.profile.tells_operators_apart,
        base_rules=native_files.generic_rules_loader(launcher.python),
    )
    file = workdir / f"{operators}.rules"
    file.write_text(FORMATS[launcher.library].emit(table, wish)[0], encoding="utf-8")
    library = TUNED_LIBRARIES[launcher.library]
    library.write_further_file(table, file, launcher.python, commutative_only=wish.commutative_only)
    return library.activation(file)


def _operator_classes(table: TuningTable) -> list[str]:
    """Return the operator classes for which the table has separate rules."""
    own = {key.operators for key in table.keys}
    return [operators for operators in OPERATORS if operators in own]


def _rules_for_operators(table: TuningTable, operators: str) -> TuningTable:
    """Return the part of a table that a file for this operator class contains."""
    if operators != OPERATORS[0]:
        return table
    rules = tuple(rule for rule in table.rules if rule.key.operators == operators)
    return TuningTable(table.cluster, table.library, rules, table.provenance)


def _replace_rules(table: TuningTable, part: TuningTable) -> TuningTable:
    """Return the table with its rules for the calls of `part` replaced by those of `part`."""
    rest = tuple(rule for rule in table.rules if rule.key not in part.keys)
    return TuningTable(table.cluster, table.library, (*rest, *part.rules), table.provenance)


def _conditions(program: TimingProgram) -> dict[str, Any]:
    return {
        "program": program.description,
        "why_not_c": program.fallback_reason,
        "thread_level": program.thread_level,
        "conditions": list(CONDITIONS),
    }


def _record(operators: str, found: Acceptance) -> dict[str, Any]:
    """Return the record of an acceptance: what was tried, accepted, wrong and dropped.

    Calls are undecided for whose further rounds there was no time.
    """
    dropped = dict[Rule, list[int]]()
    for trial in found.calls:
        if trial not in found.accepted:
            dropped.setdefault(trial.rule, []).append(trial.nbytes)
    return {
        "operators": operators,
        "tried": len(found.calls),
        "accepted": len(found.accepted),
        "wrong": sorted(
            {str(t.timed_call) for t in found.calls if t.timed_call in found.times.wrong_calls}
        ),
        "undecided": sorted(map(str, found.times.undecided)),
        "dropped": [
            {"rule": describe_rule(rule), "sizes": sizes} for rule, sizes in dropped.items()
        ],
    }
