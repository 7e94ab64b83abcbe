"""Rules of a table for NCCL against what programs that followed it ran, by logs and the Inspector.

A rule is confirmed at the sizes at which it was seen at work, and at no others. One seen to run
something else, even once, is refuted; one of which no call was seen is neither. Rules that leave
the choice to NCCL are passed over: no log tells whether it was NCCL that chose. So are rules for
any operator where the table has others for commutative ones, which stand in NCCL's file instead. A
number of channels is the most that NCCL may use, so that fewer confirm a rule, too.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

from tuner.base.errors import InputError
from tuner.base.progress import Counted, quietly
from tuner.base.units import format_size, plural
from tuner.core.table import Choice, Rule, TuningTable
from tuner.formats.rules_by_ranks import by_place
from tuner.importers.inspector_files import begins_inspector, reader_of
from tuner.importers.streaming import streamed_files
from tuner.validation.nccl_logs import CHANNELS, Evidence, Executed
from tuner.validation.nccl_processes import Shape, TooManyCallsError
from tuner.validation.validation import RuleProof

UNSEEN = "not seen"
REPLACED = "not in NCCL's file: the rules for commutative operators are"
NO_CHANNELS = "the files do not say on how many channels; NCCL's own log does"


def read_evidence(
    files: Sequence[Path],
    shape: Shape | None = None,
    progress: Counted = quietly,
    found: Collection[Path] = (),
) -> Evidence:
    """Return what logs of NCCL and files of its Inspector tell.

    shape       ranks and nodes of communicators of which a log does not say it
    progress    in bytes
    found       those of the files that nobody named: where one is no log, or a damaged one, its
                rest is passed over and `unread` of the evidence says why

    Raises InputError for what cannot be read, and where nothing tells of any call.
    """
    evidence = Evidence(shape)
    for path, begin, lines in streamed_files(files, progress):
        try:
            if begins_inspector(begin.lstrip()):
                for record in reader_of(begin).records(lines):
                    evidence.read_record(record)
            else:
                evidence.read_log(lines)
        except InputError as reason:
            if path not in found or isinstance(reason, TooManyCallsError):
                raise InputError(f"{path}: {reason}") from None
            evidence.unread.append(f"{path}: {reason}")
    if not evidence.lines:
        raise InputError(
            f"{files[0]}: no line tells what NCCL ran: run the program with NCCL_DEBUG=INFO"
            " NCCL_DEBUG_SUBSYS=INIT,TUNING and give what rank 0 wrote"
        )
    return evidence


def prove(table: TuningTable, evidence: Evidence) -> list[RuleProof]:
    """Return what is known of each rule in NCCL's file, which are those that name an algorithm."""
    seen: dict[Rule, list[tuple[Executed, int]]] = defaultdict(list)
    ladders: dict[tuple[str, int, int], list[tuple[Rule, ...]]] = defaultdict(list)
    for key, ladder in by_place(table).items():
        ladders[key.collective, key.nodes, key.p].append(ladder)
    for executed, times in evidence.executed():
        for ladder in ladders.get((executed.collective, executed.nodes, executed.p), ()):
            place = bisect.bisect_right(ladder, executed.nbytes, key=lambda rule: rule.lo) - 1
            seen[ladder[place]].append((executed, times))
    return [_proof(rule, seen[rule]) for rule in _in_file(table) if not rule.choice.is_default]


def replaced(table: TuningTable) -> list[RuleProof]:
    """Return those rules in whose place NCCL's file has rules for commutative operators."""
    held = set(_in_file(table))
    return [RuleProof.untried(rule, REPLACED) for rule in table.rules if rule not in held]


def _in_file(table: TuningTable) -> list[Rule]:
    held = {rule for ladder in by_place(table).values() for rule in ladder}
    return [rule for rule in table.rules if rule in held]


def _proof(rule: Rule, calls: Sequence[tuple[Executed, int]]) -> RuleProof:
    bound = rule.choice.params.get(CHANNELS, 0)
    unsure = [call for call, _ in calls if _agrees(rule.choice, call.choice) is None]
    seen = Counter[tuple[int, Choice]]()
    wrong = Counter[tuple[int, Choice]]()
    for call, times in calls:
        if (agrees := _agrees(rule.choice, call.choice)) is not None:
            ran = call.choice if bound else Choice(call.choice.algorithm)
            seen[call.nbytes, ran] += times
            wrong[call.nbytes, ran] += 0 if agrees else times
    if not seen:
        return RuleProof.untried(rule, NO_CHANNELS if unsure else UNSEEN)
    ordered = sorted(seen, key=lambda each: (each[0], str(each[1])))
    sizes, executed = tuple(size for size, _ in ordered), tuple(ran for _, ran in ordered)
    reason = _reason(ordered, seen, wrong) if wrong.total() else ""
    return RuleProof(rule, sizes, executed, not reason, reason)


def _agrees(wanted: Choice, ran: Choice) -> bool | None:
    """Return whether a call ran as wanted, None where that cannot be told."""
    if wanted.algorithm != ran.algorithm:
        return False
    bound = wanted.params.get(CHANNELS, 0)
    if bound and CHANNELS not in ran.params:
        return None
    return not bound or ran.params[CHANNELS] <= bound


def _reason(
    ordered: Sequence[tuple[int, Choice]],
    seen: Counter[tuple[int, Choice]],
    wrong: Counter[tuple[int, Choice]],
) -> str:
    size, ran = next(each for each in ordered if wrong[each])
    return (
        f"{ran} at {format_size(size)}; {wrong.total()} of {plural(seen.total(), 'time')} not as"
        " the rule says"
    )
