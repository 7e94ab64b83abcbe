"""Look after the database of a service."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from tuner import db
from tuner.base.errors import UsageError
from tuner.base.units import plural
from tuner.cli.options.database import add_database_option, add_retention_options, retention_of
from tuner.cli.terminal.output import add_subcommand, print_result, print_text

MAX_SHOWN_IDS = 20  # ids that are printed; --json has all
EXAMPLES = """examples:
  tuner db prune --keep-jobs-for 90d --keep-tables 20 --dry-run
  tuner db prune --keep-jobs-for 90d --keep-tables 20 --db postgresql://tuner@db/tuner

A service does the same every hour with the same options: `tuner serve --keep-jobs-for 90d`."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    summary = "delete ended jobs and versions of tables that are not to be kept"
    prune = add_subcommand(actions, "prune", summary, EXAMPLES, run_prune)
    add_database_option(prune)
    add_retention_options(prune)
    prune.add_argument(
        "--dry-run", action="store_true", help="print what would be deleted, and delete nothing"
    )


def run_prune(options: argparse.Namespace) -> None:
    """Delete what exceeds the limits, unless this is a dry run, and print it."""
    retention = retention_of(options)
    if retention.keeps_all:
        raise UsageError("nothing to delete: say what to keep, such as --keep-jobs-for 90d")
    engine = db.open_database(options.db, must_exist=True)
    if options.dry_run:
        with db.read_session(engine) as session:
            found = db.find_prunable(session, retention)
    else:
        found = _sum(list(db.prune(engine, retention)))
    engine.dispose()
    verb = "would delete" if options.dry_run else "deleted"
    record = {**asdict(found), "dry_run": options.dry_run}
    print_result(options.json, record, lambda: print_text(f"{verb} {_listed(found)}"))


def _sum(steps: Sequence[db.Prunable]) -> db.Prunable:
    return db.Prunable(
        tuple(job for step in steps for job in step.jobs),
        tuple(version for step in steps for version in step.tables),
    )


def _listed(found: db.Prunable) -> str:
    """Return the deleted records for people, such as `2 jobs (3, 4) and 1 table version (7)`."""
    jobs = plural(len(found.jobs), "job") + _numbers(found.jobs)
    return f"{jobs} and {plural(len(found.tables), 'table version')}{_numbers(found.tables)}"


def _numbers(numbers: Sequence[int]) -> str:
    if not numbers:
        return ""
    rest = f", and {len(numbers) - MAX_SHOWN_IDS} more" if len(numbers) > MAX_SHOWN_IDS else ""
    return f" ({', '.join(map(str, numbers[:MAX_SHOWN_IDS]))}{rest})"
