"""Serve measurements, tables and what they decide over HTTP, and carry out the jobs."""

from __future__ import annotations

import argparse
import ipaddress

from tuner.base.errors import InputError, UsageError, shortened_repr
from tuner.base.units import parse_size
from tuner.cli.options import argument_types
from tuner.cli.options.argument_types import count_option, file_option
from tuner.cli.options.database import add_database_option, add_retention_options, retention_of
from tuner.cli.quick_imports import quick_imports
from tuner.cli.terminal.output import print_text
from tuner.launch import find_interpreter

EXAMPLES = """examples:
  tuner serve
  tuner serve --db sqlite:////srv/tuner.db --port 9000
  tuner token create reader --scope read --db postgresql://tuner@db/tuner
  tuner serve --host 0.0.0.0 --db postgresql://tuner@db/tuner --processes 4 --no-jobs
  tuner serve --jobs-only --db postgresql://tuner@db/tuner
  tuner serve --proxy-headers 127.0.0.1 --access-log /var/log/tuner/access.log
  tuner serve --keep-jobs-for 90d --keep-tables 20

On loopback no token is needed. Anywhere else there must be one, and TLS belongs in front: let a
proxy end it and forward to a service on loopback with --proxy-headers.
docs/how-to/run-a-service.md says how to run a service."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=8765, help="port, 0 for any free one (default: 8765)"
    )
    add_database_option(parser)
    count_option(
        parser, "--processes", "processes that answer requests (default: 1)", default=1, metavar="N"
    )
    jobs = parser.add_mutually_exclusive_group()
    jobs.add_argument("--no-jobs", action="store_true", help="leave jobs to other services")
    jobs.add_argument("--jobs-only", action="store_true", help="run jobs and answer no requests")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="let clients have this computer measured (scope submit), which takes all its cores",
    )
    _add_access(parser)
    _add_limits(parser)
    add_retention_options(parser)
    file_option(
        parser,
        "--mpich-python",
        "interpreter of the environment with MPICH, whose own rules complete tables in its"
        " format (default: .venv-mpich/bin/python)",
        metavar="PYTHON",
    )
    parser.set_defaults(run=run)


def _add_access(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--require-tokens", action="store_true", help="require tokens on loopback, too"
    )
    parser.add_argument(
        "--proxy-headers",
        type=parse_networks,
        default=(),
        metavar="PROXIES",
        help="addresses and networks of the proxies in front, a comma list: their X-Forwarded-For"
        " names the client in limits and logs; tokens are then required (default: none)",
    )
    parser.add_argument(
        "--access-log",
        metavar="FILE",
        help="log each request as a line of JSON; - is standard error (default: no log)",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rate-limit",
        type=float,
        metavar="N",
        help="requests per second and client, 0: no limit (default: none on loopback, else 200)",
    )
    parser.add_argument(
        "--queued-jobs",
        type=argument_types.non_negative_int,
        metavar="N",
        help="queued jobs per token, or per address without one; 0: no limit (default: 100)",
    )
    parser.add_argument(
        "--upload-limit",
        type=parse_size,
        metavar="SIZE",
        help="size limit of one upload of measurements (default: 1GiB)",
    )


def parse_networks(text: str) -> tuple[str, ...]:
    """Parse a comma list of addresses and networks; raise InputError for anything else."""
    listed = argument_types.name_list(text)
    for each in listed:
        try:
            ipaddress.ip_network(each)
        except ValueError:
            raise InputError(
                f"expected an address or network such as 127.0.0.1 or 10.1.0.0/16, got"
                f" {shortened_repr(each)}"
            ) from None
    return listed


def run(options: argparse.Namespace) -> None:
    """Serve until interrupted."""
    if not 0 <= options.port < 1 << 16:
        raise UsageError("--port is a number from 0 to 65535")
    if options.measure and options.no_jobs:
        raise UsageError("--measure needs jobs, which measure this computer: leave out --no-jobs")
    with quick_imports():
        from tuner.api import server
        from tuner.api.settings import MAX_QUEUED_JOBS, MEASUREMENTS_LIMIT_BYTES, Settings

    mpich, queued = find_interpreter("mpich", options.mpich_python), options.queued_jobs
    settings = Settings(
        database=options.db,
        host=options.host,
        port=options.port,
        processes=options.processes,
        runs_jobs=not options.no_jobs,
        measures=options.measure,
        require_tokens=options.require_tokens,
        rate_limit=options.rate_limit,
        max_queued_jobs=MAX_QUEUED_JOBS if queued is None else queued,
        measurements_limit=options.upload_limit or MEASUREMENTS_LIMIT_BYTES,
        trusted_proxies=options.proxy_headers,
        access_log=options.access_log,
        retention=retention_of(options),
        mpich_python=mpich if mpich.exists() or options.mpich_python else None,
    )
    if options.jobs_only:
        server.run_jobs(settings, lambda: print_text("tuner carries out jobs; Ctrl-C ends it"))
    else:
        server.serve(settings, _announce)


def _announce(address: str) -> None:
    print_text(f"tuner answers at {address} (see /openapi.json); Ctrl-C ends it")
