"""Which rules of a table stay: those that win in full, against the library as its user has it.

A rule is timed at sizes all over its range, both ends included, in launches of a C program without
and with the tuning file (`tuner.validation.timing`). It stays where the file makes a call
significantly faster under every condition: after a barrier and several times in a row, on the same
buffers and on others. What a file brings with it is in every comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from tuner.base.progress import Counted, quietly
from tuner.core.collective import Collective
from tuner.core.table import MEASURED, Choice, Evidence, Rule, TuningTable
from tuner.formats.rules_by_ranks import every_ladder
from tuner.validation.timing import CONDITIONS, Side, Starter, TimedCall, Times, TimingProgram
from tuner.validation.timing import time_rounds as time_calls

ITEM = 4  # bytes of the elements of timed calls
STEP = math.sqrt(2)  # from one tried size of a rule to the next, at most, up to MOST sizes
MOST = 16
BEYOND = 2.0  # times the largest probed size, up to which a rule without an upper bound is tried
MIN_GAIN = 1.05  # the geometric mean over all conditions
SCREENING, ROUNDS = 3, 7  # rounds that drop what does not look faster, and those that decide


@dataclass(frozen=True)
class Trial:
    """A call to time, and the rule that decides it, which may be the default's."""

    rule: Rule
    nbytes: int

    @property
    def call(self) -> TimedCall:
        """Return what is timed."""
        key = self.rule.key
        return TimedCall(key.collective, key.nodes, key.ppn, self.nbytes)


@dataclass(frozen=True)
class Acceptance:
    """What was found.

    trials      of rules other than the default
    accepted    those of them that win
    times       of all calls that reached the deciding rounds
    """

    trials: tuple[Trial, ...]
    accepted: frozenset[Trial]
    times: Times


def accept(
    table: TuningTable,
    operators: str,
    starter: Starter,
    program: TimingProgram,
    tuned: Side,
    *,
    seconds: float,
    directory: Path,
    progress: Counted = quietly,
    tell: Callable[[str], None] = lambda _: None,
) -> Acceptance:
    """Time the rules that hold for `operators` in a file, which `tuned` activates.

    seconds     for each call, condition and side in a round
    tell        of launches that failed and are repeated

    Raises ProbeError when the ranks fail again.
    """
    trials = tuple(trials_of(table, operators))

    def timed(calls: Sequence[Trial], rounds: int, done: int, total: int) -> Times:
        return time_calls(
            starter,
            program,
            list(dict.fromkeys(trial.call for trial in calls)),
            tuned,
            library=table.library,
            rounds=rounds,
            seconds=seconds,
            directory=directory,
            progress=lambda now, of: progress(done + round(rounds * now / of), total),
            tell=tell,
        )

    total = SCREENING + ROUNDS
    screened = timed(trials, SCREENING, 0, total) if trials else Times()
    promising = [trial for trial in trials if _looks_faster(screened, trial.call)]
    if not promising:
        return Acceptance(trials, frozenset(), screened)
    times = timed(promising, ROUNDS, SCREENING, total)
    won = frozenset(trial for trial in promising if _wins(times, trial.call))
    return Acceptance(trials, won, times)


def trials_of(table: TuningTable, operators: str) -> Iterator[Trial]:
    """Yield the calls at which every rule other than the default is tried."""
    for ladder in every_ladder(table, operators):
        for rule in ladder:
            if not rule.choice.is_default and rule.key.operators == operators:
                yield from (Trial(rule, nbytes) for nbytes in sizes_of(rule))


def sizes_of(rule: Rule) -> tuple[int, ...]:
    """Return the sizes at which a rule is tried, in bytes: its ends and evenly between them.

    Sizes are whole elements, for every rank where buffers are divided; sizes inside a range are no
    powers of two, at which libraries and caches behave as nowhere else.
    """
    item = ITEM * (rule.key.p if rule.key.collective.divided else 1)
    low = -(-max(rule.lo, 1) // item) * item
    probed = max(rule.evidence.nbytes, default=rule.lo)
    high = (int(rule.hi) - 1 if rule.hi < math.inf else int(BEYOND * probed)) // item * item
    if high <= low:
        return (low,) if rule.lo <= low < rule.hi else ()
    steps = min(max(1, math.ceil(math.log(high / low, STEP))), MOST - 1)
    inside = (low * (high / low) ** (n / steps) for n in range(1, steps))
    grid = {low, high, *(_uneven(int(size) // item * item, item) for size in inside)}
    return tuple(sorted(size for size in grid if low <= size <= high))


def _uneven(nbytes: int, item: int) -> int:
    """Return the size, or the next one if it is a power of two."""
    return nbytes + item if nbytes & (nbytes - 1) == 0 else nbytes


def _looks_faster(times: Times, call: TimedCall) -> bool:
    return call not in times.wrong and all(times.gain(call, c)[0] > 1 for c in CONDITIONS)


def _wins(times: Times, call: TimedCall) -> bool:
    faster = call not in times.wrong and all(times.gain(call, c)[1] > 1 for c in CONDITIONS)
    return faster and times.mean_gain(call)[0] >= MIN_GAIN


def accepted_table(
    table: TuningTable, operators: str, found: Acceptance, whole: Collection[Collective] = ()
) -> TuningTable:
    """Return the table with the accepted parts of its rules, the default instead of the others.

    whole   collectives of which a rule stays as it is or not at all
    """
    rules = list[Rule]()
    for key in table.keys:
        ladder = table.ladder(key)
        decided = key.operators == operators and any(not rule.choice.is_default for rule in ladder)
        rules += _merged(_pieces(ladder, found, whole) if decided else iter(ladder))
    return TuningTable(table.cluster, table.library, tuple(rules), table.provenance)


def without(table: TuningTable, withdrawn: Collection[Rule]) -> TuningTable:
    """Return the table with the default instead of these rules."""
    rules = list[Rule]()
    for key in table.keys:
        ladder = table.ladder(key)
        rules += _merged(_withdrawn(rule) if rule in withdrawn else rule for rule in ladder)
    return TuningTable(table.cluster, table.library, tuple(rules), table.provenance)


def _withdrawn(rule: Rule) -> Rule:
    seconds = rule.evidence.default_s
    evidence = replace(
        rule.evidence, chosen_s=seconds, gain=1.0, gain_ci95=(1.0, 1.0), runner_up=str(rule.choice)
    )
    return replace(rule, choice=Choice(), evidence=evidence)


def _pieces(
    ladder: Sequence[Rule], found: Acceptance, whole: Collection[Collective]
) -> Iterator[Rule]:
    for rule in ladder:
        own = [trial for trial in found.trials if trial.rule == rule]
        if rule.choice.is_default:
            yield rule
        elif rule.key.collective in whole:
            if own and found.accepted.issuperset(own):
                yield replace(rule, evidence=_evidence(rule, own, found.times))
            else:
                yield _rejected(rule, rule.lo, rule.hi, own, found.times)
        else:
            yield from _cut(rule, own, found)


def _cut(rule: Rule, own: Sequence[Trial], found: Acceptance) -> Iterator[Rule]:
    """Yield a rule from the first to the last of neighbouring sizes that were accepted, and the
    default before, between and after.
    """
    place = rule.lo
    for accepted, group in groupby(own, key=found.accepted.__contains__):
        run = list(group)
        lone = len(run) == 1 and len(own) > 1
        if not accepted or lone:
            continue
        start = rule.lo if run[0] == own[0] else run[0].nbytes
        end = rule.hi if run[-1] == own[-1] and rule.hi < math.inf else run[-1].nbytes + 1
        if place < start:
            yield _rejected(rule, place, start, own, found.times)
        yield replace(rule, lo=start, hi=end, evidence=_evidence(rule, run, found.times))
        place = int(end)
    if place < rule.hi:
        yield _rejected(rule, place, rule.hi, own, found.times)


def _evidence(rule: Rule, run: Sequence[Trial], times: Times) -> Evidence:
    gains = [times.mean_gain(trial.call) for trial in run]
    mean, low, high = (_geometric(column) for column in zip(*gains, strict=True))
    return Evidence(
        MEASURED,
        tuple(trial.nbytes for trial in run),
        tuple(_geometric(times.typical(trial.call, tuned=False)) for trial in run),
        tuple(_geometric(times.typical(trial.call, tuned=True)) for trial in run),
        gain=mean,
        gain_ci95=(low, high),
        runner_up=rule.evidence.runner_up,
    )


def _rejected(rule: Rule, low: int, high: float, own: Sequence[Trial], times: Times) -> Rule:
    """Return the default for a part of a rule that did not win there."""
    timed = {call for call, _ in times.default}
    known = [t for t in own if low <= t.nbytes < high and t.call in timed]
    seconds = tuple(_geometric(times.typical(trial.call, tuned=False)) for trial in known)
    evidence = Evidence(
        MEASURED,
        tuple(trial.nbytes for trial in known),
        seconds,
        seconds,
        runner_up=str(rule.choice),
    )
    return replace(rule, lo=low, hi=high, choice=Choice(), evidence=evidence)


def _merged(rules: Iterator[Rule]) -> list[Rule]:
    """Return the rules with neighbours of one choice as one."""
    return [_one(list(group)) for _, group in groupby(rules, key=lambda rule: rule.choice)]


def _one(rules: Sequence[Rule]) -> Rule:
    first, last = rules[0], rules[-1]
    if len(rules) == 1:
        return first
    known = [rule.evidence for rule in rules]
    timed = [each for each in known if len(each.default_s) == len(each.nbytes)]
    evidence = replace(
        first.evidence,
        basis=next((each.basis for each in timed if each.nbytes), first.evidence.basis),
        nbytes=tuple(n for each in timed for n in each.nbytes),
        default_s=tuple(s for each in timed for s in each.default_s),
        chosen_s=tuple(s for each in timed for s in each.chosen_s),
        predicted_s=(),
    )
    return replace(first, hi=last.hi, evidence=evidence)


def _geometric(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))
