"""Options about the database of a service, which several verbs share."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from tuner import db
from tuner.base.errors import InputError
from tuner.base.units import parse_duration
from tuner.cli.options.argument_types import count_option

DEFAULT_DATABASE = "sqlite:///tuner.db"


def add_database_option(parser: argparse.ArgumentParser) -> None:
    """Declare the option that names the database."""
    parser.add_argument(
        "--db",
        default=DEFAULT_DATABASE,
        metavar="URL",
        help=f"database (default: {DEFAULT_DATABASE})",
    )


def add_retention_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that limit what is kept."""
    group = parser.add_argument_group(
        "retention",
        "What is deleted, if anything: what exceeds one of the limits that are given. Versions that"
        " were ever published are kept, and those that programs have reported on in 30 days.",
    )
    count_option(
        group,
        "--keep-jobs",
        "keep the newest N ended jobs with their results (default: all)",
        metavar="N",
    )
    group.add_argument(
        "--keep-jobs-for",
        type=parse_age,
        metavar="AGE",
        help="keep jobs for this long after their end, such as 90d (default: for ever)",
    )
    count_option(
        group,
        "--keep-tables",
        "keep the newest N versions for each cluster and library (default: all)",
        metavar="N",
    )
    group.add_argument(
        "--keep-tables-for",
        type=parse_age,
        metavar="AGE",
        help="keep versions for this long, such as 365d (default: for ever)",
    )


def retention_of(options: argparse.Namespace) -> db.Retention:
    """Return the retention limits of the options."""
    return db.Retention(
        options.keep_jobs, options.keep_jobs_for, options.keep_tables, options.keep_tables_for
    )


def parse_age(text: str) -> timedelta:
    """Return the duration of `90d` or `12h`; raise InputError for anything else."""
    try:
        found = timedelta(seconds=parse_duration(text))
        datetime.now(UTC) - found  # raises OverflowError before year 1
        return found
    except OverflowError:
        raise InputError(f"{text} is longer than any calendar: write it like 90d") from None
