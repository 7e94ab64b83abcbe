"""Acceptance of a table's rules: those stay that win against the library as its user has it.

A rule is timed at sizes all over its range, both ends included, in launches of a C program without
and with the tuning file (`tuner.validation.timing`). It stays where the file makes a call
significantly faster in the mean over all conditions, and where the call looks faster under each:
after a barrier and several times in a row, on the same buffers and on others. The overhead of the
file itself is part of every comparison.

To be significant under each condition as well is more than launches can show: four ranks on two
cores differ by 35 % from launch to launch, and of what their calls could gain 14 rounds then kept
half, instead of three quarters (resampled from 8 rounds of `python -m tests.field.headroom`). Of
rules that gain 15 %, but lose 5 % under one condition, a tenth pass (normal noise of 30 %).

The rounds of a call end early where its verdict is certain. A call wins early by a stricter
interval, so that several looks at the times hardly raise the risk of a wrong verdict (Haybittle,
British Journal of Radiology 44, 1971): of rules that gain nothing 3.1 % pass instead of 2.5 %
(normal noise of 30 %, the same under all conditions), and of rules that gain 30 % 85 % do. Launches
of more ranks than cores may differ by a factor of three: a call that is slower in one of them is
not given up for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress, groupby
from pathlib import Path

from tuner.base.progress import ProgressCallback, no_progress
from tuner.base.statistics import CONFIDENCE
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.table import MEASURED, AlgorithmChoice, Evidence, Rule, TuningTable
from tuner.formats.rules_by_ranks import all_rule_lists
from tuner.validation.timing import (
    CONDITIONS,
    LaunchOptions,
    PairedTimes,
    ShapeStarter,
    TimedCall,
    TimingProgram,
    time_pairs,
)

MAX_SIZE_RATIO = 2.0  # between consecutive sizes of a rule, unless that takes over MAX_SIZES
MAX_SIZES = 12
# A rule without an upper bound is tried up to this multiple of its largest probed size.
EXTRAPOLATION_FACTOR = 2.0
MIN_GAIN = 1.05  # geometric mean of the speedups under all conditions
MIN_ROUNDS = 3  # rounds after which a call may be dropped that certainly gains too little
SCREENING_ROUNDS = 5  # rounds after which calls are dropped that do not look faster
MAX_ROUNDS = 14  # rounds that decide about the others
CERTAINTY = 0.995  # level of the intervals by which a call wins early


@dataclass(frozen=True)
class RuleCall:
    """A call to time, and the rule that decides it, which may be a default rule."""

    rule: Rule
    nbytes: int

    @property
    def timed_call(self) -> TimedCall:
        key = self.rule.key
        return TimedCall(key.collective, key.nodes, key.ppn, self.nbytes)


@dataclass(frozen=True)
class Acceptance:
    """The result of `accept_rules`.

    calls       calls of rules other than the default
    accepted    those of them that win
    times       of the calls; those that lose early have fewer rounds
    """

    calls: tuple[RuleCall, ...]
    accepted: frozenset[RuleCall]
    times: PairedTimes


def accept_rules(
    table: TuningTable,
    operators: str,
    starter: ShapeStarter,
    program: TimingProgram,
    tuned: LaunchOptions,
    *,
    seconds: float,
    directory: Path,
    deadline: float = math.inf,
    progress: ProgressCallback = no_progress,
    on_warning: Callable[[str], None] = lambda _: None,
) -> Acceptance:
    """Time the rules for `operators` in a file that `tuned` activates.

    seconds     measuring time of each call, condition and side in a round
    deadline    `time.monotonic()` after which the rounds so far decide, if there are enough
    on_warning  called with a message about launches that failed and are repeated

    Raises ProbeError when the ranks fail again.
    """
    trials = tuple(rule_calls(table, operators))
    if not trials:
        return Acceptance(trials, frozenset(), PairedTimes())
    times = time_pairs(
        starter,
        program,
        list(dict.fromkeys(trial.timed_call for trial in trials)),
        tuned,
        library=table.library,
        launches=MAX_ROUNDS,
        seconds=seconds,
        directory=directory,
        is_decided=is_decided,
        min_launches=SCREENING_ROUNDS,
        deadline=deadline,
        progress=progress,
        on_warning=on_warning,
    )
    won = frozenset(trial for trial in trials if wins(times, trial.timed_call))
    return Acceptance(trials, won, times)


def rule_calls(table: TuningTable, operators: str) -> Iterator[RuleCall]:
    """Yield the calls at which every rule other than the default is tried."""
    for rule_list in all_rule_lists(table, operators):
        for rule in rule_list:
            if not rule.choice.is_default and rule.key.operators == operators:
                yield from (RuleCall(rule, nbytes) for nbytes in timed_sizes(rule))


def timed_sizes(rule: Rule) -> tuple[int, ...]:
    """Return the sizes at which a rule is tried, in bytes: its ends and evenly between them.

    Sizes are whole elements, for every rank where a collective has blocks. Sizes inside a range are
    not powers of two, at which libraries and caches behave unlike elsewhere.
    """
    if not rule.key.collective.has_data:
        return (PROBE_ELEMENT_BYTES,)
    item = PROBE_ELEMENT_BYTES * (rule.key.p if rule.key.collective.has_blocks else 1)
    low = -(-max(rule.start_bytes, 1) // item) * item
    probed = max(rule.evidence.nbytes, default=rule.start_bytes)
    high = (
        (
            int(rule.stop_bytes) - 1
            if rule.stop_bytes < math.inf
            else int(EXTRAPOLATION_FACTOR * probed)
        )
        // item
        * item
    )
    if high <= low:
        return (low,) if rule.start_bytes <= low < rule.stop_bytes else ()
    steps = min(max(1, math.ceil(math.log(high / low, MAX_SIZE_RATIO))), MAX_SIZES - 1)
    inside = (low * (high / low) ** (n / steps) for n in range(1, steps))
    grid = {low, high, *(_avoid_power_of_two(int(size) // item * item, item) for size in inside)}
    return tuple(sorted(size for size in grid if low <= size <= high))


def _avoid_power_of_two(nbytes: int, element_bytes: int) -> int:
    """Return the size, or the next one if it is a power of two."""
    return nbytes + element_bytes if nbytes & (nbytes - 1) == 0 else nbytes


def is_decided(times: PairedTimes, call: TimedCall) -> bool:
    """Return whether further rounds would hardly change if a call wins."""
    rounds = times.rounds(call)
    if call in times.wrong_calls:
        return True
    if rounds < MIN_ROUNDS:
        return False
    if rounds >= SCREENING_ROUNDS and any(times.speedup(call, c)[0] <= 1 for c in CONDITIONS):
        return True
    hopeless = times.mean_speedup(call)[2] < MIN_GAIN
    return hopeless or (rounds > MIN_ROUNDS and wins(times, call, CERTAINTY))


def wins(times: PairedTimes, call: TimedCall, level: float = CONFIDENCE) -> bool:
    """Return whether the file makes a call certainly faster, enough so, and under each condition.

    level   of the interval of the mean, which lies above 1
    """
    if call in times.wrong_calls or any(times.speedup(call, c)[0] <= 1 for c in CONDITIONS):
        return False
    mean, low, _ = times.mean_speedup(call, level)
    return low > 1 and mean >= MIN_GAIN


def accepted_table(
    table: TuningTable, operators: str, found: Acceptance, indivisible: Collection[Collective] = ()
) -> TuningTable:
    """Return the table with the accepted parts of its rules, and the default instead of the others.

    indivisible     collectives whose rules are kept as a whole or not at all
    """
    rules = list[Rule]()
    for key in table.keys:
        rule_list = table.rules_for(key)
        decided = key.operators == operators and any(
            not rule.choice.is_default for rule in rule_list
        )
        rules += merge_neighbours(
            _accepted_parts(rule_list, found, indivisible) if decided else iter(rule_list)
        )
    return TuningTable(table.cluster, table.library, tuple(rules), table.provenance)


def withdraw_rules(table: TuningTable, withdrawn: Collection[Rule]) -> TuningTable:
    """Return the table with the default instead of these rules, or parts of rules."""
    rules = list[Rule]()
    for key in table.keys:
        own = [part for part in withdrawn if part.key == key]
        rules += merge_neighbours(
            part for rule in table.rules_for(key) for part in _without(rule, own)
        )
    return TuningTable(table.cluster, table.library, tuple(rules), table.provenance)


def _without(rule: Rule, withdrawn: Collection[Rule]) -> Iterator[Rule]:
    """Yield what is left of a rule, and the default for its parts that are withdrawn."""
    place: float = rule.start_bytes
    for part in sorted(withdrawn, key=lambda each: each.start_bytes):
        if rule.start_bytes <= part.start_bytes < rule.stop_bytes:
            if place < part.start_bytes:
                yield part_of_rule(rule, int(place), part.start_bytes)
            yield _withdrawn(part)
            place = part.stop_bytes
    if place < rule.stop_bytes:
        yield part_of_rule(rule, int(place), rule.stop_bytes)


def part_of_rule(rule: Rule, start: int, stop: float) -> Rule:
    """Return a rule for some of its sizes, with the evidence from these and the gain of all."""
    known = rule.evidence
    kept = [start <= nbytes < stop for nbytes in known.nbytes]
    evidence = replace(
        known,
        nbytes=tuple(compress(known.nbytes, kept)),
        default_s=tuple(compress(known.default_s, kept)),
        chosen_s=tuple(compress(known.chosen_s, kept)),
        predicted_s=tuple(compress(known.predicted_s, kept)),
    )
    return replace(rule, start_bytes=start, stop_bytes=stop, evidence=evidence)


def _withdrawn(rule: Rule) -> Rule:
    seconds = rule.evidence.default_s
    evidence = replace(
        rule.evidence,
        chosen_s=seconds,
        gain=1.0,
        gain_ci95=(1.0, 1.0),
        runner_up=str(rule.choice),
        slowdown_probability=None,
    )
    return replace(rule, choice=AlgorithmChoice(), evidence=evidence)


def _accepted_parts(
    rule_list: Sequence[Rule], found: Acceptance, whole: Collection[Collective]
) -> Iterator[Rule]:
    for rule in rule_list:
        own = [trial for trial in found.calls if trial.rule == rule]
        if rule.choice.is_default:
            yield rule
        elif rule.key.collective in whole or not rule.key.collective.has_data:
            if own and found.accepted.issuperset(own):
                yield replace(rule, evidence=_evidence(rule, own, found.times))
            else:
                yield _default_rule(rule, rule.start_bytes, rule.stop_bytes, own, found.times)
        else:
            yield from _accepted_ranges(rule, own, found)


def _accepted_ranges(rule: Rule, own: Sequence[RuleCall], found: Acceptance) -> Iterator[Rule]:
    """Yield the rule for each run of neighbouring accepted sizes, and the default elsewhere.

    A single accepted size among several does not count.
    """
    place = rule.start_bytes
    for accepted, group in groupby(own, key=found.accepted.__contains__):
        run = list(group)
        lone = len(run) == 1 and len(own) > 1
        if not accepted or lone:
            continue
        start = rule.start_bytes if run[0] == own[0] else run[0].nbytes
        end = (
            rule.stop_bytes
            if run[-1] == own[-1] and rule.stop_bytes < math.inf
            else run[-1].nbytes + 1
        )
        if place < start:
            yield _default_rule(rule, place, start, own, found.times)
        yield replace(
            rule, start_bytes=start, stop_bytes=end, evidence=_evidence(rule, run, found.times)
        )
        place = int(end)
    if place < rule.stop_bytes:
        yield _default_rule(rule, place, rule.stop_bytes, own, found.times)


def _evidence(rule: Rule, run: Sequence[RuleCall], times: PairedTimes) -> Evidence:
    gains = [times.mean_speedup(trial.timed_call) for trial in run]
    mean, low, high = (_geometric_mean(column) for column in zip(*gains, strict=True))
    return Evidence(
        MEASURED,
        tuple(trial.nbytes for trial in run),
        tuple(
            _geometric_mean(times.geometric_means(trial.timed_call, tuned=False)) for trial in run
        ),
        tuple(
            _geometric_mean(times.geometric_means(trial.timed_call, tuned=True)) for trial in run
        ),
        gain=mean,
        gain_ci95=(low, high),
        runner_up=rule.evidence.runner_up,
    )


def _default_rule(
    rule: Rule, low: int, high: float, own: Sequence[RuleCall], times: PairedTimes
) -> Rule:
    """Return the default for a part of a rule that did not win there."""
    timed = {call for call, _ in times.default}
    known = [t for t in own if low <= t.nbytes < high and t.timed_call in timed]
    seconds = tuple(
        _geometric_mean(times.geometric_means(trial.timed_call, tuned=False)) for trial in known
    )
    evidence = Evidence(
        MEASURED,
        tuple(trial.nbytes for trial in known),
        seconds,
        seconds,
        runner_up=str(rule.choice),
    )
    return replace(
        rule, start_bytes=low, stop_bytes=high, choice=AlgorithmChoice(), evidence=evidence
    )


def merge_neighbours(rules: Iterator[Rule]) -> list[Rule]:
    """Return the rules with neighbours of the same choice merged."""
    return [_merge_rules(list(group)) for _, group in groupby(rules, key=lambda rule: rule.choice)]


def _merge_rules(rules: Sequence[Rule]) -> Rule:
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
    return replace(first, stop_bytes=last.stop_bytes, evidence=evidence)


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))
