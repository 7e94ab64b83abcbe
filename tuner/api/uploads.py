"""Storing what was uploaded. A large file is read in a process of its own: beside a thread that
computes, every answer of this one would wait for its turn.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from tuner import db
from tuner.errors import InputError

SMALL = 1 << 20  # bytes that are stored before a process would have started
NICENESS = 5  # requests go before uploads
_START = multiprocessing.get_context("spawn")


def store(engine: db.Engine, path: Path) -> db.Stored:
    """As `db.ingest`; UnavailableError also when the process died."""
    if path.stat().st_size <= SMALL:
        return db.ingest(engine, path)
    database = engine.url.render_as_string(hide_password=False)
    receiver, sender = _START.Pipe(duplex=False)
    process = _START.Process(target=_store, args=(database, path, sender), daemon=True)
    process.start()
    sender.close()
    try:
        outcome: db.Stored | InputError = receiver.recv()
    except EOFError:
        raise db.UnavailableError(
            "the upload broke off inside the service: send it again"
        ) from None
    finally:
        receiver.close()
        process.join()
    if isinstance(outcome, InputError):
        raise outcome
    return outcome


def end_with_parent() -> None:
    """Have this process ended when the one that started it has ended."""
    threading.Thread(target=_follow, daemon=True).start()


def _store(database: str, path: Path, sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends this one
    end_with_parent()
    os.nice(NICENESS)
    try:
        engine = db.open_database(database)
        sender.send(db.ingest(engine, path))
    except InputError as reason:
        sender.send(reason)


def _follow() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
