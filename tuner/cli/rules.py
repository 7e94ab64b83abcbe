"""The rules of a table, for people."""

from __future__ import annotations

import math

from tuner.cli.output import console, print_table
from tuner.collective import Collective
from tuner.locality import HOST
from tuner.table import Key, Rule, TuningTable
from tuner.units import format_size, format_time


def print_rules(table: TuningTable) -> None:
    """One line per rule with the evidence for it."""
    rows = [_row(key, rule) for key in table.keys for rule in table.ladder(key)]
    console().print(f"{table.library} on {table.cluster}", markup=False)
    print_table(
        "",
        ("call", "ranks", "operators", "sizes", "algorithm", "default", "chosen", "gain", "95 %",
         "basis"),
        rows, right=("ranks", "default", "chosen", "gain"),
    )  # fmt: skip


def _row(key: Key, rule: Rule) -> tuple[str, ...]:
    hi = "up" if rule.hi == math.inf else f"< {format_size(rule.hi)}"
    operators = key.operators if Collective(key.collective).reduces else ""
    call = str(key.collective) if key.memory == HOST else f"{key.collective} {key.memory}"
    ranks = str(key.p) if key.nodes == 1 else f"{key.nodes}x{key.ppn}"
    return (
        call, ranks, operators, f"{format_size(rule.lo)} {hi}",
        str(rule.choice), *_evidence(rule), rule.evidence.basis,
    )  # fmt: skip


def _evidence(rule: Rule) -> tuple[str, str, str, str]:
    evidence = rule.evidence
    if not evidence.default_s:
        return ("", "", "", "")
    default, chosen = _span(evidence.default_s), _span(evidence.chosen_s)
    if rule.choice.is_default:
        return (default, "", "", "")
    low, high = evidence.gain_ci95
    return (default, chosen, f"{evidence.gain:.2f}", f"{low:.2f} to {high:.2f}")


def _span(seconds: tuple[float, ...]) -> str:
    """Times at the smallest and the largest probed size of a rule."""
    first, last = format_time(seconds[0]), format_time(seconds[-1])
    return first if len(seconds) == 1 else f"{first} .. {last}"
