"""Text and tables that fit a terminal: lines break between words, never inside one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

COLUMN_GAP = 2  # spaces between two columns of a table
HANGING_INDENT = 2  # further spaces before the second line of an indented one
MIN_PROSE_WIDTH = 16  # least width of a column of sentences, where they are as long
LINE_CONTINUATION = " \\"  # how a command of the shell continues in the next line
ELLIPSIS = " ..."
PROGRAMS = ("tuner", "mpirun", "mpiexec", "srun", "curl", "pip", "make", "mkdir")
TextRow = tuple[str, ...]


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # takes longer to load than `tuner --help`

    return cell_len(text)


def wrap(text: str, width: int) -> str:
    """Return the text with its lines broken at spaces; a longer word has a line of its own."""
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line, width))


def _wrapped(line: str, width: int) -> Iterator[str]:
    indent = len(line) - len(line.lstrip(" "))
    after = " " * (indent + HANGING_INDENT if indent else 0)
    shown = ""
    for word in re.findall(r"\s*\S+", line):
        if shown and display_width(shown + word) > width:
            yield shown
            shown = after + word.lstrip()
        else:
            shown += word
    yield shown


def shorten(text: str, width: int) -> str:
    """Return as many whole words as fit, followed by `...` where some are missing."""
    if display_width(text) <= width:
        return text
    first = wrap(text, width - len(ELLIPSIS)).split("\n")[0]
    return f"{first}{ELLIPSIS}" if display_width(first) + len(ELLIPSIS) <= width else ""


def fold_command(line: str, width: int) -> str:
    """Return a shell command broken into as many lines as needed; options keep their values."""
    indent = len(line) - len(line.lstrip(" "))
    lines = [" " * indent]
    for part in _arguments(line, width - indent - HANGING_INDENT - len(LINE_CONTINUATION)):
        joined = f"{lines[-1]} {part}" if lines[-1].strip() else lines[-1] + part
        if lines[-1].strip() and display_width(joined) > width - len(LINE_CONTINUATION):
            lines.append(" " * (indent + HANGING_INDENT) + part)
        else:
            lines[-1] = joined
    return f"{LINE_CONTINUATION}\n".join(lines)


def _arguments(line: str, width: int) -> Iterator[str]:
    """Yield the words of a command, an option together with its value if that fits."""
    together = ""
    for word in re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+", line):
        both = f"{together} {word}"
        if together.startswith("-") and not word.startswith("-") and display_width(both) <= width:
            together = both
            continue
        if together:
            yield together
        together = word
    yield together


def reflow(text: str, width: int) -> str:
    """Return a help text for a terminal: paragraphs filled again, commands folded.

    Lines of a paragraph begin at the margin; commands and the content of files are indented.
    """
    shown, paragraph = list[str](), list[str]()
    for line in [*re.sub(rf"{re.escape(LINE_CONTINUATION)}\n *", " ", text).split("\n"), ""]:
        if line and not line.startswith(" "):
            paragraph.append(line)
            continue
        if paragraph:
            shown.append(wrap(" ".join(paragraph), width))
            paragraph.clear()
        shown.append(_example(line, width))
    return "\n".join(shown[:-1])


def _example(line: str, width: int) -> str:
    """Return an indented line; if it is too long, its comment comes above it."""
    content, mark, remark = line.partition("  # ")
    if display_width(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip(" ")))
    above = f"{wrap(f'{indent}# {remark}', width)}\n" if mark else ""
    is_command = re.match(rf" +({'|'.join(PROGRAMS)}|[A-Z][A-Z0-9_]*=\S+) ", line)
    return above + (fold_command(content, width) if is_command else content.rstrip())


def without_empty_columns(cells: Sequence[TextRow]) -> list[TextRow]:
    """Return a table, whose first row has the titles, without its empty columns."""
    if len(cells) == 1:
        return list(cells)
    columns = [column for column in zip(*cells, strict=True) if any(column[1:])]
    return list(zip(*columns, strict=True))


class TableLayout:
    """The part of a table that is shown within `width` columns of text.

    omitted_columns     names of the columns that there is no room for
    widths              columns of text of each column; None: there is still no room
    """

    def __init__(
        self, cells: Sequence[TextRow], width: int, spare: Iterable[str], prose: Collection[str]
    ) -> None:
        self.cells, self.omitted_columns = list(cells), list[str]()
        self._prose = prose
        self.widths = self._fitted(width)
        for name in spare:
            if self.widths is None and name in self.cells[0]:
                at = self.cells[0].index(name)
                self.cells = [row[:at] + row[at + 1 :] for row in self.cells]
                self.widths = self._fitted(width)
                self.omitted_columns.append(name)

    def _fitted(self, width: int) -> list[int] | None:
        """Return the width each column needs, widened as far as sentences and titles can use it.

        Return None if the columns need more than `width`.
        """
        widths = self.least_widths()
        rest = width - _joined_width(widths)
        if rest < 0:
            return None
        more = [
            max(map(display_width, column)) - own
            for column, own in zip(zip(*self.cells, strict=True), widths, strict=True)
        ]
        for at in sorted(range(len(more)), key=more.__getitem__):
            given = min(more[at], rest)
            widths[at] += given
            rest -= given
        return widths

    def least_widths(self) -> list[int]:
        return [self._least(column) for column in zip(*self.cells, strict=True)]

    def _least(self, column: TextRow) -> int:
        head, *rest = column
        title = max(map(display_width, head.split()), default=0)
        whole = max(map(display_width, rest), default=0)
        if head not in self._prose:
            return max(title, whole)
        word = max((display_width(word) for cell in rest for word in cell.split()), default=0)
        return max(title, word, min(whole, MIN_PROSE_WIDTH))


def _joined_width(widths: Sequence[int]) -> int:
    """Return how many columns of text the columns of a table take with the gaps between them."""
    return sum(widths) + COLUMN_GAP * (len(widths) - 1)


def stack_rows(cells: Sequence[TextRow], width: int) -> Iterator[str]:
    """Yield each row of a table as lines of titles and cells; the first row has the titles."""
    titles = cells[0]
    edge = max(map(display_width, titles[1:]), default=0) + HANGING_INDENT + COLUMN_GAP
    for row in cells[1:]:
        lines = [wrap(f"{titles[0]} {row[0]}".strip(), width)]
        for title, cell in zip(titles[1:], row[1:], strict=True):
            if cell:
                lines += _labelled(title, cell, edge, width)
        yield "\n".join(lines)


def _labelled(title: str, cell: str, edge: int, width: int) -> Iterator[str]:
    words = max(map(display_width, cell.split()))
    if edge + words > width:
        edge = HANGING_INDENT
        yield f"{'':{HANGING_INDENT}}{title}:"
        title = ""
    for number, line in enumerate(wrap(cell, width - edge).split("\n")):
        label = "" if number else f"{'':{HANGING_INDENT}}{title}"
        yield f"{label:{edge}}{line}"
