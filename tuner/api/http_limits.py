"""Limits per client: size of a body, time to send it, and requests per second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.api.problems import Problem
from tuner.base.units import format_size

MAX_CLIENTS = 10_000  # clients with a bucket; beyond that, idle ones are dropped
MAX_CONTENT_LENGTH_DIGITS = 18  # digits of a Content-Length; longer ones are refused
BURST_S = 2.0  # seconds of the rate that a bucket holds
TIMEOUT_S = 30.0  # seconds to receive MIN_BYTES_PER_TIMEOUT of a body, or its end
MIN_BYTES_PER_TIMEOUT = 64 << 10  # bytes; 20 kbit/s suffice

LimitForPath = Callable[[str], int]  # path -> bytes


class RateLimiter:
    """A token bucket per client: `rate` requests per second, with bursts of `BURST_S` seconds."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._capacity = max(1.0, rate * BURST_S)
        self._clock = clock
        self._tokens: dict[str, tuple[float, float]] = {}  # client -> (requests left, time)

    def consume(self, client: str) -> None:
        """Count one request; raise Problem 429 where the client has none left."""
        if not self.rate:
            return
        now = self._clock()
        left, when = self._tokens.get(client, (self._capacity, now))
        left = min(self._capacity, left + (now - when) * self.rate)
        if left < 1:
            wait = (1 - left) / self.rate
            raise Problem(
                429,
                f"more than {self.rate:g} requests per second; try again in {wait:.2f} s",
                {"Retry-After": str(int(wait) + 1)},
            )
        if len(self._tokens) >= MAX_CLIENTS:
            self._drop_full_buckets(now)
        self._tokens[client] = (left - 1, now)

    def _drop_full_buckets(self, now: float) -> None:
        """Drop the buckets that are full, which do not differ from those of new clients.

        If too many are left, all are dropped.
        """
        self._tokens = {
            client: (left, when)
            for client, (left, when) in self._tokens.items()
            if left + (now - when) * self.rate < self._capacity
        }
        if len(self._tokens) >= MAX_CLIENTS:
            self._tokens.clear()


class BodyLimitMiddleware:
    """Middleware that refuses a body that is longer than its path allows, or too slow."""

    def __init__(self, app: ASGIApp, limit_of: LimitForPath) -> None:
        self.app = app
        self.limit_for_path = limit_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request as an ASGI application."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        limit = self.limit_for_path(scope["path"])
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and (
            len(announced) > MAX_CONTENT_LENGTH_DIGITS or int(announced) > limit
        ):
            refused = _too_long(limit).response(scope["path"])
            await refused(scope, receive, send)
            return
        await self.app(scope, _LimitedReceive(receive, limit), send)


class _LimitedReceive:
    """A limited receiver of one body; only the time spent waiting for the client counts."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._received_bytes = 0
        self._bytes_since_reset = 0  # bytes received since the timeout was last reset
        self._seconds_left: float | None = (
            TIMEOUT_S  # seconds until the timeout; None after the body
        )

    async def __call__(self) -> Message:
        """Receive an ASGI message; raise Problem 408 or 413 where a limit is exceeded."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._seconds_left):
                message = await self._receive()
        except TimeoutError:
            raise _too_slow() from None
        if self._seconds_left is not None:
            self._seconds_left -= time.monotonic() - begun
            self._count(message)
        return message

    def _count(self, message: Message) -> None:
        arrived = len(message.get("body", b""))
        self._received_bytes += arrived
        self._bytes_since_reset += arrived
        if self._received_bytes > self._limit:
            raise _too_long(self._limit)
        if self._bytes_since_reset >= MIN_BYTES_PER_TIMEOUT:
            self._bytes_since_reset, self._seconds_left = 0, TIMEOUT_S
        if not message.get("more_body", False):
            self._seconds_left = None


def _too_long(limit: int) -> Problem:
    return Problem(
        413,
        f"the body is longer than {format_size(limit)}: send less at once, or ask the operator"
        " of the service for a higher limit",
        {"Connection": "close"},
    )


def _too_slow() -> Problem:
    return Problem(
        408,
        f"the body hardly moves: {format_size(MIN_BYTES_PER_TIMEOUT)} of it, or its end,"
        f" must arrive every {TIMEOUT_S:g} s; send it again when the connection is faster",
        {"Connection": "close"},
    )
