"""The rules of a table, and what changed between two, for people."""

from __future__ import annotations

import math

from tuner.cli.output import console, print_table
from tuner.collective import Collective
from tuner.locality import HOST
from tuner.select.difference import Difference
from tuner.table import Key, Rule, TuningTable
from tuner.units import format_size, format_time, plural


def print_rules(table: TuningTable) -> None:
    """One line per rule with the evidence for it."""
    rows = [_row(key, rule) for key in table.keys for rule in table.ladder(key)]
    console().print(
        f"{table.library} on {table.cluster}: {counted_rules(table)}", markup=False, soft_wrap=True
    )
    print_table(
        "",
        ("call", "ranks", "operators", "sizes", "algorithm", "default", "chosen", "gain", "95 %",
         "basis"),
        rows, right=("ranks", "default", "chosen", "gain"),
    )  # fmt: skip


def counted_rules(table: TuningTable) -> str:
    """A rule is one choice for one range of sizes of one call and class of operators, the default
    among the choices: a line of `tuner table show`, and what `--rules` limits.
    """
    number = len(table.rules)
    return "1 rule" if number == 1 else f"{number} rules"


def print_changes(old: TuningTable, new: TuningTable, found: Difference) -> None:
    """A sentence on everything, then one line per change with what speaks for it."""
    screen = console()
    if (old.library, old.cluster.name) != (new.library, new.cluster.name):
        screen.print(f"{old.library} on {old.cluster.name} against {new.library} on"
                     f" {new.cluster.name}", markup=False)  # fmt: skip
    if not found.changes:
        screen.print(
            f"nothing changed; decided alike at every size: {plural(len(found.keys), 'call')}"
        )
        return
    screen.print(
        f"decided otherwise at some size: {len(found.keys) - found.kept} of"
        f" {plural(len(found.keys), 'call')}, in {plural(len(found.changes), 'range')} of sizes",
        soft_wrap=True,
    )
    rows = [
        (str(c.key.collective), c.key.shape, _operators(c.key),
         _range(c.lo, c.hi), str(c.before.choice), str(c.after.choice),
         *((f"{c.gain:.2f}", "{:.2f} to {:.2f}".format(*c.interval)) if c.known else ("", "")))
        for c in found.changes
    ]  # fmt: skip
    columns = ("call", "shape", "operators", "sizes", "before", "after", "gain", "95 %")
    print_table("", columns, rows, right=("gain",), spare=("operators", "95 %"))
    known = [change for change in found.changes if change.known]
    for c in known:
        where = f"{c.key.collective} {c.key.shape} {_range(c.lo, c.hi)}"
        screen.print(f"{where}: {c.kind}. {c.why}", markup=False, soft_wrap=True)
    moved = len(found.changes) - len(known)
    if moved:
        screen.print(
            f"{plural(moved, 'range')} {'holds' if moved == 1 else 'hold'} no size that speaks for"
            " both choices: there a switch between"
            " probed sizes moved",
            soft_wrap=True,
        )
    if known:
        screen.print(
            f"calls of {plural(len(known), 'range')} with evidence become {found.gain:.2f} times as"
            " fast (geometric mean, by the evidence of both tables)",
            soft_wrap=True,
        )


def _range(lo: float, hi: float) -> str:
    return f"{format_size(lo)} {'up' if hi == math.inf else f'< {format_size(hi)}'}"


def _operators(key: Key) -> str:
    return key.operators if Collective(key.collective).reduces else ""


def _row(key: Key, rule: Rule) -> tuple[str, ...]:
    call = str(key.collective) if key.memory == HOST else f"{key.collective} {key.memory}"
    ranks = str(key.p) if key.nodes == 1 else key.shape
    return (
        call, ranks, _operators(key), _range(rule.lo, rule.hi),
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
