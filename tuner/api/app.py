"""The application: routes, and what every request passes before it reaches one."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.middleware import Middleware

from tuner.api import problems
from tuner.api.access import Access
from tuner.api.heads import Heads
from tuner.api.limits import BodyLimit, LimitOf
from tuner.api.metrics import Counted
from tuner.api.openapi import Described
from tuner.api.routes import ROUTERS, measurements
from tuner.api.service import Service, Serving
from tuner.api.settings import Settings
from tuner.api.shortcut import Shortcut

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def create_app(settings: Settings) -> FastAPI:
    """Opens the database. Raises InputError when it cannot be used."""
    service = Service.of(settings)
    app = Described(
        lifespan=_lifespan, openapi_url=None, redirect_slashes=False,
        middleware=[
            Middleware(Counted, metrics=service.metrics),
            Middleware(Access, settings=settings, tokens=service.tokens),
            Middleware(BodyLimit, limit_of=_limit_of(settings)),
            Middleware(Heads),
            Middleware(Shortcut, service=service),
        ],
    )  # fmt: skip
    app.state.service = service
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.add_api_route("/openapi.json", _description, include_in_schema=False)
    app.add_api_route(
        "/metrics", _metrics, tags=["service"], response_class=Response,
        responses=problems.documented(also=problems.text("text/plain")),
    )  # fmt: skip
    return app


def _description(request: Request) -> JSONResponse:
    """Itself not described."""
    return JSONResponse(request.app.openapi())


def _metrics(service: Serving) -> Response:
    """Counters and gauges for Prometheus."""
    return Response(service.metrics.text(), media_type=METRICS_TYPE)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keeps what is published up to date while the application runs."""
    watching = asyncio.create_task(app.state.service.watch())
    gc.freeze()  # what is there now stays: no collection need look at it again
    yield
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    app.state.service.engine.dispose()


def _limit_of(settings: Settings) -> LimitOf:
    def limit(path: str) -> int:
        is_upload = path == measurements.router.prefix
        return settings.measurements_limit if is_upload else settings.body_limit

    return limit
