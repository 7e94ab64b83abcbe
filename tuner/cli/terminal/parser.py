"""The parser of the command line, whose help and errors fit the terminal."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from tuner.base.spelling import did_you_mean
from tuner.cli.terminal.layout import reflow, wrap

EXIT_USAGE = 2  # exit status for a command line that cannot be parsed
MISSING_ARGUMENTS = "the following arguments are required"  # how argparse begins that error
NARROW_WIDTH = 72  # columns below which options are explained below their names, not beside them


class Formatter(argparse.HelpFormatter):
    """A help formatter that fills paragraphs, folds examples, and breaks lines between words.

    short_usage     leave out the options in the usage, as on a narrow terminal
    """

    def __init__(self, prog: str, *, short_usage: bool = False) -> None:
        super().__init__(prog)
        self._narrow = self._width < NARROW_WIDTH
        self._short_usage = short_usage or self._narrow
        if self._narrow:
            self._max_help_position = 3 * self._indent_increment

    def _format_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None,
    ) -> str:
        """Return the usage; a short one leaves out the options, which the help lists."""
        if usage is None and prefix is None and self._short_usage:
            names = [self._format_args(a, a.dest) for a in actions if not a.option_strings]
            return wrap(" ".join(["usage:", self._prog, "[OPTIONS]", *names]), self._width) + "\n\n"
        return super()._format_usage(usage, actions, groups, prefix)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent(reflow(text.strip(), width - len(indent)), indent)


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` with `Formatter`, whose errors name what was probably meant.

    The parsers of its actions are of this class, too.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": Formatter, **options})
        self._words: Sequence[str] = ()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the words; exit with an error for those that are left over.

        The default `unknown` of a parser is added to the message: what to do about them.
        """
        self._words = sys.argv[1:] if args is None else args
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            remedy = getattr(parsed, "unknown", "")
            self.error(f"{self._describe_unknown(unknown)}{remedy and f': {remedy}'}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Print a short usage and one sentence, and exit."""
        options = takewhile(lambda word: word != "--", self._words)
        unknown = [word for word in options if self._is_unknown_option(word)]
        if unknown and message.startswith(MISSING_ARGUMENTS):  # one of them, mistyped
            message = self._describe_unknown(unknown)
        usage = Formatter(self.prog, short_usage=True)
        usage.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        sentence = f"{self.prog}: error: {message}; `{self.prog} --help` explains"
        if sys.stderr.isatty():
            sentence = wrap(sentence, shutil.get_terminal_size().columns)
        self.exit(EXIT_USAGE, f"{usage.format_help()}{sentence}\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or an error; errors of standard output are raised, unlike those of errors."""
        if file is sys.stdout:
            print(message, end="")
        else:
            super()._print_message(message, file)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Return the values of an argument; a command keeps each `--` that is its own."""
        if action.dest == "command" and action.nargs == "+":
            return arg_strings[arg_strings[:1] == ["--"] :]
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError for a value that is none of the choices, with the closest one."""
        if action.choices is None or value in action.choices:
            return
        similar = did_you_mean(str(value), map(str, action.choices))
        if isinstance(action, argparse._SubParsersAction):
            kind = str(action.metavar).lower()
            raise argparse.ArgumentError(None, f"unknown {kind} {value!r}{similar}")
        known = ", ".join(map(str, action.choices))
        raise argparse.ArgumentError(action, f"cannot be {value!r}{similar}: choose from {known}")

    def _is_unknown_option(self, word: str) -> bool:
        return word.startswith("--") and word.partition("=")[0] not in self._option_string_actions

    def _describe_unknown(self, words: Sequence[str]) -> str:
        """Return which words mean nothing here, with the option that each may have been."""
        options = [name for name in self._option_string_actions if name.startswith("--")]
        described = [
            f"{word}{did_you_mean(word.partition('=')[0], options) if word[:2] == '--' else ''}"
            for word in words
        ]
        return f"unrecognized arguments: {' '.join(described)}"
