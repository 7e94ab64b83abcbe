"""Deletion of expired jobs and tables in the background of a service."""

from __future__ import annotations

import logging
import threading

from tuner import db
from tuner.base.errors import InputError

log = logging.getLogger(__name__)
INTERVAL_SECONDS = 3600.0
PAUSE_SECONDS = 0.05  # between two transactions, so that others can write


class Pruner:
    """A loop that prunes a database at once and then every hour, until `stop` is called."""

    def __init__(self, database: str, retention: db.Retention) -> None:
        self.database = database
        self.retention = retention
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Make `run` return after the current transaction."""
        self._stopping.set()

    def run(self) -> None:
        """Prune until `stop` is called; what fails is retried the next time."""
        while not self._stopping.is_set():
            try:
                self._prune()
            except InputError as reason:
                log.warning("old jobs and tables are not deleted now: %s", reason)
            self._stopping.wait(INTERVAL_SECONDS)

    def _prune(self) -> None:
        engine = db.open_database(self.database, must_exist=True)
        try:
            for _ in db.prune(engine, self.retention):
                if self._stopping.wait(PAUSE_SECONDS):
                    return
        finally:
            engine.dispose()
