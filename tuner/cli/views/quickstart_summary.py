"""The summary of a finished quickstart: decisions, gains and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.base.units import humanize
from tuner.cli.quickstart_files import DATABASE, REPORT
from tuner.cli.terminal.output import print_cautions, print_command, print_text
from tuner.cli.views.comparison_view import print_comparison
from tuner.mpi_libraries.profiles import profile_of
from tuner.report import LibraryResult
from tuner.report.summary import describe_confirmed_rules
from tuner.workflows.following import command_line

OTHER_FILES = (
    ("report.json", "the report for programs"),
    (DATABASE, "database with measurements, calibrations and table versions"),
)


def print_results(out: Path, results: Sequence[LibraryResult], record: Mapping[str, Any]) -> None:
    """Print comparisons and files, cautions and gain of each library, and the report's name."""
    for result in results:
        print_comparison(result.table.library, result.heldout)
    _print_files(out, results)
    for result in results:
        print_text(f"\n{result.table.library}")
        _print_outcome(record["libraries"][result.name])
    print_text("")
    print_command("the report, for a browser:", str(out / REPORT))


def _print_outcome(figures: Mapping[str, Any]) -> None:
    """Print cautions first; without any, print the gain in bold."""
    print_cautions(figures["cautions"])
    for rule in figures["rules_unconfirmed"]:
        print_text(f"  not confirmed: {rule['rule']}: {humanize(rule['reason'])}")
    print_text(describe_confirmed_rules(figures))
    print_text(figures["result"], style="" if figures["cautions"] else "bold")


def _print_files(out: Path, results: Sequence[LibraryResult]) -> None:
    print_text("")
    for name, meaning in OTHER_FILES:
        print_text(f"{out / name}  {meaning}")
    for result in results:
        file = out / result.name / profile_of(result.name).tuning_file
        if all(rule.choice.is_default for rule in result.table.rules):
            print_text(f"{file}  changes nothing, so no program needs it")
        else:
            print_command(f"{file}  use it:", f"{command_line(result.launch_settings)} ...")
