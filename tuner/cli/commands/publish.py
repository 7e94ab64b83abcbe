"""Hand a tuning table to a service, which gives it to programs from now on."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner.base.errors import InputError
from tuner.cli.terminal.output import finish_command, print_result, print_text
from tuner.core.table import read_table, table_record
from tuner.formats.usable_table import require_usable
from tuner.runtime import service_client
from tuner.runtime.table_source import resolve_request

DEFAULT_SERVICE = "http://127.0.0.1:8765"
EXAMPLES = f"""examples:
  tuner publish tuner-out/openmpi/table.json
  tuner publish table.json --service https://tuner.example.org  # token: TUNER_TOKEN

The version before it stays: take this one back with
  curl -X POST {DEFAULT_SERVICE}/v1/publications/rollback -H 'Content-Type: application/json' \\
      -d '{{"cluster": "NAME", "library": "openmpi 5.0.11"}}'"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("table", type=Path, help="table written by `tuner tune`")
    parser.add_argument(
        "--service",
        default=DEFAULT_SERVICE,
        metavar="URL",
        help=f"service to publish to (default: {DEFAULT_SERVICE})",
    )
    parser.add_argument(
        "--no-publish",
        action="store_true",
        help="store the version, and let programs keep the table that they have",
    )
    finish_command(parser, run)


def run(options: argparse.Namespace) -> None:
    """Store the table, then publish its version; both are safe to repeat."""
    table = read_table(options.table)
    try:
        require_usable(table)
    except InputError as reason:
        raise InputError(f"{options.table}: {reason}") from None
    request = resolve_request(table.library, service=options.service)
    stored = service_client.post_record(request, "/v1/tables", table_record(table))
    if not options.no_publish:
        service_client.post_record(request, "/v1/publications", {"version": stored["version"]})
    record = {
        "version": stored["version"],
        "cluster": table.cluster.name,
        "library": table.library,
        "published": not options.no_publish,
    }
    what = "stored" if options.no_publish else "published"
    print_result(
        options.json,
        record,
        lambda: print_text(
            f"version {stored['version']} for {table.library} on {table.cluster} is {what}"
        ),
    )
