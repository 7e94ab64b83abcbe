"""PostgreSQL whose answers are not waited for without end.

A server that was stopped, or hangs, still takes in what is sent to it: no time limit of TCP, and
none that the server itself keeps, would ever end the wait for its answer.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from psycopg import Connection, OperationalError
from psycopg.abc import RV, PQGen
from psycopg.errors import ConnectionTimeout

RESPONSE_TIMEOUT_S = 20.0  # seconds of silence; statements of the service take well under one
RECONNECT_DELAY_S = (
    1.0  # seconds in which nobody tries again to connect to a server that did not answer
)


class TimeoutConnection(Connection[Any]):
    """Closes itself when the server is silent for longer than `patience` seconds."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.response_timeout_s = RESPONSE_TIMEOUT_S

    def wait(self, gen: PQGen[RV], *how: Any, **more: Any) -> RV:
        """Of psycopg: everything that waits for the server goes through it."""
        return super().wait(self._with_timeout(gen), *how, **more)

    def _with_timeout(self, gen: PQGen[RV]) -> Generator[Any, Any, RV]:
        """The same conversation; psycopg says several times a second when there is no news."""
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() - heard > self.response_timeout_s:
                    self.close()
                    raise OperationalError(
                        f"the server was silent for {self.response_timeout_s:g} s"
                    )
                wanted = gen.send(ready)
        except StopIteration as ended:
            said: RV = ended.value
            return said


class ConnectionFactory:
    """Where connections are made. It stays shut for a moment after the server did not answer: those
    that queue up meanwhile are refused at once, and do not wait one after the other.
    """

    def __init__(self) -> None:
        self._closed_until = 0.0

    def connect(
        self, _dialect: object, _record: object, given: Any, named: Any
    ) -> TimeoutConnection:
        """Of SQLAlchemy. Raises OperationalError."""
        if time.monotonic() < self._closed_until:
            raise ConnectionTimeout("connection timeout a moment ago")
        try:
            return TimeoutConnection.connect(*given, **named)
        except ConnectionTimeout:
            self._closed_until = time.monotonic() + RECONNECT_DELAY_S
            raise
