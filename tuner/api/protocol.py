"""uvicorn's HTTP/1.1 protocol with limits on header size, slow headers and unread bodies.

With this parser uvicorn limits none of them, and tokens are checked only after the headers were
read. Connections are closed in stages (see `_StagedTransport`).
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, cast

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tuner.api.problems import problem_response
from tuner.base.units import format_size

MAX_HEAD_BYTES = 1 << 16  # bytes of request line and headers, approximately
TIMEOUT_S = 30.0  # seconds to receive the headers, or the rest of a body after the response
LINGER_S = 1.0  # seconds to discard input before closing, as a reset would lose the response


class BoundedProtocol(HttpToolsProtocol):
    """A protocol that answers invalid or oversized request heads with problem details."""

    _reading_head = True
    _reading_body = False
    _head_bytes = 0  # bytes of an incomplete head
    _read_timer: asyncio.TimerHandle | None = None

    @property
    def is_between_requests(self) -> bool:
        """Return whether a request was received completely, and nothing of the next one."""
        return not self._reading_body and not (self._reading_head and self._head_bytes)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer for the first head; the event loop calls this."""
        self._socket = _StagedTransport(self, cast(asyncio.Transport, transport))
        super().connection_made(cast(asyncio.Transport, self._socket))
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer; the event loop calls this."""
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data and limit the size of an incomplete head; the event loop calls this.

        Most heads arrive whole and cost nothing here.
        """
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
        """Begin to read a head; the parser calls this."""
        self._reading_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin to read a body and cancel the timer; the parser calls this."""
        self._reading_head, self._reading_body = False, True
        self._cancel_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note the end of a body and cancel the timer; the parser calls this."""
        self._reading_body = False
        self._cancel_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the timer where the body is still incomplete; uvicorn calls this."""
        super().on_response_complete()
        if self._reading_body and self.cycle.response_complete and not self.transport.is_closing():
            self._start_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that the parser cannot read."""
        self._refuse(400, "this is not an HTTP request")

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

    Closing at once, with unread bytes, would reset the connection, and the client would lose the
    response. So the sending side is closed first, and input is discarded for a moment.
    """

    def __init__(self, protocol: BoundedProtocol, transport: asyncio.Transport) -> None:
        self.lingering = False
        self.close_now = transport.close
        self._protocol = protocol
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return whether nothing more may be written."""
        return self.lingering or self._transport.is_closing()

    def close(self) -> None:
        """Close at once, or after a moment where the client is in the middle of a request."""
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
