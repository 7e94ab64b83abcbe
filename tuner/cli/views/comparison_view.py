"""Calls with a table and without, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.base.units import format_size, format_time, humanize, plural
from tuner.cli.terminal.output import print_table, print_text
from tuner.report import geometric_mean_speedup, split_control
from tuner.report.cautions import is_slower


def print_comparison(library: str, heldout: Sequence[Mapping[str, Any]]) -> None:
    """Print the calls that a table changes; if there are none, the control, if there is one."""
    if not heldout:
        return
    changed, control = split_control(heldout)
    rows = (
        (
            record["collective"],
            str(record["p"]),
            format_size(record["nbytes"]),
            humanize(record["algorithm"]),
            format_time(record["default_s"]),
            format_time(record["tuned_s"]),
            f"{record['ratio']:.2f}",
            f"{record['ci95'][0]:.2f} to {record['ci95'][1]:.2f}",
            _least(record),
            _sign(record) if changed else "",
        )
        for record in changed or control
    )
    which = "calls that the table changes" if changed else "calls, all left to the default"
    print_table(
        f"{library}: {which}, at sizes that were used for nothing else",
        ("call", "ranks", "size", "algorithm", "default", "tuned", "ratio", "95 %", "least", ""),
        rows,
        right=("ranks", "size", "default", "tuned", "ratio", "least"),
        droppable=("default", "tuned", "95 %", "least"),
        wrappable=("algorithm",),
    )
    if changed and control:
        mean, low, high = geometric_mean_speedup(control)
        print_text(
            f"control: {plural(len(control), 'more call')} left to the default; the same code ran"
            f" on both sides, ratio {mean:.2f} ({low:.2f} to {high:.2f})\n"
        )


def _least(record: Mapping[str, Any]) -> str:
    """Return the smallest ratio under any of the conditions."""
    conditions = record.get("conditions", {}).values()
    return f"{min(one['ratio'] for one in conditions):.2f}" if conditions else ""


def _sign(record: Mapping[str, Any]) -> str:
    return "slower" if is_slower(record) else "faster" if record["ci95"][0] > 1 else ""
