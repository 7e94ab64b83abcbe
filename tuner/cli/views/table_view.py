"""The rules of a table, and what changed between two, for people."""

from __future__ import annotations

import math

from tuner.base.units import format_range, format_time, humanize, plural
from tuner.cli.terminal.output import print_table, print_text
from tuner.core.collective import Collective
from tuner.core.path_classes import HOST
from tuner.core.peer_faults import describe_peer_faults
from tuner.core.table import MEASURED, Rule, RuleKey, TuningTable
from tuner.select.table_diff import RuleChange, TableDiff

EXPECTED_MARK = "~"  # before gains that no measurement shows, also where `basis` has no room
RULE_COLUMNS = (
    "call",
    "ranks",
    "operators",
    "sizes",
    "bytes",
    "algorithm",
    "default",
    "chosen",
    "gain",
    "95 %",
    "basis",
)
GAIN_COLUMN = RULE_COLUMNS.index("gain")


def print_rules(table: TuningTable) -> None:
    """Print one line per rule with the evidence for it."""
    rows = [_row(key, rule) for key in table.keys for rule in table.rules_for(key)]
    print_text(f"{table.library} on {table.cluster}: {format_rule_count(table)}")
    print_table(
        "",
        RULE_COLUMNS,
        rows,
        right=("ranks", "default", "chosen", "gain"),
        droppable=("bytes", "default", "chosen", "basis", "95 %"),
        wrappable=("algorithm",),
    )
    if any(row[GAIN_COLUMN].startswith(EXPECTED_MARK) for row in rows):
        print_text(f"{EXPECTED_MARK}: simulated, or learned from other calls, but not measured")
    stated = describe_peer_faults(table)
    if stated:
        print_text(stated)


def format_rule_count(table: TuningTable) -> str:
    """Return the number of rules of a table for people.

    A rule is one choice, the default included, for one range of sizes of one call and operator
    class: a line of `tuner table show`, and what `--max-rules` limits.
    """
    number = len(table.rules)
    return "1 rule" if number == 1 else f"{number} rules"


def print_changes(old: TuningTable, new: TuningTable, found: TableDiff) -> None:
    """Print a summary, then one line per change with the evidence for it."""
    if (old.library, old.cluster.name) != (new.library, new.cluster.name):
        print_text(
            f"{old.library} on {old.cluster.name} against {new.library} on {new.cluster.name}"
        )
    if not found.changes:
        print_text(
            f"nothing changed; decided alike at every size: {plural(len(found.keys), 'call')}"
        )
        _print_evidence_changes(found)
        return
    print_text(
        f"decided otherwise at some size: {len(found.keys) - found.n_unchanged} of"
        f" {plural(len(found.keys), 'call')}, in {plural(len(found.changes), 'range')} of sizes"
    )
    columns = ("call", "shape", "operators", "sizes", "bytes", "before", "after", "gain", "95 %")
    print_table(
        "",
        columns,
        [*map(_change_row, found.changes)],
        right=("gain",),
        droppable=("bytes", "95 %"),
        wrappable=("before", "after"),
    )
    _print_reasons(found)
    _print_evidence_changes(found)


def _change_row(change: RuleChange) -> tuple[str, ...]:
    gain = (f"{change.gain:.2f}", "{:.2f} to {:.2f}".format(*change.interval))
    return (
        str(change.key.collective),
        change.key.shape,
        _operators(change.key),
        format_range(change.start_bytes, change.stop_bytes),
        _bytes(change.start_bytes, change.stop_bytes),
        humanize(str(change.before.choice)),
        humanize(str(change.after.choice)),
        *(gain if change.has_gain else ("", "")),
    )


def _print_evidence_changes(found: TableDiff) -> None:
    """Print what is decided alike on another basis, and how much on other times."""
    anew = 0
    for c in found.evidence_changes:
        anew += not c.has_other_basis
        if c.has_other_basis:
            where = f"{c.key.collective} {c.key.shape} {format_range(c.start_bytes, c.stop_bytes)}"
            print_text(f"{where}: {humanize(str(c.after.choice))} stays; {humanize(c.reason)}")
    if anew:
        print_text(f"decided alike on other times: {plural(anew, 'range')} of sizes")


def _print_reasons(found: TableDiff) -> None:
    """Print why each choice changed, and what that gains."""
    known = [change for change in found.changes if change.has_gain]
    moved = len(found.changes) - len(known)
    if moved:
        print_text(
            f"{plural(moved, 'range')} {'holds' if moved == 1 else 'hold'} no size measured with"
            " both choices: there a switch between probed sizes moved"
        )
    for c in known:
        where = f"{c.key.collective} {c.key.shape} {format_range(c.start_bytes, c.stop_bytes)}"
        print_text(f"{where}: {c.kind}. {humanize(c.reason)}")
    if known:
        print_text(
            f"calls of {plural(len(known), 'range')} with evidence become"
            f" {found.mean_gain:.2f} times as fast (geometric mean, by the evidence of both tables)"
        )


def _bytes(lo: float, hi: float) -> str:
    """Return the first and the last size, exactly, since `format_range` rounds."""
    return f"{lo:.0f} and more" if hi == math.inf else f"{lo:.0f} to {hi - 1:.0f}"


def _operators(key: RuleKey) -> str:
    return key.operators if Collective(key.collective).is_reduction else ""


def _row(key: RuleKey, rule: Rule) -> tuple[str, ...]:
    call = str(key.collective) if key.memory == HOST else f"{key.collective} {key.memory}"
    ranks = str(key.p) if key.nodes == 1 else key.shape
    return (
        call,
        ranks,
        _operators(key),
        format_range(rule.start_bytes, rule.stop_bytes),
        _bytes(rule.start_bytes, rule.stop_bytes),
        humanize(str(rule.choice)),
        *_evidence(rule),
        rule.evidence.basis,
    )


def _evidence(rule: Rule) -> tuple[str, str, str, str]:
    evidence = rule.evidence
    if not evidence.default_s:
        return ("", "", "", "")
    default, chosen = _span(evidence.default_s), _span(evidence.chosen_s)
    if rule.choice.is_default:
        return (default, "", "", "")
    low, high = evidence.gain_ci95
    mark = "" if evidence.basis == MEASURED else EXPECTED_MARK
    return (default, chosen, f"{mark}{evidence.gain:.2f}", f"{low:.2f} to {high:.2f}")


def _span(seconds: tuple[float, ...]) -> str:
    """Return the times at the smallest and the largest probed size of a rule."""
    first, last = format_time(seconds[0]), format_time(seconds[-1])
    return first if len(seconds) == 1 else f"{first} .. {last}"
