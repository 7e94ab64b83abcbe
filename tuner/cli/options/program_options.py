"""Options of the commands that start a user's program under a table."""

from __future__ import annotations

import argparse

from tuner.cli.options.argument_types import file_option


def add_program_options(parser: argparse.ArgumentParser) -> None:
    """Declare where the table comes from, and the command of the program."""
    source = parser.add_mutually_exclusive_group()
    file_option(source, "--table", "tuning table to follow (default: TUNER_TABLE)")
    source.add_argument(
        "--service",
        metavar="URL",
        help="service to fetch the published table from (default: TUNER_SERVICE)",
    )
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        help="cluster whose table to fetch, if the service has several (default: TUNER_CLUSTER)",
    )
    add_command(parser)


def add_command(parser: argparse.ArgumentParser) -> None:
    """Declare the command of the program."""
    parser.add_argument(
        "command", nargs="+", metavar="COMMAND", help="program and arguments, after --"
    )
    hint = f"write the command after --: {parser.prog} -- mpirun -n 64 ./solver input.dat"
    parser.set_defaults(unknown=hint)
