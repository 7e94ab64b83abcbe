"""Serve measurements, tables and what they decide over HTTP, and carry out the jobs."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from tuner.cli import parsing
from tuner.cli.environments import interpreter
from tuner.cli.output import print_text
from tuner.errors import InputError
from tuner.units import parse_size

DATABASE = "sqlite:///tuner.db"
EXTRA = ("fastapi", "pydantic", "prometheus_client", "sse_starlette", "starlette", "uvicorn")
EXAMPLES = """examples:
  tuner serve
  tuner serve --db sqlite:////srv/tuner.db --port 9000
  tuner token create reader --scope read --db postgresql://tuner@db/tuner
  tuner serve --host 0.0.0.0 --db postgresql://tuner@db/tuner --processes 4 --no-jobs
  tuner serve --jobs-only --db postgresql://tuner@db/tuner

On loopback no token is needed. Anywhere else there must be one, and TLS belongs in front: let a
proxy end it and forward to a service on loopback with --require-tokens."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8765, help="0: any free one (default: 8765)")
    add_database(parser)
    parser.add_argument(
        "--processes",
        type=parsing.positive,
        default=1,
        metavar="N",
        help="that answer (default: 1)",
    )
    jobs = parser.add_mutually_exclusive_group()
    jobs.add_argument("--no-jobs", action="store_true", help="leave jobs to other services")
    jobs.add_argument("--jobs-only", action="store_true", help="answer no requests")
    parser.add_argument(
        "--require-tokens", action="store_true", help="on loopback too, as behind a proxy"
    )
    parser.add_argument(
        "--rate-limit", type=float, metavar="N",
        help="requests per second and client, 0: no limit (default: none on loopback, else 200)",
    )  # fmt: skip
    parser.add_argument(
        "--upload-limit", type=parse_size, metavar="SIZE",
        help="of one upload of measurements (default: 1GiB)",
    )  # fmt: skip
    parser.add_argument(
        "--mpich-python", type=Path, metavar="PYTHON",
        help="interpreter of the environment with MPICH, whose own rules complete tables in its"
        " format (default: .venv-mpich/bin/python)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def add_database(parser: argparse.ArgumentParser) -> None:
    """The option that names the database."""
    parser.add_argument(
        "--db", default=DATABASE, metavar="URL", help=f"database (default: {DATABASE})"
    )


def run(options: argparse.Namespace) -> None:
    """Serve until interrupted."""
    if not 0 <= options.port < 1 << 16:
        raise InputError("--port is a number from 0 to 65535")
    for name in EXTRA:
        if find_spec(name) is None:
            raise InputError(f"the service needs {name}: pip install 'tuner[service]'")
    from tuner.api import server, settings

    if options.jobs_only:
        print_text(f"tuner carries out the jobs of {_shown(options.db)}; Ctrl-C ends it")
        server.run_jobs(options.db)
        return
    mpich = interpreter("mpich", options.mpich_python)
    chosen = settings.Settings(
        database=options.db, host=options.host, port=options.port, processes=options.processes,
        runs_jobs=not options.no_jobs, require_tokens=options.require_tokens,
        rate_limit=options.rate_limit,
        measurements_limit=options.upload_limit or settings.MEASUREMENTS_LIMIT,
        mpich_python=mpich if mpich.exists() or options.mpich_python else None,
    )  # fmt: skip
    server.serve(chosen, _announce)


def _announce(address: str) -> None:
    print_text(f"tuner answers at {address} (see /openapi.json); Ctrl-C ends it")


def _shown(database: str) -> str:
    """The URL without the password."""
    scheme, separator, rest = database.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2].partition('?')[0]}"
