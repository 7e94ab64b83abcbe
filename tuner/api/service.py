"""The service object that the routes use, and the dependencies for it and the client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from tuner import db
from tuner.api.access import Client, TokenCache, client_of
from tuner.api.answer_cache import AnswerCache
from tuner.api.metrics import Metrics
from tuner.api.native_formats import generic_rules_loader
from tuner.api.published_tables import REFRESH_INTERVAL_S, PublishedTables
from tuner.api.readiness import Readiness
from tuner.api.settings import Settings
from tuner.api.workers import WorkerPool
from tuner.base.errors import InputError
from tuner.base.processes import available_cores
from tuner.base.repeats import RepeatFilter
from tuner.formats import mpich
from tuner.studio.assets import Asset, load_assets

log = logging.getLogger(__name__)
log.addFilter(RepeatFilter())
# Measurements files stored at the same time; others wait without blocking requests.
MAX_CONCURRENT_UPLOADS = 4
# Other large bodies at the same time; each may take half a gigabyte of memory.
MAX_CONCURRENT_LARGE_BODIES = 2
MAX_CONCURRENT_STEPS = available_cores()  # of answers, in workers that give way to short requests
MAX_CONCURRENT_LONG = 1  # traced calls and reports at the same time, which take seconds
MAX_OPEN_ANSWERS = 8  # begun what-if answers, whose steps take turns; others wait
MAX_OPEN_ANSWERS_AHEAD = 1  # the same of answers that are computed ahead


class AwaitedAnswers:
    """The what-if answers that clients wait for, in whose contexts they are computed."""

    def __init__(self) -> None:
        self._number = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        self._number += 1
        self._none.clear()

    def __exit__(self, *_: object) -> None:
        self._number -= 1
        if self._number == 0:
            self._none.set()

    async def none(self) -> None:
        """Wait until no client waits."""
        while not self._none.is_set():
            await self._none.wait()


@dataclass(frozen=True)
class Service:
    """A running service in one process."""

    settings: Settings
    engine: db.Engine
    published_tables: PublishedTables
    tokens: TokenCache
    readiness: Readiness
    generic_rules: mpich.GenericTreeLoader
    workers: WorkerPool | None  # None in a worker itself
    upload_limiter: CapacityLimiter
    large_body_limiter: CapacityLimiter
    step_limiter: CapacityLimiter
    long_limiter: CapacityLimiter
    assets: Mapping[str, Asset]
    answers: AnswerCache = field(default_factory=AnswerCache)
    answer_slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_OPEN_ANSWERS)
    )
    slots_ahead: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_OPEN_ANSWERS_AHEAD)
    )
    awaited: AwaitedAnswers = field(default_factory=AwaitedAnswers)
    open_streams: set[object] = field(default_factory=set)  # open event streams
    open_answers: set[object] = field(default_factory=set)  # what-if answers that are being sent
    tasks: dict[str, object] = field(default_factory=dict)  # in the background, by name

    @classmethod
    def from_settings(
        cls, settings: Settings, workers: WorkerPool | None, must_exist: bool
    ) -> Service:
        """Open the database and create the service; raise InputError where that fails.

        must_exist  whether the file of an SQLite database must exist

        Published tables are not loaded yet.
        """
        engine = db.open_database(settings.database, must_exist)
        return cls(
            settings,
            engine,
            PublishedTables(engine),
            TokenCache(engine),
            Readiness(engine),
            generic_rules_loader(settings.mpich_python),
            workers,
            CapacityLimiter(MAX_CONCURRENT_UPLOADS),
            CapacityLimiter(MAX_CONCURRENT_LARGE_BODIES),
            CapacityLimiter(MAX_CONCURRENT_STEPS),
            CapacityLimiter(MAX_CONCURRENT_LONG),
            load_assets(),
        )

    @cached_property
    def metrics(self) -> Metrics:
        """Return the metrics; workers have none, as the main process counts their requests."""
        return Metrics(self.engine)

    def refresh_published(self) -> None:
        """Update the published tables.

        A failure is only logged, as the publication itself has succeeded.
        """
        try:
            self.published_tables.refresh()
        except InputError as reason:
            log.warning("what is published may be out of date: %s", reason)

    async def watch_publications(self) -> None:
        """Follow the publications of other processes until cancelled."""
        while True:
            await asyncio.sleep(REFRESH_INTERVAL_S)
            await to_thread.run_sync(self.refresh_published)


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _client(request: Request) -> Client:
    return client_of(request.scope)


ServiceDep = Annotated[Service, Depends(_service)]
ClientDep = Annotated[Client, Depends(_client)]
