"""The parser of the command line, whose help and errors fit the terminal."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Any, NoReturn

from tuner.cli.layout import reflow, wrap

EXIT_USAGE = 2  # exit status for a command line that cannot be parsed
NARROW_WIDTH = 72  # columns below which options are explained below their names, not beside them


class Formatter(argparse.HelpFormatter):
    """A help formatter that fills paragraphs, folds examples, and breaks lines between words."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._narrow = self._width < NARROW_WIDTH
        if self._narrow:
            self._max_help_position = 3 * self._indent_increment

    def _format_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None,
    ) -> str:
        """Return the usage, on a narrow terminal without the options, which are listed anyway."""
        if usage is None and prefix is None and self._narrow:
            names = [self._format_args(a, a.dest) for a in actions if not a.option_strings]
            return wrap(" ".join(["usage:", self._prog, "[OPTIONS]", *names]), self._width) + "\n\n"
        return super()._format_usage(usage, actions, groups, prefix)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent(reflow(text.strip(), width - len(indent)), indent)


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` with `Formatter`, which the parsers of its actions have, too."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": Formatter, **options})

    def error(self, message: str) -> NoReturn:
        """Print the usage and one sentence, and exit."""
        self.print_usage(sys.stderr)
        sentence = f"{self.prog}: error: {message}"
        if sys.stderr.isatty():
            sentence = wrap(sentence, shutil.get_terminal_size().columns)
        self.exit(EXIT_USAGE, f"{sentence}\n")
