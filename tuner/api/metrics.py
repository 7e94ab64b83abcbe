"""Metrics of the service for Prometheus."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner import db

# The folder where the processes of a service share their metrics.
MULTIPROCESS_DIR_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
LATENCY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)  # s
UNMATCHED_ROUTE = "unmatched"  # the route of a path that does not exist
COUNTED_METHODS = frozenset({"GET", "HEAD", "POST"})


class Metrics:
    """The metrics of this process, or of all processes of the service where they share a folder."""

    def __init__(self, engine: db.Engine) -> None:
        disable_created_metrics()
        own = CollectorRegistry()
        labels = ("method", "route", "status")
        self.requests = Counter("tuner_requests", "Requests answered.", labels, registry=own)
        self.request_seconds = Histogram(
            "tuner_request_seconds",
            "Seconds until the answer began.",
            ("route",),
            registry=own,
            buckets=LATENCY_BUCKETS_S,
        )
        self.ingested_series = Counter("tuner_ingested_series", "Series stored.", registry=own)
        self.registry = own
        if MULTIPROCESS_DIR_VARIABLE in os.environ:
            self.registry = CollectorRegistry()
            MultiProcessCollector(self.registry)
        self.registry.register(_JobCollector(engine))

    def text(self) -> bytes:
        """Return the exposition format; raise UnavailableError if the database does not answer."""
        return generate_latest(self.registry)


@dataclass(frozen=True)
class _JobCollector(Collector):
    engine: db.Engine

    def describe(self) -> list[Any]:
        """Return no descriptions, so that registering does not query the database."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the number of jobs in each state as one gauge with a label."""
        family = GaugeMetricFamily("tuner_jobs", "Jobs by state.", labels=["state"])
        with db.read_session(self.engine) as session:
            for state, number in db.count_jobs(session).items():
                family.add_metric([state], number)
        yield family


class MetricsMiddleware:
    """Middleware that counts every request under the path template of its route.

    The template, unlike the path, cannot be chosen by a client.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics
        self._counters: dict[tuple[str, str, int], Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request as an ASGI application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, answered = time.perf_counter(), False

        async def counting(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                self._count(scope, message["status"], time.perf_counter() - begun)
            await send(message)

        try:
            await self.app(scope, receive, counting)
        finally:
            if not answered:  # the server answers with status 500
                self._count(scope, 500, time.perf_counter() - begun)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNMATCHED_ROUTE)
        method = scope["method"] if scope["method"] in COUNTED_METHODS else "other"
        key = (method, route, status)
        if key not in self._counters:
            self._counters[key] = self.metrics.requests.labels(method, route, str(status))
            self._histograms[route] = self.metrics.request_seconds.labels(route)
        self._counters[key].inc()
        self._histograms[route].observe(seconds)
