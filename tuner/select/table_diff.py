"""Differences between two tables, with the reason and gain of each change."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from tuner.base.atomic_io import encode_infinities
from tuner.base.errors import InputError
from tuner.base.units import format_size
from tuner.core.collective import Collective
from tuner.core.path_classes import omit_default_placement
from tuner.core.table import (
    MEASURED,
    NO_EVIDENCE,
    OPERATORS,
    SIMULATED,
    AlgorithmChoice,
    Evidence,
    Rule,
    RuleKey,
    TuningTable,
)

LEAVES_DEFAULT = "leaves the default"
RETURNS_TO_DEFAULT = "returns to the default"
OTHER_ALGORITHM = "other algorithm"
_NO_EVIDENCE = Evidence(NO_EVIDENCE)
MAX_LOG = math.log(sys.float_info.max)


@dataclass(frozen=True)
class _Change:
    """Another rule for calls of [start_bytes, stop_bytes) under `key`.

    before, after   the rules in force there; in a table without rules for the call, the default
                    without evidence
    """

    key: RuleKey
    start_bytes: int
    stop_bytes: float
    before: Rule
    after: Rule


@dataclass(frozen=True)
class RuleChange(_Change):
    """Another choice.

    gain            how many times faster the calls become, at the sizes in the range that support
                    both choices; NaN without such a size: then a crossover between probed sizes has
                    moved
    interval        95 % interval of the gain
    constraints     constraints of the later table (`Constraints.record`)
    """

    gain: float
    interval: tuple[float, float]
    constraints: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`LEAVES_DEFAULT`, `RETURNS_TO_DEFAULT` or `OTHER_ALGORITHM`."""
        if self.before.choice.is_default:
            return LEAVES_DEFAULT
        return RETURNS_TO_DEFAULT if self.after.choice.is_default else OTHER_ALGORITHM

    @property
    def has_gain(self) -> bool:
        """Return whether sizes in the range support both choices."""
        return not math.isnan(self.gain)

    @property
    def reason(self) -> str:
        """Return the reason for the change, from the evidence, in words."""
        if self.kind == RETURNS_TO_DEFAULT:
            return f"{self._return_reason}; before, {_describe_rule(self.before)}"
        if self.kind == LEAVES_DEFAULT:
            return _describe_rule(self.after)
        return f"{_describe_rule(self.after)}; before, {_describe_rule(self.before)}"

    @property
    def _return_reason(self) -> str:
        """Return why the default is back: the old evidence no longer holds, or was not renewed."""
        evidence, there = self.after.evidence, _format_sizes(self.after.evidence.nbytes)
        alone = self.constraints.get("commutative_only") and self.key.operators == "any"
        if alone and Collective(self.key.collective).is_reduction:
            return "the new table has rules for commutative operators alone"
        if not evidence.nbytes:
            return "nothing was measured there"
        if evidence.basis != MEASURED:
            each = "" if len(evidence.nbytes) == 1 else "every size of "
            return (
                f"not measured at {each}{there} for the new table, and nothing allowed is believed"
                " to be faster than the default by enough"
            )
        told = self.before.evidence
        spoke = [nbytes for nbytes in told.nbytes if self.start_bytes <= nbytes < self.stop_bytes]
        if told.basis == MEASURED and spoke and not set(spoke) & set(evidence.nbytes):
            return f"not measured again at {_format_sizes(spoke)}, and the default holds at {there}"
        if not evidence.runner_up and len(evidence.nbytes) == 1:
            return f"nothing allowed was measured again at {there} but the default"
        none = f"of what was measured at {there} nothing allowed is surely faster than the default"
        most = self.constraints.get("rules")
        if not most:
            return none
        left = f"of {most} rules at most none was left for it"
        sure = self._same_evidence and {*self.constraints} == {"rules"}
        return left if sure else f"{none}, or {left}"

    @property
    def _same_evidence(self) -> bool:
        """Return whether both tables have one measured default time for a size in the range."""
        before, after = (
            dict(zip(rule.evidence.nbytes, rule.evidence.default_s, strict=False))
            for rule in (self.before, self.after)
        )
        return bool(before.items() & after.items())


@dataclass(frozen=True)
class EvidenceChange(_Change):
    """Other evidence for the same choice."""

    @property
    def has_other_basis(self) -> bool:
        """Return whether the basis differs too, such as measured instead of simulated."""
        return self.before.evidence.basis != self.after.evidence.basis

    @property
    def reason(self) -> str:
        was, now = (_describe_basis(rule) for rule in (self.before, self.after))
        told = f"now {now}, was {was}" if self.has_other_basis else f"{now} in both tables, anew"
        if self.after.choice.is_default:
            return told
        return f"{told}; {_describe_rule(self.after)}; before, {_describe_rule(self.before)}"


@dataclass(frozen=True)
class TableDiff:
    """The differences between two tables.

    keys                of the calls that at least one of the tables has rules for
    evidence_changes    ranges that are decided alike, on other evidence
    """

    changes: tuple[RuleChange, ...]
    keys: tuple[RuleKey, ...]
    evidence_changes: tuple[EvidenceChange, ...] = ()

    @property
    def n_unchanged(self) -> int:
        """Return the number of calls without changes at any size."""
        return len(set(self.keys) - {change.key for change in self.changes})

    @property
    def mean_gain(self) -> float:
        """Return the geometric mean over the changes whose gain is known; NaN without any."""
        logs = [math.log(change.gain) for change in self.changes if change.has_gain]
        return math.exp(fmean(logs)) if logs else math.nan


def diff_tables(old: TuningTable, new: TuningTable) -> TableDiff:
    """Return the differences for every call that at least one table has rules for.

    A change for any operator is not repeated for commutative ones. Raises InputError for tables of
    different libraries.
    """
    if old.library.split()[:1] != new.library.split()[:1]:
        raise InputError(
            f"one table is for {old.library}, the other for {new.library}: their defaults are not"
            " the same, so compare tables of one library"
        )
    keys = _keys(old, new)
    changes: dict[tuple[object, ...], RuleChange] = {}
    evidence = list[EvidenceChange]()
    wishes = _constraints_of(new)
    for key in keys:
        for place in _ranges(visible_rules(key, old), visible_rules(key, new)):
            lo, hi, before, after = place
            if before.choice != after.choice:
                told = (replace(key, operators="any"), lo, hi, before.choice, after.choice)
                changes.setdefault(told, RuleChange(key, *place, *_gain(*place), wishes))
            elif before.evidence != after.evidence:
                evidence.append(EvidenceChange(key, *place))
    return TableDiff(tuple(changes.values()), keys, tuple(evidence))


def table_diff_record(diff: TableDiff) -> dict[str, Any]:
    """Return the differences as a JSON record, with infinities as "inf"."""
    return {
        "gain": _nan_to_none(diff.mean_gain),
        "calls": len(diff.keys),
        "calls_kept": diff.n_unchanged,
        "changes": [_record(change) for change in diff.changes],
        "evidence_changes": [_evidence_record(change) for change in diff.evidence_changes],
    }


def _record(change: RuleChange) -> dict[str, Any]:
    return {
        **_range_record(change),
        "kind": change.kind,
        "before": asdict(change.before.choice),
        "after": asdict(change.after.choice),
        "gain": encode_infinities(_nan_to_none(change.gain)),
        "gain_ci95": encode_infinities([_nan_to_none(each) for each in change.interval]),
        "why": change.reason,
    }


def _evidence_record(change: EvidenceChange) -> dict[str, Any]:
    return {
        **_range_record(change),
        "choice": asdict(change.after.choice),
        "basis_before": change.before.evidence.basis,
        "basis": change.after.evidence.basis,
        "why": change.reason,
    }


def _range_record(change: _Change) -> dict[str, Any]:
    return {
        **omit_default_placement(asdict(change.key)),
        "start_bytes": change.start_bytes,
        "stop_bytes": encode_infinities(change.stop_bytes),
    }


def _nan_to_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _keys(*tables: TuningTable) -> tuple[RuleKey, ...]:
    """Return the keys of the tables.

    Keys for commutative operators are included only if some table has different rules for them.
    """
    found: dict[RuleKey, None] = {}
    for key in sorted({key for table in tables for key in table.keys}, key=_sort_key):
        safe = replace(key, operators="any")
        if key == safe or any(
            visible_rules(key, table) != visible_rules(safe, table) for table in tables
        ):
            found[key] = None
    return tuple(found)


def _sort_key(key: RuleKey) -> tuple[object, ...]:
    operators = OPERATORS.index(key.operators)
    return (key.collective, key.memory, key.p, key.nodes, key.placement, operators)


def visible_rules(key: RuleKey, table: TuningTable) -> Sequence[Rule]:
    """Return the rules that apply to calls under `key`."""
    return (
        table.rules_for(key)
        or table.rules_for(replace(key, operators="any"))
        or (Rule(key, 0, math.inf, AlgorithmChoice(), _NO_EVIDENCE),)
    )


def _constraints_of(table: TuningTable) -> Mapping[str, Any]:
    """Return the constraints in the provenance; an empty mapping if absent or invalid."""
    found = table.provenance.get("constraints")
    return found if isinstance(found, Mapping) else {}


def _ranges(old: Sequence[Rule], new: Sequence[Rule]) -> Iterator[tuple[int, float, Rule, Rule]]:
    """Yield the ranges of sizes in which one rule of each table applies, with both."""
    bounds = sorted({rule.start_bytes for rule in (*old, *new)})
    for lo, hi in pairwise([*bounds, math.inf]):
        yield int(lo), hi, _rule_at(old, lo), _rule_at(new, lo)


def _rule_at(rules: Sequence[Rule], nbytes: float) -> Rule:
    return next(rule for rule in rules if rule.start_bytes <= nbytes < rule.stop_bytes)


def _gain(
    start_bytes: int, stop_bytes: float, before: Rule, after: Rule
) -> tuple[float, tuple[float, float]]:
    """Return the gain of `after` over the default divided by that of `before`, with its interval.

    Each gain is from its own table's evidence; their errors are independent.
    """
    known = [_log_gains(rule) for rule in (before, after) if not rule.choice.is_default]
    sizes = [n for n in set.intersection(*map(set, known)) if start_bytes <= n < stop_bytes]
    if not sizes:
        return math.nan, (math.nan, math.nan)
    was, now = (fmean(_log_gains(rule).get(n, 0.0) for n in sizes) for rule in (before, after))
    gain, half = now - was, math.hypot(*map(_log_half_width, (before, after)))
    return _exp_or_inf(gain), (_exp_or_inf(gain - half), _exp_or_inf(gain + half))


def _exp_or_inf(logarithm: float) -> float:
    """Return the exponential; infinity beyond the largest float."""
    return math.exp(logarithm) if logarithm < MAX_LOG else math.inf


def _log_gains(rule: Rule) -> dict[int, float]:
    """Return the log gains of a rule by size.

    They are empty for the default. Sizes without valid times, in a table from elsewhere, are left
    out.
    """
    if rule.choice.is_default:
        return {}
    evidence = rule.evidence  # of any origin, so that times may be missing
    times = zip(evidence.nbytes, evidence.default_s, evidence.chosen_s, strict=False)
    return {
        nbytes: math.log(default) - math.log(chosen)
        for nbytes, default, chosen in times
        if 0 < default < math.inf and 0 < chosen < math.inf
    }


def _log_half_width(rule: Rule) -> float:
    """Return half the width of the gain's interval, in logarithms; 0 if the interval is invalid."""
    low, high = rule.evidence.gain_ci95
    return math.log(high / low) / 2 if 0 < low <= high < math.inf else 0.0


def _describe_rule(rule: Rule) -> str:
    """Describe a rule and its evidence in words.

    For example: `ring measured at 256KiB: 1.56 times as fast as the default (1.33 to 1.61)`.
    """
    evidence = rule.evidence
    if rule.choice.is_default or not evidence.nbytes:
        return f"{rule.choice} without evidence"
    low, high = evidence.gain_ci95
    basis = MEASURED if evidence.basis == MEASURED else f"{evidence.basis}, not measured,"
    return (
        f"{rule.choice} {basis} at {_format_sizes(evidence.nbytes)}: {evidence.gain:.2f}"
        f" times as fast as the default ({low:.2f} to {high:.2f})"
    )


def _describe_basis(rule: Rule) -> str:
    names = {NO_EVIDENCE: "without evidence", SIMULATED: "simulated alone"}
    return names.get(rule.evidence.basis, rule.evidence.basis)


def _format_sizes(nbytes: Sequence[int]) -> str:
    return " to ".join(dict.fromkeys(format_size(n) for n in (*nbytes[:1], *nbytes[-1:])))
