"""Responses from memory to the two most frequent requests, without the framework's overhead.

Each response equals that of the route with the same path. Every request that cannot be answered
from memory, errors included, is passed on to the route.
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
    """The route of a request that the framework did not route, as the metrics see it."""

    path: str


_ROUTES = {path: _Route(path) for path in CACHE_HANDLERS}


class CachedResponseMiddleware:
    """Middleware that answers from memory where possible and passes on all other requests."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request as an ASGI application."""
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
