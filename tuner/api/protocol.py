"""uvicorn's HTTP/1.1 protocol with a limit on header size, a timeout for slow headers and for
bodies that nobody reads, and connections that are closed in stages.

uvicorn bounds none of them with this parser, and asks for no token before it has read a head.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, cast

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tuner.api.problems import problem_response
from tuner.base.units import format_size

MAX_HEAD_BYTES = 1 << 16  # bytes, give or take what comes with its end
TIMEOUT_S = 30.0  # seconds for a head, from the first byte or the connection on, or a body's rest
LINGER_S = 1.0  # seconds to take in what is still sent: a reset would destroy the answer


class BoundedProtocol(HttpToolsProtocol):
    """Answers with problem details what never becomes a request."""

    _reading_head = True
    _reading_body = False
    _head_bytes = 0  # bytes of it that have arrived in pieces
    _read_timer: asyncio.TimerHandle | None = None

    @property
    def is_between_requests(self) -> bool:
        """Return whether all of a request was received, and nothing of the next one."""
        return not self._reading_body and not (self._reading_head and self._head_bytes)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of the event loop."""
        self._socket = _StagedTransport(self, cast(asyncio.Transport, transport))
        super().connection_made(cast(asyncio.Transport, self._socket))
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Of the event loop."""
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Of the event loop. Most heads arrive whole, and cost nothing here."""
        if self._socket.lingering:
            return
        super().data_received(data)
        if self._reading_head and not self._socket.lingering:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(
                    431, f"request line and headers are longer than {format_size(MAX_HEAD_BYTES)}"
                )
            elif self._read_timer is None:
                self._start_timer()

    def on_message_begin(self) -> None:
        """Of the parser."""
        self._reading_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Of the parser."""
        self._reading_head, self._reading_body = False, True
        self._cancel_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Of the parser."""
        self._reading_body = False
        self._cancel_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Of uvicorn."""
        super().on_response_complete()
        if self._reading_body and self.cycle.response_complete and not self.transport.is_closing():
            self._start_timer()

    def send_400_response(self, msg: str) -> None:
        """For what the parser cannot read."""
        self._refuse(400, "this is no HTTP request")

    def _start_timer(self) -> None:
        self._read_timer = self.loop.call_later(TIMEOUT_S, self._socket.close_now)

    def _cancel_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _refuse(self, status: int, detail: str) -> None:
        self.transport.write(
            _http_bytes(problem_response(status, detail, "", {"Connection": "close"}))
        )
        self._socket.linger()


class _StagedTransport:
    """A transport that is closed in stages while the client still sends (RFC 9112, section 9.6).

    Closed at once, with bytes that nobody has read, it would be reset, and the client would lose
    the answer. So first our side is closed, and what still comes is discarded for a moment.
    """

    def __init__(self, protocol: BoundedProtocol, transport: asyncio.Transport) -> None:
        self.lingering = False
        self.close_now = transport.close
        self._protocol = protocol
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return whether nothing may be written any more."""
        return self.lingering or self._transport.is_closing()

    def close(self) -> None:
        """Close at once, or where the client is in the middle of a request after a moment."""
        if self._protocol.is_between_requests:
            self.close_now()
        elif not self.is_closing():
            self.linger()

    def linger(self) -> None:
        """Send nothing more, discard what arrives, and close after a moment."""
        self.lingering = True
        self._transport.write_eof()
        self._protocol.flow.resume_reading()
        self._protocol.loop.call_later(LINGER_S, self.close_now)


def _http_bytes(response: Response) -> bytes:
    status = HTTPStatus(response.status_code)
    lines = [f"HTTP/1.1 {status} {status.phrase}".encode()]
    lines += [b"%s: %s" % header for header in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
