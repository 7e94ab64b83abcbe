"""The two most frequent questions, answered without the way through the framework.

Each answer is that of the route of the same path. Whatever is not simply an answer from memory,
errors included, takes the ordinary way and is answered by the route itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tuner.api.problems import Problem
from tuner.api.routes import select, tables
from tuner.api.service import Service

CacheHandler = Callable[[Service, Request], Response | None]
CACHE_HANDLERS: Mapping[str, CacheHandler] = {
    "/v1/select": select.answer_from_cache,
    "/v1/tables/published": tables.answer_from_cache,
}


@dataclass(frozen=True)
class _Route:
    """What the counters call a request that no route of the framework saw."""

    path: str


_ROUTES = {path: _Route(path) for path in CACHE_HANDLERS}


class CachedResponseMiddleware:
    """Tries to answer; leaves everything else to the application."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        response = self._cached_response(scope) if scope["type"] == "http" else None
        await (response or self.app)(scope, receive, send)

    def _cached_response(self, scope: Scope) -> Response | None:
        path = scope["path"]
        if path not in CACHE_HANDLERS or scope["method"] != "GET":
            return None
        try:
            response = CACHE_HANDLERS[path](self.service, Request(scope))
        except Problem:
            return None
        scope["route"] = _ROUTES[path]
        return response
