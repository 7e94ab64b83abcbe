"""The application: its routes and middleware."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.middleware import Middleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tuner.api import pages, problems
from tuner.api.access import AccessMiddleware
from tuner.api.access_log import AccessLogMiddleware, access_logger
from tuner.api.head_requests import HeadMiddleware
from tuner.api.http_limits import BodyLimitMiddleware, LimitForPath
from tuner.api.memory_cache import CachedResponseMiddleware
from tuner.api.metrics import MetricsMiddleware
from tuner.api.openapi import DescribedApp
from tuner.api.routes import (
    ROUTERS,
    clusters,
    jobs,
    measurements,
    probes,
    publications,
    training,
    what_if,
)
from tuner.api.service import Service, ServiceDep
from tuner.api.settings import Settings
from tuner.api.workers import WorkerPool

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Allocations between two garbage collections, and how many of these precede one of the next older
# generation. Full collections are rare: with a large table they take 0.2 s, and tables have no
# reference cycles.
GC_THRESHOLDS = (20_000, 10, 1000)
MAX_SMALL_BODY_BYTES = 256 << 10  # bytes of a body that the event loop parses itself
SMALL_BODY_PREFIXES = (
    pages.STUDIO,
    *(
        router.prefix
        for router in (
            clusters.router,
            jobs.router,
            probes.router,
            publications.router,
            training.router,
            what_if.router,
        )
    ),
)


def create_app(settings: Settings, must_exist: bool = False) -> FastAPI:
    """Open the database and create the application; raise InputError where that fails.

    must_exist  whether the file of an SQLite database must exist; by default it is created
    """
    service = Service.from_settings(settings, WorkerPool(), must_exist)
    service.published_tables.refresh()
    app = build_app(
        service,
        Middleware(MetricsMiddleware, metrics=service.metrics),
        Middleware(AccessMiddleware, settings=settings, tokens=service.tokens),
        Middleware(BodyLimitMiddleware, limit_of=_body_limit_for_path(settings)),
        Middleware(HeadMiddleware),
        Middleware(CachedResponseMiddleware, service=service),
    )
    if settings.access_log is not None:
        app.add_middleware(
            AccessLogMiddleware, described=app, logger=access_logger(settings.access_log)
        )
    if settings.trusted_proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=list(settings.trusted_proxies))
    return app


def build_app(service: Service, *middleware: Middleware) -> FastAPI:
    """Create the application with the given middleware."""
    app = DescribedApp(
        lifespan=_lifespan, openapi_url=None, redirect_slashes=False, middleware=middleware
    )
    app.state.service = service
    app.state.build_worker_app = build_worker_app
    problems.install_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    app.include_router(pages.router)
    app.add_api_route("/openapi.json", _openapi_document, include_in_schema=False)
    app.add_api_route(
        "/metrics",
        _metrics,
        tags=["service"],
        response_class=Response,
        responses=problems.problem_responses(
            extra_responses=problems.text_response_docs("text/plain")
        ),
    )
    return app


def build_worker_app(settings: Settings) -> FastAPI:
    """Open the database and create the application without middleware, as workers need it."""
    return build_app(Service.from_settings(settings, workers=None, must_exist=True))


def _openapi_document(request: Request) -> JSONResponse:
    """Return the OpenAPI document, in which this path is not described."""
    return JSONResponse(request.app.openapi())


def _metrics(service: ServiceDep) -> Response:
    """Counters and gauges for Prometheus."""
    return Response(service.metrics.text(), media_type=METRICS_MEDIA_TYPE)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Follow publications while the application runs, and release its resources at the end."""
    watching = asyncio.create_task(app.state.service.watch_publications())
    app.state.service.workers.prepare()
    gc.freeze()  # excludes all current objects from further collections
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    yield
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    app.state.service.workers.close()
    app.state.service.engine.dispose()


def _body_limit_for_path(settings: Settings) -> LimitForPath:
    def limit(path: str) -> int:
        if path == measurements.router.prefix:
            return settings.measurements_limit
        is_small = path.startswith(SMALL_BODY_PREFIXES)
        return min(MAX_SMALL_BODY_BYTES, settings.body_limit) if is_small else settings.body_limit

    return limit
