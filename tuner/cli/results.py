"""What a finished quickstart prints: what was decided, what was gained, where everything is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.cli.output import print_cautions, print_command, print_table, print_text
from tuner.report import LibraryResult, geometric_mean, split
from tuner.units import format_size, format_time, readable

FILES = (
    ("report.html", "plots and tables, open it in a browser"),
    ("report.json", "the same for programs"),
    ("tuner.sqlite", "database with measurements, calibrations and table versions"),
)
NATIVE = {
    "openmpi": (
        "openmpi/openmpi.rules",
        "mpirun --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_dynamic_rules_filename {}",
    ),
    "mpich": (
        "mpich/mpich.json",
        "MPIR_CVAR_DEVICE_COLLECTIVES=none MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE={} mpiexec",
    ),
}


def print_results(out: Path, results: Sequence[LibraryResult], record: Mapping[str, Any]) -> None:
    """Print the held-out comparisons and the files, and then, per library, cautions and gain."""
    for result in results:
        _print_heldout(result)
    _print_files(out, [result.name for result in results])
    for result in results:
        print_text(f"\n{result.table.library}")
        _print_outcome(record["libraries"][result.name], result.table.library)


def _print_outcome(figures: Mapping[str, Any], library: str) -> None:
    """Cautions are seen first; without any the gain is."""
    print_cautions(figures["cautions"])
    for rule in figures["rules_unconfirmed"]:
        print_text(f"  not confirmed: {rule['rule']}: {readable(rule['reason'])}")
    print_text(
        f"{figures['rules_confirmed']} of {figures['rules_total']} rules were seen at work in"
        f" {library}."
    )
    print_text(figures["result"], style="" if figures["cautions"] else "bold")


def _print_heldout(result: LibraryResult) -> None:
    changed, control = split(result.heldout)
    rows = (
        (
            record["collective"], str(record["p"]), format_size(record["nbytes"]),
            readable(record["algorithm"]), format_time(record["default_s"]),
            format_time(record["tuned_s"]),
            f"{record['ratio']:.2f}", f"{record['ci95'][0]:.2f} to {record['ci95'][1]:.2f}",
            _sign(record["ci95"]) if changed else "",
        )
        for record in changed or control
    )  # fmt: skip
    which = "calls that the table changes" if changed else "calls, all left to the default"
    print_table(
        f"{result.table.library}: {which}, at sizes that were not probed",
        ("call", "ranks", "size", "algorithm", "default", "tuned", "ratio", "95 %", ""),
        rows, right=("ranks", "size", "default", "tuned", "ratio"),
        spare=("default", "tuned", "95 %"), prose=("algorithm",),
    )  # fmt: skip
    if changed and control:
        mean, low, high = geometric_mean(control)
        print_text(
            f"control: {len(control)} more calls are left to the default; the same code ran on both"
            f" sides, ratio {mean:.2f} ({low:.2f} to {high:.2f})\n"
        )


def _sign(interval: Sequence[float]) -> str:
    return "faster" if interval[0] > 1 else "slower" if interval[1] < 1 else ""


def _print_files(out: Path, names: Sequence[str]) -> None:
    print_text("")
    for name, meaning in FILES:
        print_text(f"{out / name}  {meaning}")
    for name in names:
        file, command = NATIVE[name]
        print_command(f"{out / file}  use it:", f"{command.format((out / file).absolute())} ...")
