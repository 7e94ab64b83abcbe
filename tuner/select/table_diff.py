"""What changed from one table to another, why, and what it gains."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from tuner.base.atomic_io import finite
from tuner.base.errors import InputError
from tuner.base.units import format_size
from tuner.core.collective import Collective
from tuner.core.path_classes import placed_record
from tuner.core.table import MEASURED, NOTHING, OPERATORS, Choice, Evidence, Key, Rule, TuningTable

DEPARTS, RETURNS, OTHER = "leaves the default", "returns to the default", "other algorithm"
_SILENT = Evidence(NOTHING)
MOST_LOG = math.log(sys.float_info.max)


@dataclass(frozen=True)
class Change:
    """Messages of [lo, hi) bytes under `key` are decided by another choice.

    before, after   the rules that hold there; of a table without rules for the call, a default
                    that nothing speaks for
    wishes          what was wished of the later table (`Constraints.record`)
    gain            how many times faster the calls become, at the sizes there that speak for both
                    choices, and its 95 % interval; NaN where there is no such size: then a switch
                    between probed sizes has moved
    """

    key: Key
    lo: int
    hi: float
    before: Rule
    after: Rule
    gain: float
    interval: tuple[float, float]
    wishes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`DEPARTS`, `RETURNS` or `OTHER`."""
        if self.before.choice.is_default:
            return DEPARTS
        return RETURNS if self.after.choice.is_default else OTHER

    @property
    def known(self) -> bool:
        """Whether sizes there speak for both choices."""
        return not math.isnan(self.gain)

    @property
    def why(self) -> str:
        """The evidence in words."""
        if self.kind == RETURNS:
            return f"{self._nothing}; before, {_said(self.before)}"
        if self.kind == DEPARTS:
            return _said(self.after)
        return f"{_said(self.after)}; before, {_said(self.before)}"

    @property
    def _nothing(self) -> str:
        """Why the default is back: what spoke for another choice does so no longer, or nobody
        looked again."""
        evidence, there = self.after.evidence, _sizes(self.after.evidence.nbytes)
        alone = self.wishes.get("commutative_only") and self.key.operators == "any"
        if alone and Collective(self.key.collective).reduces:
            return "the new table has rules for commutative operators alone"
        if not evidence.nbytes:
            return "nothing was measured there"
        if evidence.basis != MEASURED:
            each = "" if len(evidence.nbytes) == 1 else "every size of "
            return (
                f"not measured at {each}{there} for the new table, and nothing allowed is believed"
                " to be surely faster than the default"
            )
        told = self.before.evidence
        spoke = [nbytes for nbytes in told.nbytes if self.lo <= nbytes < self.hi]
        if told.basis == MEASURED and spoke and not set(spoke) & set(evidence.nbytes):
            return f"not measured again at {_sizes(spoke)}, and the default holds at {there}"
        if not evidence.runner_up and len(evidence.nbytes) == 1:
            return f"nothing allowed was measured again at {there} but the default"
        none = f"of what was measured at {there} nothing allowed is surely faster than the default"
        most = self.wishes.get("rules")
        if not most:
            return none
        left = f"of {most} rules at most none was left for it"
        return left if self._same_evidence and self._all_allowed else f"{none}, or {left}"

    @property
    def _same_evidence(self) -> bool:
        """Whether both tables rest on the same measurements of a size there, as far as they tell
        times.
        """
        before, after = (
            dict(zip(rule.evidence.nbytes, rule.evidence.default_s, strict=False))
            for rule in (self.before, self.after)
        )
        return bool(before.items() & after.items())

    @property
    def _all_allowed(self) -> bool:
        """Whether nothing but the number of rules was wished."""
        return set(self.wishes) <= {"rules"}


@dataclass(frozen=True)
class Difference:
    """Between two tables.

    keys    of the calls that one of the tables has rules for
    """

    changes: tuple[Change, ...]
    keys: tuple[Key, ...]

    @property
    def kept(self) -> int:
        """How many calls are decided alike at every size."""
        return len(set(self.keys) - {change.key for change in self.changes})

    @property
    def gain(self) -> float:
        """Geometric mean over the changes whose gain is known; NaN without any."""
        logs = [math.log(change.gain) for change in self.changes if change.known]
        return math.exp(fmean(logs)) if logs else math.nan


def difference(old: TuningTable, new: TuningTable) -> Difference:
    """Of every call that one of them has rules for. What holds for any operator is not told again
    of those that commute. Raises InputError for tables of different libraries.
    """
    if old.library.split()[:1] != new.library.split()[:1]:
        raise InputError(
            f"one table is for {old.library}, the other for {new.library}: their defaults are not"
            " the same, so compare tables of one library"
        )
    keys = _keys(old, new)
    changes: dict[tuple[object, ...], Change] = {}
    wishes = _wishes(new)
    for key in keys:
        for one in _changes(key, seen(key, old), seen(key, new), wishes):
            safe = replace(key, operators="any")
            told = (safe, one.lo, one.hi, one.before.choice, one.after.choice)
            changes.setdefault(told, one)
    return Difference(tuple(changes.values()), keys)


def difference_record(found: Difference) -> dict[str, Any]:
    """As JSON carries it: infinities as "inf"."""
    return {
        "gain": _number(found.gain),
        "calls": len(found.keys),
        "calls_kept": found.kept,
        "changes": [_record(change) for change in found.changes],
    }


def _record(change: Change) -> dict[str, Any]:
    return dict(
        finite(
            {
                **placed_record(asdict(change.key)),
                "lo": change.lo,
                "hi": change.hi,
                "kind": change.kind,
                "before": asdict(change.before.choice),
                "after": asdict(change.after.choice),
                "gain": _number(change.gain),
                "gain_ci95": [_number(each) for each in change.interval],
                "why": change.why,
            }
        )
    )


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _keys(*tables: TuningTable) -> tuple[Key, ...]:
    """Calls with commutative operators count apart where some table decides them otherwise."""
    found: dict[Key, None] = {}
    for key in sorted({key for table in tables for key in table.keys}, key=_order):
        safe = replace(key, operators="any")
        if key == safe or any(seen(key, table) != seen(safe, table) for table in tables):
            found[key] = None
    return tuple(found)


def _order(key: Key) -> tuple[object, ...]:
    operators = OPERATORS.index(key.operators)
    return (key.collective, key.memory, key.p, key.nodes, key.placement, operators)


def seen(key: Key, table: TuningTable) -> Sequence[Rule]:
    """The rules that a call under `key` sees."""
    return (
        table.ladder(key)
        or table.ladder(replace(key, operators="any"))
        or (Rule(key, 0, math.inf, Choice(), _SILENT),)
    )


def _wishes(table: TuningTable) -> Mapping[str, Any]:
    """None of a table that says something else there: it may come from anywhere."""
    found = table.provenance.get("constraints")
    return found if isinstance(found, Mapping) else {}


def _changes(
    key: Key, old: Sequence[Rule], new: Sequence[Rule], wishes: Mapping[str, Any]
) -> Iterator[Change]:
    bounds = sorted({rule.lo for rule in (*old, *new)})
    for lo, hi in pairwise([*bounds, math.inf]):
        before, after = _at(old, lo), _at(new, lo)
        if before.choice != after.choice:
            yield Change(key, int(lo), hi, before, after, *_gain(before, after, lo, hi), wishes)


def _at(ladder: Sequence[Rule], nbytes: float) -> Rule:
    return next(rule for rule in ladder if rule.lo <= nbytes < rule.hi)


def _gain(before: Rule, after: Rule, lo: float, hi: float) -> tuple[float, tuple[float, float]]:
    """The gain of `after` over the default over that of `before`, each by its own evidence; both
    are uncertain independently.
    """
    known = [_gains(rule) for rule in (before, after) if not rule.choice.is_default]
    sizes = [n for n in set.intersection(*map(set, known)) if lo <= n < hi]
    if not sizes:
        return math.nan, (math.nan, math.nan)
    was, now = (fmean(_gains(rule).get(n, 0.0) for n in sizes) for rule in (before, after))
    gain, half = now - was, math.hypot(*map(_half, (before, after)))
    return _times(gain), (_times(gain - half), _times(gain + half))


def _times(logarithm: float) -> float:
    """How many times; a gain beyond every number is infinite."""
    return math.exp(logarithm) if logarithm < MOST_LOG else math.inf


def _gains(rule: Rule) -> dict[int, float]:
    """Logarithms by size; none of the default, which gains nothing anywhere, and of sizes whose
    times a table from elsewhere does not say.
    """
    if rule.choice.is_default:
        return {}
    evidence = rule.evidence  # which may come from anywhere, and lack times
    times = zip(evidence.nbytes, evidence.default_s, evidence.chosen_s, strict=False)
    return {
        nbytes: math.log(default) - math.log(chosen)
        for nbytes, default, chosen in times
        if 0 < default < math.inf and 0 < chosen < math.inf
    }


def _half(rule: Rule) -> float:
    """Of the interval of its gain, in logarithms; 0 for one that is none."""
    low, high = rule.evidence.gain_ci95
    return math.log(high / low) / 2 if 0 < low <= high < math.inf else 0.0


def _said(rule: Rule) -> str:
    """`ring measured at 256KiB: 1.56 times as fast as the default (1.33 to 1.61)`."""
    evidence = rule.evidence
    if rule.choice.is_default or not evidence.nbytes:
        return f"{rule.choice} without evidence"
    low, high = evidence.gain_ci95
    basis = MEASURED if evidence.basis == MEASURED else f"{evidence.basis}, not measured,"
    return (
        f"{rule.choice} {basis} at {_sizes(evidence.nbytes)}: {evidence.gain:.2f} times as fast as"
        f" the default ({low:.2f} to {high:.2f})"
    )


def _sizes(nbytes: Sequence[int]) -> str:
    return " to ".join(dict.fromkeys(format_size(n) for n in (*nbytes[:1], *nbytes[-1:])))
