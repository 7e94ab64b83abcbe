"""Output to the terminal: JSON for programs, tables for people."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from tuner.cli.terminal.layout import (
    COLUMN_GAP,
    TableLayout,
    display_width,
    fold_command,
    stack_rows,
    without_empty_columns,
    wrap,
)

UNLIMITED_WIDTH = 10_000  # columns of text where no terminal breaks lines
REDIRECTED_TABLE_WIDTH = 120  # columns of text of a table in a file or pipe
CAUTION_STYLE = "bold yellow"
OMITTED_COLUMNS_NOTE = "no room for {}: widen the terminal, or use --json"


def finish_command(parser: argparse.ArgumentParser, run: object, **known: Any) -> None:
    """Declare the option for JSON output, and say which function carries out the command.

    known       further values of its options that no option sets
    """
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.set_defaults(run=run, **known)


def add_subcommand(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    examples: str,
    run: object,
) -> argparse.ArgumentParser:
    """Add an action to a command, which `run` carries out."""
    action = actions.add_parser(name, help=summary, description=summary, epilog=examples)
    finish_command(action, run)
    return action


class _Console(Console):
    """A console that leaves a reader that has gone to `main`, which knows the exit status."""

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError that is being handled; Rich would exit with 1."""
        raise


def console(*, error: bool = False) -> Console:
    """Return a console on standard output or error; colour and width only on a terminal."""
    stream = sys.stderr if error else sys.stdout
    return _Console(
        file=stream, width=None if stream.isatty() else UNLIMITED_WIDTH, highlight=False
    )


def print_text(text: str, *, style: str = "", error: bool = False) -> None:
    """Print text; lines are broken between words on a terminal only."""
    screen = console(error=error)
    screen.print(Text(wrap(text, screen.width), style), soft_wrap=True)


def print_command(purpose: str, command: str) -> None:
    """Print a command to be copied: beside its purpose if that fits, else below it."""
    screen = console()
    if display_width(f"{purpose} {command}") <= screen.width:
        screen.print(Text(f"{purpose} {command}"), soft_wrap=True)
        return
    print_text(purpose)
    screen.print(Text(fold_command(f"  {command}", screen.width)), soft_wrap=True)


def print_result(as_json: bool, record: Any, text: Callable[[], None]) -> None:
    """Print `record` as JSON if asked to, else call `text` to print it for people."""
    if as_json:
        print(json.dumps(record, indent=1))
    else:
        text()


def print_omitted(number: int, shown: int, what: str) -> None:
    """Print how many of a number of rows are not shown, if any, and where they are."""
    if number > shown:
        print_text(f"and {number - shown} more{what}")


def warn(*sentences: str) -> None:
    """Print sentences to standard error, except empty ones."""
    for sentence in filter(None, sentences):
        print_text(f"tuner: {sentence}", style=CAUTION_STYLE, error=True)


def print_cautions(sentences: Iterable[str]) -> None:
    """Print, highlighted, what a reader must know before the result."""
    for sentence in sentences:
        print_text(f"caution: {sentence}", style=CAUTION_STYLE)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Iterable[str] = (),
    droppable: Iterable[str] = (),
    wrappable: Iterable[str] = (),
) -> None:
    """Print text cells as a table; brackets are printed as they are.

    right       columns that are aligned to the right
    droppable   columns that a narrow terminal leaves out as far as needed, in this order
    wrappable   columns whose cells may take several lines there, broken at spaces

    A table that is still too wide for the terminal becomes a block of lines for each row. In a file
    or pipe the width is COLUMNS or else `REDIRECTED_TABLE_WIDTH`, no column is left out, and a
    table that is still wider stays a table.
    """
    screen = console()
    redirected = not screen.file.isatty()
    width = redirected_table_width() if redirected else screen.width
    cells = without_empty_columns([tuple(columns), *map(tuple, rows)])
    layout = TableLayout(cells, width, () if redirected else droppable, frozenset(wrappable))
    if title:
        print_text(title, style="table.title")
    if layout.widths is None and not redirected:
        for block in stack_rows(cells, width):
            screen.print(Text(block), "", sep="\n", soft_wrap=True)
        return
    screen.print(_table(layout, frozenset(right)))
    if layout.omitted_columns:
        print_text(OMITTED_COLUMNS_NOTE.format(", ".join(layout.omitted_columns)), style="dim")
    screen.print()


def csv_lines(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV, with a line of titles."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(titles)
    lines.writerows(rows)
    return text.getvalue()


def redirected_table_width() -> int:
    """Return how many columns of text a table takes that does not go to a terminal."""
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isdecimal() and int(asked) > 0 else REDIRECTED_TABLE_WIDTH


def _table(layout: TableLayout, right: Collection[str]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, COLUMN_GAP - 1, 0, 0)
    )
    widths = layout.widths or layout.least_widths()
    for name, width in zip(layout.cells[0], widths, strict=True):
        side: JustifyMethod = "right" if name in right else "left"
        table.add_column(Text(name), justify=side, width=width)
    for row in layout.cells[1:]:
        table.add_row(*map(Text, row))
    return table
