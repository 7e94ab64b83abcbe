"""Processes of their own that use a database, and may be killed at any moment.

They are forked from a server that has imported everything once: starting one takes milliseconds.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from tests.support.waiting import be_slow, patience
from tuner import db
from tuner.db import ingestion, queue

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.support.children"])
PAUSED = "paused"


class Child:
    """A running process and what it has said so far."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self._ear, mouth = _CONTEXT.Pipe(duplex=False)
        self.process: BaseProcess = _CONTEXT.Process(target=target, args=(mouth, *arguments))
        self.process.start()
        mouth.close()

    def next_word(self) -> Any:
        """Waits for it; None when the process ended without another one."""
        if not self._ear.poll(patience()):
            raise TimeoutError("the process is silent")
        with suppress(EOFError):
            return self._ear.recv()
        return None

    def everything(self) -> list[Any]:
        """What it says until it ends."""
        return list(iter(self.next_word, None))

    def end(self) -> int | None:
        """Its exit status."""
        self.process.join(patience())
        return self.process.exitcode

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.join(patience())


def open_and_check(mouth: Connection, url: str) -> None:
    """Open a database that others open at the same time."""
    db.check_ready(db.open_database(url))
    mouth.send("ready")


def ingest_files(
    mouth: Connection, url: str, paths: Sequence[Path], chunk: int, pause_at: int = 0
) -> None:
    """Store files one after the other, and send (place, id) after each.

    pause_at    send PAUSED and wait to be killed in the transaction that has stored nothing yet of
                such a piece of a file whose earlier pieces are committed; 1 for the first one, 0
                for none
    """
    ingestion.MAX_SERIES_PER_TRANSACTION, ingestion.LEASE_DURATION = chunk, timedelta(seconds=0.2)
    engine = db.open_database(url)
    if pause_at:
        _pause_before_piece(engine, mouth, pause_at)
    mouth.send("begun")
    for place, path in enumerate(paths):
        mouth.send((place, db.ingest(engine, path).id))


def _pause_before_piece(engine: Engine, mouth: Connection, pause_at: int) -> None:
    pieces = itertools.count(1)

    def listen(_c: object, _statement: object, rows: Sequence[Mapping[str, Any]], *_: Any) -> None:
        is_later_piece = bool(rows) and rows[0].get("ordinal", 0) > 0
        if is_later_piece and next(pieces) == pause_at:
            mouth.send(PAUSED)
            signal.pause()

    event.listen(engine, "before_execute", listen)


def run_jobs(mouth: Connection, url: str, name: str) -> None:
    """Run jobs until all have ended; now and then be stuck for longer than a lease.

    A job's result is a topology, stored in the transaction that ends the job.
    """
    queue.JOB_LEASE_S = 0.4
    engine, rng = db.open_database(url), random.Random(name)
    while True:
        claim = db.claim_job(engine, name, ["tune"])
        if claim is not None:
            with suppress(db.LostLeaseError):
                _run(engine, claim, rng)
                mouth.send(claim.id)
            continue
        with db.read_session(engine) as session:
            counts = db.count_jobs(session)
        if not counts["queued"] and not counts["running"]:
            break
        be_slow(0.05)  # a runner that looks again after a while


def _run(engine: Any, claim: db.Claim, rng: random.Random) -> None:
    with db.transaction(engine) as session:
        db.heartbeat(session, claim, 0.5)
    if rng.random() < 0.15:
        be_slow(0.8)
    with db.transaction(engine) as session:
        db.store_topology(session, f"{claim.id} by {claim.attempt}", "yaml", "", {})
        db.finish_job(session, claim, {})
