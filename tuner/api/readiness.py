"""Readiness: whether the database can be written to, checked at most once a second."""

from __future__ import annotations

import threading
import time

from tuner import db

CHECK_INTERVAL_S = 1.0  # seconds between two checks, each of which writes


class Readiness:
    """The result of the last check, as anyone may ask for it at any rate."""

    def __init__(self, engine: db.Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._next_check = -float("inf")
        self._problem: str | None = None

    def require(self) -> None:
        """Raise UnavailableError unless the database is at the newest schema and can be written."""
        with self._lock:
            if time.monotonic() >= self._next_check:
                self._problem = self._check()
                self._next_check = time.monotonic() + CHECK_INTERVAL_S
            problem = self._problem
        if problem is not None:
            raise db.UnavailableError(problem)

    def _check(self) -> str | None:
        try:
            db.check_ready(self._engine)
        except db.UnavailableError as reason:
            return str(reason)
        return None
