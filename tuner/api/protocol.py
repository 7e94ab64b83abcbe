"""HTTP as uvicorn reads it, but no request line and headers without end or in endless drops, and
no body in drops that nobody reads any more, as its request is answered.

uvicorn bounds none of them with this parser, and asks for no token before it has read a head.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import cast

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tuner.api.problems import respond
from tuner.units import format_size

LARGEST_HEAD = 1 << 16  # bytes, give or take what comes with its end
PATIENCE = 30.0  # seconds for a head, from the first byte or the connection on, or a body's rest
LINGER = 1.0  # seconds to take in what is still sent: a reset would destroy the answer


class BoundedProtocol(HttpToolsProtocol):
    """Answers with problem details what never becomes a request."""

    _reading_head = True
    _reading_body = False
    _head = 0  # bytes of it that have arrived in pieces
    _late: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of the event loop."""
        super().connection_made(cast(asyncio.Transport, transport))
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Of the event loop."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Of the event loop. Most heads arrive whole, and cost nothing here."""
        if self._refused:
            return
        super().data_received(data)
        if self._reading_head and not self._refused:
            self._head += len(data)
            if self._head > LARGEST_HEAD:
                self._refuse(431, f"request line and headers are longer than"
                                  f" {format_size(LARGEST_HEAD)}")  # fmt: skip
            elif self._late is None:
                self._wait()

    def on_message_begin(self) -> None:
        """Of the parser."""
        self._reading_head, self._head = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Of the parser."""
        self._reading_head, self._reading_body = False, True
        self._wait_no_more()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Of the parser."""
        self._reading_body = False
        self._wait_no_more()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Of uvicorn."""
        super().on_response_complete()
        if self._reading_body and self.cycle.response_complete and not self.transport.is_closing():
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """For what the parser cannot read."""
        self._refuse(400, "this is no HTTP request")

    def _wait(self) -> None:
        self._late = self.loop.call_later(PATIENCE, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, status: int, detail: str) -> None:
        self._refused = True
        self.transport.write(_wire(respond(status, detail, "", {"Connection": "close"})))
        self.transport.write_eof()
        self.loop.call_later(LINGER, self.transport.close)


def _wire(response: Response) -> bytes:
    status = HTTPStatus(response.status_code)
    lines = [f"HTTP/1.1 {status} {status.phrase}".encode()]
    lines += [b"%s: %s" % header for header in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
