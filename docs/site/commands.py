"""The reference pages of the command line, made from its parsers: a page for each command."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from docs.site.prose import markdown
from tuner import run
from tuner.cli.main import COMMANDS, build_parser

WIDTH = 84  # columns of a usage line


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every page."""
    os.environ["COLUMNS"] = str(WIDTH)
    for name, summary in COMMANDS.items():
        parser = subparsers(build_parser([name]))[name]
        yield name, f"# tuner {name}\n\n`tuner {name}`: {summary}.\n\n{_described(parser, 2)}\n"
    yield "tuner-run", f"# python -m tuner.run\n\n{_described(run.make_parser(), 2)}\n"


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the verbs or actions of a parser."""
    return {
        name: command
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, command in action.choices.items()
    }


def _described(parser: argparse.ArgumentParser, level: int) -> str:
    parts = [markdown(parser.description or ""), f"```text\n{_usage(parser)}\n```"]
    for group in parser._action_groups:
        parts.append(_options(parser, group))
    for name, action in subparsers(parser).items():
        parts += [f"{'#' * level} {parser.prog} {name}", _described(action, level + 1)]
    if level == 2 and parser.epilog:
        parts += ["## Examples", f"```text\n{_examples(parser.epilog)}\n```"]
    return "\n\n".join(part for part in parts if part)


def _usage(parser: argparse.ArgumentParser) -> str:
    return parser.format_usage().removeprefix("usage: ").rstrip()


def _examples(epilog: str) -> str:
    return epilog.strip().removeprefix("examples:\n")


def _options(parser: argparse.ArgumentParser, group: argparse._ArgumentGroup) -> str:
    """Return the options of a group as a list of definitions."""
    formatter = parser._get_formatter()
    entries = []
    for action in group._group_actions:
        hidden = action.help == argparse.SUPPRESS or action.dest == "help"
        if hidden or isinstance(action, argparse._SubParsersAction):
            continue
        explained = formatter._expand_help(action) if action.help else _choices(action)
        name = formatter._format_action_invocation(action)
        entries.append(f"`{name}`\n: {markdown(explained) or 'as its name says'}")
    return "\n\n".join(entries)


def _choices(action: argparse.Action) -> str:
    if action.choices:
        return f"one of {', '.join(map(str, action.choices))}"
    return {"table": "a file with a tuning table"}.get(action.dest, "")
