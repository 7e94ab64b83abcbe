"""PostgreSQL connections with a timeout for responses.

A server that is stopped or hangs still accepts what is sent to it, so that neither a timeout of
TCP nor one that the server itself enforces would end the wait for its response.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from psycopg import Connection, OperationalError
from psycopg.abc import RV, PQGen
from psycopg.errors import ConnectionTimeout

RESPONSE_TIMEOUT_S = 20.0  # seconds of silence; statements of the service take well under one
RECONNECT_DELAY_S = 1.0  # seconds without a new attempt after the server did not answer


class TimeoutConnection(Connection[Any]):
    """A connection that closes after `response_timeout_s` seconds of silence from the server."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.response_timeout_s = RESPONSE_TIMEOUT_S

    def wait(self, gen: PQGen[RV], *how: Any, **more: Any) -> RV:
        """Wait for the server with a timeout; psycopg calls this for every response."""
        return super().wait(self._with_timeout(gen), *how, **more)

    def _with_timeout(self, gen: PQGen[RV]) -> Generator[Any, Any, RV]:
        """Pass on what `gen` waits for, until the timeout.

        psycopg resumes this several times a second while nothing arrives.
        """
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
    """A factory of connections that fails at once for a moment after the server did not answer.

    Callers that queue up meanwhile are refused immediately instead of waiting one after the other.
    """

    def __init__(self) -> None:
        self._closed_until = 0.0

    def connect(
        self, _dialect: object, _record: object, given: Any, named: Any
    ) -> TimeoutConnection:
        """Return a new connection; SQLAlchemy calls this. Raises OperationalError."""
        if time.monotonic() < self._closed_until:
            raise ConnectionTimeout("connection timeout a moment ago")
        try:
            return TimeoutConnection.connect(*given, **named)
        except ConnectionTimeout:
            self._closed_until = time.monotonic() + RECONNECT_DELAY_S
            raise
