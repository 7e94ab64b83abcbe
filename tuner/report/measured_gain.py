"""The gain of a table by the measurements that it was made from: one figure on all pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tuner.base.units import plural
from tuner.core.table import MEASURED, Rule, TuningTable


def mean_gain(gains: Sequence[float]) -> float:
    """Return the geometric mean; 1 without any."""
    return math.exp(math.fsum(map(math.log, gains)) / len(gains)) if gains else 1.0


def rule_gains(rule: Rule) -> list[float]:
    """Return the gains of a rule at its sizes with valid times; empty for the default."""
    if rule.choice.is_default:
        return []
    pairs = zip(rule.evidence.default_s, rule.evidence.chosen_s, strict=True)
    ratios = [default / chosen for default, chosen in pairs if 0 < chosen < math.inf]
    return [ratio for ratio in ratios if 0 < ratio < math.inf]


def measured_gains(rules: Iterable[Rule]) -> list[float]:
    """Return the gains of the measured rules that leave the default, one for each size."""
    return [gain for rule in rules if rule.evidence.basis == MEASURED for gain in rule_gains(rule)]


def describe_measured_gain(table: TuningTable) -> str:
    """Return in words what the measurements behind the rules say about the gain."""
    changing = [rule for rule in table.rules if not rule.choice.is_default]
    if not changing:
        return "All rules leave calls to the library's default: nothing was surely faster."
    gains = measured_gains(changing)
    if not gains:
        return (
            "None of the rules that leave the library's default was measured: their gain is"
            " expected alone."
        )
    return (
        f"Where measured rules leave the library's default, calls were {mean_gain(gains):.2f} times"
        " as fast in the measurements that the rules were made from: the geometric mean over"
        f" {plural(len(gains), 'call')}, each a collective on one number of nodes and ranks at one"
        " size. Not yet compared with the default at other sizes."
    )
