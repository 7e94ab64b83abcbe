"""Requests with large bodies, which the same application handles in a worker process.

Parsing and checking 15 MB of JSON takes seconds, mostly with the interpreter lock held.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from anyio import to_thread
from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message, Scope

from tuner.api.access import READ_ONLY_POST_PATHS
from tuner.api.service import Service
from tuner.api.settings import Settings
from tuner.api.uploads import body_on_disk

log = logging.getLogger(__name__)
MAX_INLINE_BODY_BYTES = 256 << 10  # bytes; less is parsed in a few milliseconds
GC_THRESHOLD = 200_000  # allocations between collections; records are large but acyclic
_FORWARDED_SCOPE_KEYS = (
    "type",
    "http_version",
    "method",
    "path",
    "raw_path",
    "query_string",
    "headers",
    "client",
    "server",
    "scheme",
    "root_path",
)
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
AppFactory = Callable[[Settings], FastAPI]


class LargeBodyRoute(APIRoute):
    """A route whose requests with large bodies are handled by a worker.

    The worker makes its application with `app.state.build_worker_app`, an `AppFactory`.
    """

    def refuse_body(self, request: Request, path: Path) -> None:
        """Raise InputError for a large body, kept in a file, that no worker needs to read."""

    def get_route_handler(self) -> Handler:
        """Return the handler that FastAPI calls for each request."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            service: Service = request.app.state.service
            if service.workers is None or _is_small(request):
                return await handler(request)
            async with body_on_disk(request) as path:
                if path.stat().st_size <= MAX_INLINE_BODY_BYTES:
                    return await handler(_with_body(request, path.read_bytes()))
                await to_thread.run_sync(self.refuse_body, request, path)
                sent = await to_thread.run_sync(
                    service.workers.run,
                    _answer_in_worker,
                    request.app.state.build_worker_app,
                    service.settings,
                    _forwarded_scope(request),
                    path,
                    limiter=service.large_body_limiter,
                )
                return sent.response()

        return handle


@dataclass(frozen=True)
class _WorkerResponse:
    """The response that the application in the worker sent."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def response(self) -> Response:
        response = Response(self.body, self.status)
        response.raw_headers = self.headers
        return response


def _is_small(request: Request) -> bool:
    """Return whether the body is known to be small, which a chunked one never is."""
    if request.method in ("GET", "HEAD") or "transfer-encoding" not in request.headers:
        return int(request.headers.get("content-length", 0)) <= MAX_INLINE_BODY_BYTES
    return False


def _with_body(request: Request, body: bytes) -> Request:
    """Return the request with a body that was already received."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(request.scope, receive)


def _forwarded_scope(request: Request) -> Scope:
    scope = {name: request.scope[name] for name in _FORWARDED_SCOPE_KEYS if name in request.scope}
    return scope | {"state": {"client": request.scope["state"]["client"]}}


def _answer_in_worker(
    build_app: AppFactory, settings: Settings, scope: Scope, path: Path
) -> _WorkerResponse:
    """Answer one request, whose body is in a file; this runs in a worker."""
    app = _application(build_app, settings)
    if scope["path"] in READ_ONLY_POST_PATHS:
        app.state.service.refresh_published()
    return asyncio.run(_call_app(app, scope, path))


@cache
def _application(build_app: AppFactory, settings: Settings) -> FastAPI:
    gc.set_threshold(GC_THRESHOLD)
    app = build_app(settings)
    gc.freeze()
    return app


async def _call_app(app: FastAPI, scope: Scope, path: Path) -> _WorkerResponse:
    sent: list[Message] = []
    body = path.read_bytes()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    try:
        await app(scope, receive, send)
    except Exception:  # the application has already sent a response with status 500
        log.exception("%s %s", scope["method"], scope["path"])
    start = next(message for message in sent if message["type"] == "http.response.start")
    pieces = [message.get("body", b"") for message in sent if message is not start]
    return _WorkerResponse(start["status"], start["headers"], b"".join(pieces))
