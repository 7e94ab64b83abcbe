"""Processes of their own that use a database, and may be killed at any moment.

Starting one takes milliseconds (`tests.support.forks`).
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from tests.support.forks import forks
from tests.support.waiting import be_slow, patience
from tuner import db
from tuner.db import queue


class Child:
    """A running process and what it has said so far."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self._ear, mouth = Pipe(duplex=False)
        with mouth:
            self.pid = forks().start(target, arguments, mouth.fileno())
        self._status: int | None = None

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

    def end(self) -> int:
        """Its exit status, once it has ended; what it says until then is dropped."""
        if self._status is None:
            self.everything()
            self._status = forks().wait(self.pid)
        return self._status

    def signal(self, number: int) -> None:
        """Send a signal, unless it is known to have ended."""
        if self._status is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9; what it has said can still be read."""
        self.signal(signal.SIGKILL)


def open_and_check(mouth: Connection, url: str) -> None:
    """Open a database that others open at the same time."""
    db.check_ready(db.open_database(url))
    mouth.send("ready")


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
