"""Compare the rules of a table for NCCL with what programs ran, by logs and the Inspector.

A rule is confirmed only at the sizes at which it was observed. A rule that was seen to run
something else, even once, is refuted; one without observed calls is neither. Rules that leave the
decision to NCCL are skipped, since no log tells whether NCCL decided. So are rules for any operator
where the table has others for commutative ones, which NCCL's file contains instead. A number of
channels is an upper limit for NCCL, so fewer channels also confirm a rule.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

from tuner.base.errors import InputError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.base.units import format_size, plural
from tuner.core.table import AlgorithmChoice, Rule, TuningTable
from tuner.formats.rules_by_ranks import rules_by_key
from tuner.importers.inspector_files import is_inspector_head, select_reader
from tuner.importers.streaming import iter_files
from tuner.validation.nccl_logs import CHANNELS_PARAMETER, ExecutedCollective, LoggedCalls
from tuner.validation.nccl_processes import CommunicatorShape, TooManyCallsError
from tuner.validation.validation import RuleValidation

NOT_OBSERVED = "not seen"
SUPERSEDED = "not in NCCL's file: the rules for commutative operators are"
CHANNELS_UNKNOWN = "the files do not say on how many channels; NCCL's own log does"


def read_logs(
    files: Sequence[Path],
    shape: CommunicatorShape | None = None,
    progress: ProgressCallback = no_progress,
    discovered: Collection[Path] = (),
) -> LoggedCalls:
    """Return the calls in logs of NCCL and files of its Inspector.

    shape       ranks and nodes of communicators for which a log does not give them
    progress    called with bytes
    discovered  the files that the user did not name: where one of them is not a log, or is damaged,
                its rest is skipped and `unread_files` of the result says why

    Raises InputError for what cannot be read, and where no line describes a call.
    """
    evidence = LoggedCalls(shape)
    for path, begin, lines in iter_files(files, progress):
        try:
            if is_inspector_head(begin.lstrip()):
                for record in select_reader(begin).records(lines):
                    evidence.read_record(record)
            else:
                evidence.read_log(lines)
        except InputError as reason:
            if path not in discovered or isinstance(reason, TooManyCallsError):
                raise InputError(f"{path}: {reason}") from None
            evidence.unread_files.append(f"{path}: {reason}")
    if not evidence.call_lines:
        raise InputError(
            f"{files[0]}: no line tells what NCCL ran: run the program with NCCL_DEBUG=INFO"
            " NCCL_DEBUG_SUBSYS=INIT,TUNING and give what rank 0 wrote"
        )
    return evidence


def validate(table: TuningTable, logged_calls: LoggedCalls) -> list[RuleValidation]:
    """Return the validation of each rule in NCCL's file that names an algorithm."""
    seen: dict[Rule, list[tuple[ExecutedCollective, int]]] = defaultdict(list)
    rule_lists: dict[tuple[str, int, int], list[tuple[Rule, ...]]] = defaultdict(list)
    for key, rule_list in rules_by_key(table).items():
        rule_lists[key.collective, key.nodes, key.p].append(rule_list)
    for executed, times in logged_calls.executed_calls():
        for rule_list in rule_lists.get((executed.collective, executed.nodes, executed.p), ()):
            place = (
                bisect.bisect_right(rule_list, executed.nbytes, key=lambda rule: rule.start_bytes)
                - 1
            )
            seen[rule_list[place]].append((executed, times))
    return [
        _validate_rule(rule, seen[rule])
        for rule in _rules_in_file(table)
        if not rule.choice.is_default
    ]


def superseded_rules(table: TuningTable) -> list[RuleValidation]:
    """Return the rules that NCCL's file lacks because it has those for commutative operators."""
    held = set(_rules_in_file(table))
    return [RuleValidation.skipped(rule, SUPERSEDED) for rule in table.rules if rule not in held]


def _rules_in_file(table: TuningTable) -> list[Rule]:
    held = {rule for rule_list in rules_by_key(table).values() for rule in rule_list}
    return [rule for rule in table.rules if rule in held]


def _validate_rule(rule: Rule, calls: Sequence[tuple[ExecutedCollective, int]]) -> RuleValidation:
    bound = rule.choice.params.get(CHANNELS_PARAMETER, 0)
    unsure = [call for call, _ in calls if _matches_rule(rule.choice, call.choice) is None]
    seen = Counter[tuple[int, AlgorithmChoice]]()
    wrong = Counter[tuple[int, AlgorithmChoice]]()
    for call, times in calls:
        if (agrees := _matches_rule(rule.choice, call.choice)) is not None:
            ran = call.choice if bound else AlgorithmChoice(call.choice.algorithm)
            seen[call.nbytes, ran] += times
            wrong[call.nbytes, ran] += 0 if agrees else times
    if not seen:
        return RuleValidation.skipped(rule, CHANNELS_UNKNOWN if unsure else NOT_OBSERVED)
    ordered = sorted(seen, key=lambda each: (each[0], str(each[1])))
    sizes, executed = tuple(size for size, _ in ordered), tuple(ran for _, ran in ordered)
    reason = _mismatch_reason(ordered, seen, wrong) if wrong.total() else ""
    return RuleValidation(rule, sizes, executed, not reason, reason)


def _matches_rule(wanted: AlgorithmChoice, ran: AlgorithmChoice) -> bool | None:
    """Return whether a call ran as its rule says, None where that cannot be told."""
    if wanted.algorithm != ran.algorithm:
        return False
    bound = wanted.params.get(CHANNELS_PARAMETER, 0)
    if bound and CHANNELS_PARAMETER not in ran.params:
        return None
    return not bound or ran.params[CHANNELS_PARAMETER] <= bound


def _mismatch_reason(
    ordered: Sequence[tuple[int, AlgorithmChoice]],
    seen: Counter[tuple[int, AlgorithmChoice]],
    wrong: Counter[tuple[int, AlgorithmChoice]],
) -> str:
    size, ran = next(each for each in ordered if wrong[each])
    return (
        f"{ran} at {format_size(size)}; {wrong.total()} of {plural(seen.total(), 'time')} not as"
        " the rule says"
    )
