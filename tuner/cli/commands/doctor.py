"""Say which MPI an interpreter has, what works with it, and what to type where something does not.

Nothing is changed or measured; two ranks are started and end at once. With --hosts one rank is
started on every host, and what they have is compared; so it is with the hosts of a batch job. The
exit status is 1 where nothing can be measured."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator

from rich.text import Text

from tuner.base.units import plural
from tuner.cli.options import host_options
from tuner.cli.options.host_options import add_library_options
from tuner.cli.terminal.layout import display_width, fold_command
from tuner.cli.terminal.output import console, finish_command, print_result
from tuner.diagnosis import Diagnosis, Finding, SetupProblem, diagnose
from tuner.launch import find_interpreter, template

EXAMPLES = """examples:
  tuner doctor
  tuner doctor --python /opt/site/bin/python3
  tuner doctor --library mpich --json
  tuner doctor --hosts node1,node2,node3"""

TOPIC_WIDTH = 12  # columns of a topic's name


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_library_options(parser)
    host_options.add_host_options(parser.add_argument_group("several hosts"))
    finish_command(parser, run)


def run(options: argparse.Namespace) -> int:
    """Diagnose and print; return 0 if something can be measured, else 1."""
    python = find_interpreter(options.library or "", options.python)
    there = host_options.resolve_hosts(options)
    diagnosis = diagnose(python, there, options.launcher or template.batch_template())
    print_result(options.json, diagnosis.to_record(), lambda: _print(diagnosis))
    return 0 if diagnosis.is_usable else 1


def _print(diagnosis: Diagnosis) -> None:
    screen = console()
    for line in format_report(diagnosis, screen.width):
        screen.print(Text(line), soft_wrap=True)


def format_report(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    """Yield the lines of the report for a terminal of `width` columns."""
    for finding in diagnosis.findings:
        yield from _finding(finding, width)
    yield ""
    yield plural(len(diagnosis.problems), "problem") if diagnosis.problems else "no problems"
    for number, problem in enumerate(diagnosis.problems, start=1):
        yield from _problem(number, problem, width)


def _finding(finding: Finding, width: int) -> Iterator[str]:
    """Yield a topic beside its findings, or above them if a word of them needs the room."""
    name, indent = f"{finding.topic:{TOPIC_WIDTH}}", " " * TOPIC_WIDTH
    words = " ".join(finding.lines).split()
    if max(map(display_width, words), default=0) > width - TOPIC_WIDTH:
        yield finding.topic
        name = indent = "  "
    for line in finding.lines:
        yield from _wrapped(line, name, indent, width)
        name = indent


def _problem(number: int, problem: SetupProblem, width: int) -> Iterator[str]:
    """Yield what is wrong, then what to type: commands have lines of their own."""
    yield from _wrapped(problem.text, f" {number}. ", "    ", width)
    for place, part in enumerate(problem.remedy.split("`")):
        if place % 2:
            yield fold_command(f"      {part}", width)
        elif words := part.strip(" ,;"):
            yield from _wrapped(words, "    ", "    ", width)


def _wrapped(text: str, first: str, others: str, width: int) -> list[str]:
    """Break a text between words; if its first word does not fit beside `first`, begin below it."""
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    if first.strip() and display_width(lines[0]) > width:
        return [first.rstrip(), *_wrapped(text, others, others, width)]
    return lines
