"""What goes to the terminal: JSON for programs, tables for people."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 120  # columns of text when the output is no terminal
TABLE_WIDTH = 10_000  # at most, likewise; tables take what they need


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option every verb has."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def console(*, error: bool = False) -> Console:
    """Standard output (or error); colour and width only where a terminal reads it."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False)


def emit(arguments: argparse.Namespace, record: Any, text: Callable[[], None]) -> None:
    """Print `record` as JSON when asked to, else let `text` print what a person reads."""
    if arguments.json:
        print(json.dumps(record, indent=1))
    else:
        text()


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = ()
) -> None:
    """A table of text cells; the columns named in `right` are aligned on their last digit.

    Brackets are text like any other. A narrow terminal folds cells; everywhere else each row is one
    line.
    """
    heading = Text(title, style="table.title") if title else None
    table = Table(title=heading, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    numeric = set(right)
    for column in columns:
        side: JustifyMethod = "right" if column in numeric else "left"
        table.add_column(Text(column), justify=side, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    screen = console()
    if not screen.is_terminal:
        screen.width = TABLE_WIDTH
    screen.print(table)
