"""What goes to the terminal: JSON for programs, tables for people."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 120  # columns of text when the output is no terminal
TABLE_WIDTH = 10_000  # at most, likewise; tables take what they need
GAP = 3  # columns of text that a column of a table takes beside its cells, at most
SHORTEST = 16  # letters of a line into which names are cut


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option every verb has."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    examples: str,
    run: object,
) -> argparse.ArgumentParser:
    """One of the actions of a verb, which `run` carries out."""
    action = actions.add_parser(
        name, help=summary, description=summary, epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_json(action)
    action.set_defaults(run=run)
    return action


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


def warn(sentence: str) -> None:
    """One line beside the output, unless there is nothing to say."""
    if sentence:
        print(f"tuner: {sentence}", file=sys.stderr)


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = (),
    spare: Iterable[str] = (),
) -> None:  # fmt: skip
    """A table of text cells; the columns named in `right` are aligned on their last digit.

    Brackets are text like any other. On a terminal that is too narrow the columns named in `spare`
    are left out, in that order, as far as needed, and then cells are folded, names after `_` where
    possible; everywhere else each row is one line.
    """
    screen = console()
    if not screen.is_terminal:
        screen.width = TABLE_WIDTH
    cells = [tuple(columns), *map(tuple, rows)]
    for column in spare:
        if _width(cells) > screen.width and column in cells[0]:
            at = cells[0].index(column)
            cells = [row[:at] + row[at + 1 :] for row in cells]
    cells = _narrowed(cells, screen.width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    numeric = set(right)
    for column in cells[0]:
        side: JustifyMethod = "right" if column in numeric else "left"
        table.add_column(Text(column), justify=side, overflow="fold")
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    if title:
        screen.print(Text(title, style="table.title"))
    screen.print(table)


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    lines = ([max(map(len, cell.split("\n"))) for cell in row] for row in cells)
    return [max(column) for column in zip(*lines, strict=True)]


def _width(cells: Sequence[Sequence[str]]) -> int:
    widths = _widths(cells)
    return sum(widths) + GAP * len(widths)


def _narrowed(cells: list[tuple[str, ...]], width: int) -> list[tuple[str, ...]]:
    """Names with `_` cut so that the table fits, the widest column of them first."""
    named = {at for row in cells for at, cell in enumerate(row) if "_" in cell}
    while (over := _width(cells) - width) > 0 and named:
        widths = _widths(cells)
        at = max(named, key=widths.__getitem__)
        named.remove(at)
        most = max(SHORTEST, widths[at] - over)
        cells = [(*row[:at], _cut(row[at], most), *row[at + 1 :]) for row in cells]
    return cells


def _cut(text: str, most: int) -> str:
    """Lines of at most so many letters where blanks and `_` allow it."""
    lines = [""]
    for part in re.findall(r"[^_(\s]*[_(\s]?", text):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > most:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)
