"""Deletes, in the background of a service, what is not to be kept."""

from __future__ import annotations

import logging
import threading

from tuner import db
from tuner.base.errors import InputError

log = logging.getLogger(__name__)
INTERVAL_SECONDS = 3600.0
PAUSE_SECONDS = 0.05  # between two transactions, in which others get their turn


class Pruner:
    """Prunes a database at once and then every hour, until it is told to stop."""

    def __init__(self, database: str, retention: db.Retention) -> None:
        self.database = database
        self.retention = retention
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Return from `run` after the present transaction."""
        self._stopping.set()

    def run(self) -> None:
        """Prune until `stop`; what fails is tried again the next time."""
        while not self._stopping.is_set():
            try:
                self._prune()
            except InputError as reason:
                log.warning("old jobs and tables are not deleted now: %s", reason)
            self._stopping.wait(INTERVAL_SECONDS)

    def _prune(self) -> None:
        engine = db.open_database(self.database)
        try:
            for _ in db.prune(engine, self.retention):
                if self._stopping.wait(PAUSE_SECONDS):
                    return
        finally:
            engine.dispose()
