"""Held-out timing: what a table gains at sizes not used to make it or to accept its rules.

Two launches of the real library take turns, one as its user has it and one with the tuning file and
all that belongs to it (`tuner.validation.timing`). Calls that the table leaves to the default are
timed like those that it changes: they run the same code on both sides, apart from the overhead of
the file itself.

A machine may behave differently from when a rule was accepted: where a rule does not win again it
is withdrawn, between the next smaller and the next larger size at which it was accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from tuner.base.progress import ProgressCallback, no_progress
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.speedup import holm, mean_over_launches
from tuner.core.table import Rule, TuningTable
from tuner.formats.rules_by_ranks import all_rule_lists
from tuner.validation.acceptance import CERTAINTY, RuleCall, part_of_rule, timed_sizes
from tuner.validation.timing import (
    CONDITIONS,
    LaunchOptions,
    PairedTimes,
    ShapeStarter,
    TimedCall,
    TimingProgram,
    time_pairs,
)

MAX_SIZES_PER_RULE = 3
MIN_CONTROL_SIZES = 4  # smallest number of sizes left to the default that are timed in a rule list
MIN_CONTROL_BYTES = 16  # smallest of these sizes
MAX_CONTROL_BYTES = 1 << 22  # largest of these sizes
MAX_HELDOUT_ROUNDS = 10  # rounds of launches
MIN_HELDOUT_ROUNDS = 4  # rounds after which a verdict may be certain
# Relative half-width of the interval of a call that is left to the default, once it includes 1.
CONTROL_HALF_WIDTH = 0.1


@dataclass(frozen=True)
class ConditionResult:
    """The result of one call under one condition. Times are typical ones, in seconds.

    ratio       default_s / tuned_s
    ci95        its 95 % interval
    slower      whether the call is significantly slower with the table, after Holm's correction
                over all calls and conditions
    """

    name: str
    default_s: float
    tuned_s: float
    ratio: float
    ci95: tuple[float, float]
    slower: bool = False


@dataclass(frozen=True)
class HeldoutResult:
    """The result of one call. Times are typical ones, in seconds.

    algorithm   the table's choice for the call
    default_s   geometric mean over the conditions, as is `tuned_s`
    ratio       default_s / tuned_s: above 1 the table is faster
    ci95        its 95 % interval, over rounds of launches
    wrong       whether a result was wrong
    undecided   whether there was no time for further rounds
    """

    collective: Collective
    nodes: int
    ppn: int
    p: int
    nbytes: int
    algorithm: str
    default_s: float
    tuned_s: float
    ratio: float
    ci95: tuple[float, float]
    conditions: tuple[ConditionResult, ...]
    wrong: bool = False
    undecided: bool = False

    @property
    def timed_call(self) -> TimedCall:
        return TimedCall(self.collective, self.nodes, self.ppn, self.nbytes)

    @property
    def is_win(self) -> bool:
        """Return whether it is significantly faster, and looks faster under each condition."""
        faster = self.ci95[0] > 1 and all(each.ratio > 1 for each in self.conditions)
        return faster and not self.wrong


def heldout_calls(
    table: TuningTable,
    operators: str = "any",
    used: Collection[TimedCall] = (),
    *,
    controls: bool = True,
) -> list[RuleCall]:
    """Return the calls to compare: of each rule other than the default, and as many of the default.

    operators   class of operators whose rules apply to sums in the table's file
    used        calls that were compared before, whose sizes are avoided
    controls    whether to compare calls of the default, too
    """
    found = list[RuleCall]()
    for rule_list in all_rule_lists(table, operators):
        changed = [rule for rule in rule_list if not rule.choice.is_default]
        mine = [
            point for rule in changed for point in _heldout_calls_of(rule, MAX_SIZES_PER_RULE, used)
        ]
        left = [
            rule
            for rule in rule_list
            if rule.choice.is_default and rule.start_bytes < MAX_CONTROL_BYTES
        ]
        rest = left if controls else []
        each = -(-max(len(mine), MIN_CONTROL_SIZES) // max(len(rest), 1))
        found += mine + [point for rule in rest for point in _heldout_calls_of(rule, each, used)]
    return found


def _heldout_calls_of(rule: Rule, number: int, used: Collection[TimedCall]) -> Iterator[RuleCall]:
    """Yield calls of a rule, spread evenly between the sizes already used.

    Without data all calls are alike, and one of them is compared again.
    """
    if not rule.key.collective.has_data:
        yield from (RuleCall(rule, nbytes) for nbytes in timed_sizes(rule))
        return
    least = rule if not rule.choice.is_default else _control_range(rule)
    before = {call.nbytes for call in used if RuleCall(rule, call.nbytes).timed_call == call}
    known = sorted({*timed_sizes(least), *rule.evidence.nbytes, *_bounds(least), *before})
    between = [
        size
        for low, high in pairwise(known)
        if (size := heldout_size(low, high, rule)) > low
        and rule.start_bytes <= size < rule.stop_bytes
    ]
    step = max(1.0, len(between) / number)
    chosen = (between[int(step * n)] for n in range(min(number, len(between))))
    yield from (RuleCall(rule, nbytes) for nbytes in chosen)


def _control_range(rule: Rule) -> Rule:
    """Return the part of a default rule in which calls are compared."""
    return replace(
        rule,
        start_bytes=max(rule.start_bytes, MIN_CONTROL_BYTES),
        stop_bytes=min(rule.stop_bytes, float(MAX_CONTROL_BYTES)),
    )


def _bounds(rule: Rule) -> list[int]:
    return (
        [rule.start_bytes, int(rule.stop_bytes) - 1]
        if rule.stop_bytes < math.inf
        else [rule.start_bytes]
    )


def heldout_size(low: int, high: int, rule: Rule) -> int:
    """Return a size between two others: whole elements, if possible not a power of two."""
    item = PROBE_ELEMENT_BYTES * (rule.key.p if rule.key.collective.has_blocks else 1)
    size = int(math.sqrt(low * high)) // item * item
    return size + item if size & (size - 1) == 0 and size + item < high else size


def compare_heldout(
    table: TuningTable,
    starter: ShapeStarter,
    program: TimingProgram,
    tuned: LaunchOptions,
    *,
    operators: str = "any",
    used: Collection[TimedCall] = (),
    controls: bool = True,
    seconds: float,
    directory: Path,
    deadline: float = math.inf,
    progress: ProgressCallback = no_progress,
    on_warning: Callable[[str], None] = lambda _: None,
) -> list[HeldoutResult]:
    """Compare tuned with default times at every one of the `heldout_calls`.

    tuned       options of a launch that follows the table's file
    operators   as in `heldout_calls`, like `used` and `controls`
    seconds     measuring time of each call, condition and side in a round
    deadline    `time.monotonic()` after which the rounds so far count, if there are enough
    on_warning  called with a message about launches that failed and are repeated

    Raises ProbeError when the ranks fail again.
    """
    wanted = heldout_calls(table, operators, used, controls=controls)
    if not wanted:
        return []
    controlled = {point.timed_call for point in wanted if point.rule.choice.is_default}
    times = time_pairs(
        starter,
        program,
        [point.timed_call for point in wanted],
        tuned,
        library=table.library,
        launches=MAX_HELDOUT_ROUNDS,
        seconds=seconds,
        directory=directory,
        is_decided=lambda times, call: is_decided(times, call, call in controlled),
        min_launches=MIN_HELDOUT_ROUNDS,
        deadline=deadline,
        progress=progress,
        on_warning=on_warning,
    )
    compared = [(point.timed_call, name) for point in wanted for name in CONDITIONS]
    rejected = holm([times.not_slower_p_value(*one) for one in compared])
    slower = {one for one, sure in zip(compared, rejected, strict=True) if sure}
    return [_heldout_result(point, times, slower) for point in wanted]


def is_decided(times: PairedTimes, call: TimedCall, is_control: bool) -> bool:
    """Return whether further rounds would hardly change the verdict on a call.

    It is certainly faster, or it is a control that is about as fast as the default and not slower
    under any condition.
    """
    if times.rounds(call) < MIN_HELDOUT_ROUNDS or call in times.wrong_calls:
        return False
    if is_control:
        _, low, high = times.mean_speedup(call)
        slower = any(times.speedup(call, name)[2] < 1 for name in CONDITIONS)
        return low <= 1 <= high <= low * (1 + CONTROL_HALF_WIDTH) ** 2 and not slower
    faster = all(times.speedup(call, name)[0] > 1 for name in CONDITIONS)
    return faster and times.mean_speedup(call, CERTAINTY)[1] > 1


def losing_parts(
    table: TuningTable,
    operators: str,
    found: Sequence[HeldoutResult],
    indivisible: Collection[Collective] = (),
) -> list[Rule]:
    """Return the parts of rules other than the default around compared calls that do not win.

    Such a part ends at the next sizes that the rule was accepted at. A rule is lost as a whole that
    gives a wrong result or may not be divided, and so is what is left of it without a call that
    wins again.
    """
    lost = list[Rule]()
    for rule_list in all_rule_lists(table, operators):
        for rule in rule_list:
            results = list(_results_of(rule, found))
            if rule.choice.is_default or all(one.is_win for one in results):
                continue
            divides = rule.key.collective not in indivisible
            if divides and not any(one.wrong for one in results):
                lost += _parts_around_losses(rule, results)
            else:
                lost.append(rule)
    return lost


def _parts_around_losses(rule: Rule, results: Sequence[HeldoutResult]) -> Iterator[Rule]:
    """Yield the parts of a rule that lose."""
    place: float = rule.start_bytes
    for start, stop in _winning_ranges(rule, results):
        if place < start:
            yield part_of_rule(rule, int(place), start)
        place = stop
    if place < rule.stop_bytes:
        yield part_of_rule(rule, int(place), rule.stop_bytes)


def _winning_ranges(rule: Rule, results: Sequence[HeldoutResult]) -> Iterator[tuple[int, float]]:
    """Yield the first byte of each range in which a rule stays, and the one behind the last."""
    lost = [one.nbytes for one in results if not one.is_win]
    edges = (rule.start_bytes, *rule.evidence.nbytes, rule.stop_bytes)
    for stays, group in groupby(
        pairwise(edges), key=lambda gap: not any(gap[0] <= nbytes <= gap[1] for nbytes in lost)
    ):
        gaps = list(group)
        low, high = int(gaps[0][0]), gaps[-1][1]
        if stays and any(one.is_win and low <= one.nbytes <= high for one in results):
            yield low, high if high == rule.stop_bytes else high + 1


def _results_of(rule: Rule, found: Sequence[HeldoutResult]) -> Iterator[HeldoutResult]:
    """Yield the results of a rule's calls."""
    return (
        one
        for one in found
        if rule.start_bytes <= one.nbytes < rule.stop_bytes
        and RuleCall(rule, one.nbytes).timed_call == one.timed_call
    )


def _heldout_result(
    point: RuleCall, times: PairedTimes, slower: Container[tuple[TimedCall, str]]
) -> HeldoutResult:
    call, key = point.timed_call, point.rule.key
    default_s, tuned_s = (_typical(times.geometric_means(call, tuned)) for tuned in (False, True))
    ratio, low, high = times.mean_speedup(call)
    return HeldoutResult(
        key.collective,
        key.nodes,
        key.ppn,
        key.p,
        point.nbytes,
        str(point.rule.choice),
        default_s,
        tuned_s,
        ratio,
        (low, high),
        tuple(_condition(call, name, times, (call, name) in slower) for name in CONDITIONS),
        wrong=call in times.wrong_calls,
        undecided=call in times.undecided,
    )


def _condition(call: TimedCall, name: str, times: PairedTimes, slower: bool) -> ConditionResult:
    default_s, tuned_s = (_typical(side[call, name]) for side in (times.default, times.tuned))
    ratio, low, high = times.speedup(call, name)
    return ConditionResult(name, default_s, tuned_s, ratio, (low, high), slower)


def _typical(rounds: Sequence[float]) -> float:
    return mean_over_launches([[one] for one in rounds])[0]


def heldout_record(found: HeldoutResult) -> dict[str, Any]:
    """Return the record of a comparison for a report."""
    made: Mapping[str, Any] = asdict(found)
    conditions = {each["name"]: {**each, "ci95": list(each["ci95"])} for each in made["conditions"]}
    for each in conditions.values():
        del each["name"]
    return {
        **made,
        "collective": str(found.collective),
        "ci95": list(found.ci95),
        "conditions": conditions,
    }
