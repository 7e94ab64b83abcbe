"""Open the studio in the browser: the report of your table, machines, algorithms and what would
help, on a service of its own that ends with this command."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.base.errors import UsageError
from tuner.cli.quick_imports import quick_imports
from tuner.cli.quickstart_files import DATABASE, OUT
from tuner.cli.terminal.output import print_text

EXAMPLES = """examples:
  tuner studio
  tuner studio --db sqlite:///tuner.db  # what a service has stored there
  tuner studio --no-browser --port 8800

After `tuner quickstart` in the same directory it shows what that has stored, and the report first.
Without --db and without a quickstart, what is uploaded is forgotten at the end. `tuner serve` has
the same pages for others; docs/how-to/use-the-studio.md explains them."""
STUDIO_PATH = "/studio/"
REPORT_PATH = "/studio/report"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--db",
        metavar="URL",
        help=f"database (default: {OUT / DATABASE}, else one for this run alone)",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port on 127.0.0.1 (default: any free one)"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address, and open no browser"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Serve the studio until interrupted."""
    if not 0 <= options.port < 1 << 16:
        raise UsageError("--port is a number from 0 to 65535")
    with quick_imports():
        from tuner.api import server
        from tuner.api.settings import Settings

    with _database(options.db) as database:

        def announce(address: str) -> None:
            url = address + (REPORT_PATH if _has_table(database) else STUDIO_PATH)
            print_text(f"the studio is at {url}; Ctrl-C ends it")
            if not options.no_browser and _has_display():
                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

        server.serve(Settings(database=database, port=options.port, measures=True), announce)


@contextmanager
def _database(url: str | None) -> Iterator[str]:
    """Yield the URL of a database: the given one, that of a quickstart, or a temporary one."""
    stored = OUT / DATABASE
    if url is not None:
        yield url
        return
    if stored.is_file():
        print_text(f"what is shown is stored in {stored}")
        yield f"sqlite:///{stored}"
        return
    with tempfile.TemporaryDirectory(prefix="tuner-studio-") as folder:
        yield f"sqlite:///{Path(folder) / 'studio.sqlite'}"


def _has_table(database: str) -> bool:
    """Return whether a table is stored, of which there is a report."""
    from tuner import db

    engine = db.open_database(database)
    with db.transaction(engine) as session:
        found = db.list_tables(session, limit=1)
    engine.dispose()
    return bool(found.items)


def _has_display() -> bool:
    """Return whether a browser would have a window; otherwise it would take over the terminal."""
    return sys.platform == "darwin" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
