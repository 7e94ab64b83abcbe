"""What a finished quickstart prints: what was decided, what was gained, where everything is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.cli.output import console, print_table
from tuner.report import LibraryResult, geometric_mean, split
from tuner.units import format_size, format_time

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
    """Held-out comparison, proof and verdict per library, then the files."""
    screen = console()
    for result in results:
        figures = record["libraries"][result.name]
        _print_heldout(result)
        screen.print(
            f"{figures['rules_confirmed']} of {figures['rules_total']} rules were seen at work in"
            f" {result.table.library}.",
            markup=False,
        )
        for rule in figures["rules_unconfirmed"]:
            screen.print(f"  not confirmed: {rule['rule']}: {rule['reason']}", markup=False)
        screen.print(figures["verdict"], style="bold", markup=False)
    _print_files(out, [result.name for result in results])


def _print_heldout(result: LibraryResult) -> None:
    changed, control = split(result.heldout)
    rows = (
        (
            record["collective"], str(record["p"]), format_size(record["nbytes"]),
            record["algorithm"], format_time(record["default_s"]), format_time(record["tuned_s"]),
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
    )  # fmt: skip
    if changed and control:
        mean, low, high = geometric_mean(control)
        console().print(
            f"control: {len(control)} more calls are left to the default; the same code ran on both"
            f" sides, ratio {mean:.2f} ({low:.2f} to {high:.2f})",
            markup=False,
        )


def _sign(interval: Sequence[float]) -> str:
    return "faster" if interval[0] > 1 else "slower" if interval[1] < 1 else ""


def _print_files(out: Path, names: Sequence[str]) -> None:
    screen = console()
    screen.print("")
    for name, meaning in FILES:
        screen.print(f"{out / name}  {meaning}", markup=False)
    for name in names:
        file, command = NATIVE[name]
        screen.print(f"{out / file}  use it: {command.format((out / file).absolute())} ...",
                     markup=False, soft_wrap=True)  # fmt: skip
