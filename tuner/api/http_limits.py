"""How much one client may ask for: bytes of a body and time to send it, requests per second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.api.problems import Problem
from tuner.base.units import format_size

MOST_CLIENTS = 10_000  # that are remembered; with more, those that have been idle are forgotten
MOST_DIGITS = 18  # of a Content-Length; a longer one is refused unread
BURST = 2.0  # seconds of the rate that a client may save up
PATIENCE = 30.0  # seconds of waiting for the next PIECE of a body, or for its end
PIECE = 64 << 10  # bytes: a line of 20 kbit/s brings so many in time

LimitOf = Callable[[str], int]  # path -> bytes


class Buckets:
    """A token bucket per client: `rate` requests per second, `BURST` seconds of them at once."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._most = max(1.0, rate * BURST)
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # client -> (requests left, when)

    def take(self, client: str) -> None:
        """Count one request; raises Problem 429 when the client has none left."""
        if not self.rate:
            return
        now = self._clock()
        left, when = self._left.get(client, (self._most, now))
        left = min(self._most, left + (now - when) * self.rate)
        if left < 1:
            wait = (1 - left) / self.rate
            raise Problem(
                429,
                f"more than {self.rate:g} requests per second; try again in {wait:.2f} s",
                {"Retry-After": str(int(wait) + 1)},
            )
        if len(self._left) >= MOST_CLIENTS:
            self._forget(now)
        self._left[client] = (left - 1, now)

    def _forget(self, now: float) -> None:
        """Whoever was idle for long enough has a full bucket, like a client never seen."""
        self._left = {
            client: (left, when)
            for client, (left, when) in self._left.items()
            if left + (now - when) * self.rate < self._most
        }
        if len(self._left) >= MOST_CLIENTS:
            self._left.clear()


class BodyLimit:
    """Refuses a body that is announced, or turns out, to be longer than its path allows, and one
    that hardly moves.
    """

    def __init__(self, app: ASGIApp, limit_of: LimitOf) -> None:
        self.app = app
        self.limit_of = limit_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        limit = self.limit_of(scope["path"])
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and (len(announced) > MOST_DIGITS or int(announced) > limit):
            refused = _too_long(limit).response(scope["path"])
            await refused(scope, receive, send)
            return
        await self.app(scope, _Arriving(receive, limit), send)


class _Arriving:
    """Receives one body. Only waiting for the client counts, not what the service does between."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._seen = 0
        self._piece = 0  # bytes of the present one that are here
        self._left: float | None = PATIENCE  # seconds for the rest of it; None after the body

    async def __call__(self) -> Message:
        """ASGI; raises Problem."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._left):
                message = await self._receive()
        except TimeoutError:
            raise _too_slow() from None
        if self._left is not None:
            self._left -= time.monotonic() - begun
            self._count(message)
        return message

    def _count(self, message: Message) -> None:
        arrived = len(message.get("body", b""))
        self._seen += arrived
        self._piece += arrived
        if self._seen > self._limit:
            raise _too_long(self._limit)
        if self._piece >= PIECE:
            self._piece, self._left = 0, PATIENCE
        if not message.get("more_body", False):
            self._left = None


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
        f"the body hardly moves: {format_size(PIECE)} of it, or its end, must arrive every"
        f" {PATIENCE:g} s; send it again when the connection is faster",
        {"Connection": "close"},
    )
