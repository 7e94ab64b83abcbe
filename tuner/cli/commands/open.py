"""Say what files hold: results of benchmarks, topologies, rules, traces of training and others. For
each: what it is, what is slow in it, and which commands take it. Two files of results are compared,
and results beside a machine with what it should give."""

from __future__ import annotations

import argparse

from tuner.base.units import format_time
from tuner.cli.options.argument_types import count_option
from tuner.cli.terminal.output import (
    finish_command,
    print_command,
    print_omitted,
    print_result,
    print_table,
    print_text,
)
from tuner.importers import UserMetadata
from tuner.overview import (
    NOT_READ,
    Overview,
    TimeComparison,
    compare_overviews,
    open_files,
    overviews_record,
)
from tuner.overview.slow_calls import NOISE

MAX_ROWS = 12  # rows of a table, so that it fits on one screen
EXAMPLES = """examples:
  tuner open osu_allreduce.txt
  tuner open before.txt after.txt  # of an upgrade
  tuner open osu_allreduce.txt preset:dgx-h100 --ranks 64 --nodes 8
  tuner open trace.json
  tuner open topology.xml

`tuner FILE` is the same for one file."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="files, or machines as preset:NAME; of two files of results the first is taken as"
        " before and the second as after, unless both say when they were measured",
    )
    count_option(parser, "--ranks", "ranks of results that do not say it", metavar="N")
    count_option(parser, "--nodes", "nodes of results that do not say it", metavar="N")
    count_option(parser, "--ppn", "ranks per node of results that do not say it", metavar="N")
    parser.add_argument(
        "--collective",
        default="",
        metavar="NAME",
        help="collective of results that do not say it, such as allreduce",
    )
    finish_command(parser, run)


def run(options: argparse.Namespace) -> int:
    """Open the files, and print an overview of each and what they tell together.

    Return 1 where a file could not be read.
    """
    told = UserMetadata(options.ranks, options.nodes, options.ppn, options.collective)
    found = open_files(options.files, told)
    compared = compare_overviews(found)

    def show() -> None:
        for one in found:
            _print_overview(one)
        for each in compared:
            _print_comparison(each)

    record = overviews_record(found, compared)
    print_result(options.json, record, show)
    return int(any(one.kind == NOT_READ for one in found))


def _print_overview(one: Overview) -> None:
    print_text(f"{one.source}: {one.kind}", style="bold")
    for fact in one.facts:
        print_text(f"  {fact}")
    if one.slow:
        print_text("what is slow in it")
        for sentence in one.slow:
            print_text(f"  {sentence}")
    if one.commands:
        print_text("what to type")
        for each in one.commands:
            print_command(f"  {each.purpose}", each.text)
    print_text("")


def _print_comparison(found: TimeComparison) -> None:
    print_text(found.title, style="bold")
    for sentence in filter(None, (found.summary, found.note)):
        print_text(f"  {sentence}")
    order = sorted(found.calls, key=lambda one: max(one.ratio, 1 / one.ratio), reverse=True)
    shown = [one for one in order[:MAX_ROWS] if not 1 / NOISE <= one.ratio <= NOISE]
    rows = [
        (
            one.call,
            format_time(one.reference),
            format_time(one.seconds),
            f"{one.ratio:.2f}",
            one.algorithm,
        )
        for one in found.calls
        if one in shown
    ]
    columns = ("call", *found.columns, "ratio", "algorithm")
    if rows:
        print_table("", columns, rows, right=columns[1:4], droppable=columns[4:])
        print_omitted(len(found.calls), len(rows), ", which differ less: --json has all")
    for each in found.commands:
        print_command(each.purpose, each.text)
    print_text("")
