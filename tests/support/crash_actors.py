"""The work of the processes of the crash harness, and the moments at which they kill themselves.

Each is forked, and so are its modules: what a service and the command line need is imported here.
A process says what it has done in tuples (kind, number, value), as `crash_model.Model` takes them.
"""

from __future__ import annotations

import io
import itertools
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event, make_url
from sqlalchemy.orm import Session
from sqlalchemy.pool import Pool

import tuner.api.app
import tuner.cli.commands.db
import tuner.cli.commands.publish
import tuner.cli.commands.token
from tests.support.crash_model import (
    CLAIMED,
    DONE,
    JOB,
    KEPT_JOBS,
    KEPT_TABLES,
    MEASUREMENTS,
    PUBLICATION,
    TABLE,
    TOKEN,
    numbered_table,
)
from tuner import db
from tuner.api import readiness
from tuner.api.server import serve
from tuner.api.settings import Settings
from tuner.api.workers import WorkerPool
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.db import ingestion, queue

UNPRIVILEGED = 65534  # the user `nobody`, whom permissions hold
STATEMENT, COMMIT, COMMITTED, WRITE = "statement", "commit", "committed", "write"
_CHANGING_USER = threading.Lock()  # of the whole process, whose threads connect at the same time
_CONNECTIONS: list[Any] = []  # that this process has made
Death = tuple[str, int] | None  # before so many of these, or after so many bytes of a file
Work = Sequence[tuple[str, int, Any]]  # kind, number, and what it needs


def begin(death: Death) -> None:
    """Shorten what waits, and arrange the death of this process."""
    ingestion.MAX_SERIES_PER_TRANSACTION = 25
    ingestion.LEASE_DURATION = timedelta(0)
    queue.JOB_LEASE_S = 0.0
    readiness.CHECK_INTERVAL_S = 0.0
    event.listen(Pool, "connect", lambda connection, _: _CONNECTIONS.append(connection))
    if death is None:
        return
    kind, number = death
    if kind == WRITE:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # ends the process in the middle of a write
        resource.setrlimit(resource.RLIMIT_FSIZE, (number, resource.RLIM_INFINITY))
        return
    countdown = itertools.count(1)

    def count(*_: object) -> None:
        if next(countdown) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    if kind == STATEMENT:
        event.listen(Engine, "before_cursor_execute", count)
    elif kind == COMMIT:
        event.listen(Engine, "commit", count)
    else:
        event.listen(Session, "after_commit", count)


def connect_unprivileged(dialect: Any, _record: object, given: Any, named: Any) -> Any:
    """Return a new connection, whose file was opened by a user who is not root."""
    with _CHANGING_USER:
        os.seteuid(UNPRIVILEGED)
        try:
            return dialect.connect(*given, **named)
        finally:
            os.seteuid(0)


def leave() -> None:
    """Close what is still open, as the interpreter does at the end of a program."""
    for connection in _CONNECTIONS:
        connection.close()


class CalibrationsOnly(Settings):
    """Settings of a service that runs no studies, which are the jobs of the harness."""

    @property
    def job_kinds(self) -> tuple[str, ...]:
        """Return the kinds of jobs that this service runs."""
        return ("calibrate",)


def run_service(
    mouth: Connection, url: str, death: Death, prunes: bool = False, unprivileged: bool = False
) -> None:
    """Serve on a free port, and send the address.

    Its threads for jobs and for pruning open the database for themselves, as those of every service
    do.

    prunes          whether it deletes old tables and jobs
    unprivileged    open the database as a user whom the permissions of files hold
    """
    begin(death)
    if unprivileged and os.geteuid() == 0:
        event.listen(Engine, "do_connect", connect_unprivileged)
    WorkerPool.prepare = staticmethod(lambda: None)  # type: ignore[method-assign]  # takes seconds
    with suppress(BrokenPipeError):
        retention = db.Retention(KEPT_JOBS, None, KEPT_TABLES) if prunes else db.KEEP_ALL
        serve(CalibrationsOnly(database=url, port=0, retention=retention), mouth.send)


def run_command(mouth: Connection, words: Sequence[str], death: Death, kind: str, n: int) -> None:
    """Run a command line; send what it printed under this kind and number if it succeeded."""
    begin(death)
    printed, said = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(said):
        status = main(words)
    if status == 0:
        mouth.send((kind, n, printed.getvalue().strip()))
    leave()


def write_directly(mouth: Connection, url: str, work: Work, death: Death) -> None:
    """Store one thing after the other, without a service."""
    begin(death)
    engine = db.open_database(url)
    for kind, n, needed in work:
        with suppress(InputError):  # another one has the lock, or takes the upload over
            WRITERS[kind](mouth, engine, n, needed)
    leave()


def _publish(mouth: Connection, engine: Engine, n: int, _: None) -> None:
    with db.transaction(engine) as session:
        version = db.store_table(session, numbered_table(n)).id
    mouth.send((TABLE, n, version))
    with db.transaction(engine) as session:
        publication = db.publish(session, version)
    mouth.send((PUBLICATION, publication.id, version))


def _ingest(mouth: Connection, engine: Engine, n: int, path: Path) -> None:
    mouth.send((MEASUREMENTS, n, db.ingest(engine, path).id))


def _enqueue(mouth: Connection, engine: Engine, n: int, _: None) -> None:
    with db.transaction(engine) as session:
        number = db.enqueue_job(session, "study", {"name": str(n)})
    mouth.send((JOB, n, number))


def _create_token(mouth: Connection, engine: Engine, n: int, _: None) -> None:
    with db.transaction(engine) as session:
        token = db.create_token(session, str(n), ["read"])
    mouth.send((TOKEN, n, token))


def _run_job(mouth: Connection, engine: Engine, _n: int, _: None) -> None:
    """Claim one job, if there is any, and store its result in the transaction that ends it."""
    claim = db.claim_job(engine, "here", ["study"])
    if claim is None:
        return
    mouth.send((CLAIMED, claim.id, None))
    with suppress(db.LostLeaseError):
        with db.transaction(engine) as session:
            db.heartbeat(session, claim, 0.5)
        with db.transaction(engine) as session:
            db.store_topology(session, f"{claim.id} {claim.attempt}", "yaml", "", {})
            db.finish_job(session, claim, {})
        mouth.send((DONE, claim.id, True))


WRITERS: dict[str, Callable[[Connection, Engine, int, Any], None]] = {
    TABLE: _publish,
    MEASUREMENTS: _ingest,
    JOB: _enqueue,
    TOKEN: _create_token,
    DONE: _run_job,
}


def report_opened(mouth: Connection, path: Path) -> None:
    """Use a database as a service and the command line do; report what Python opens of it.

    Sends the name of each file, and whether it was to be a new one.
    """

    def hear(name: str, details: tuple[Any, ...]) -> None:
        if name == "open" and str(details[0]).startswith(str(path)):
            is_new = bool((details[2] or 0) & os.O_EXCL)
            mouth.send((Path(details[0]).name, is_new))

    sys.addaudithook(hear)
    url = f"sqlite:///{path}"
    app = tuner.api.app.create_app(Settings(database=url))
    engine = app.state.service.engine
    for words in (["token", "create", "1", "--scope", "read"], ["db", "prune", "--keep-jobs", "1"]):
        with redirect_stdout(io.StringIO()):
            assert main([*words, "--db", url]) == 0
    list(db.prune(engine, db.Retention(1, None, 1)))
    db.exposed_modes(engine)
    app.state.service.readiness.require()
    engine.dispose()


def back_up(mouth: Connection, url: str, to: Path, death: Death) -> None:
    """Copy an SQLite database with its own online backup, page by page, as `sqlite3` does."""
    begin(death)
    with sqlite3.connect(str(make_url(url).database)) as source, sqlite3.connect(to) as copy:
        source.backup(copy, pages=7)
    copy.close()
    source.close()
    mouth.send(("backup", 0, None))


def dump(mouth: Connection, url: str, to: Path, programs: str) -> None:
    """Copy a PostgreSQL database with its own program."""
    command = [f"{programs}/pg_dump", "--format=custom", f"--file={to}", url]
    subprocess.run(command, check=True)
    mouth.send(("backup", 0, None))


def warm_up() -> None:
    """Make once what each child would make anew: mappings, routes and the list of migrations.

    The process that children are forked from calls it when it imports this module.
    """
    with suppress(InputError):
        app = tuner.api.app.create_app(Settings(database="sqlite://"))
        app.state.service.engine.dispose()
