"""What the routes work with: one service, and who asks it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from tuner import db
from tuner.api.access import Client, Tokens, client_of
from tuner.api.metrics import Metrics
from tuner.api.native_formats import generic_of
from tuner.api.published_tables import REFRESHED, Published
from tuner.api.settings import Settings
from tuner.api.workers import WorkerPool
from tuner.base.errors import InputError
from tuner.formats import mpich

log = logging.getLogger(__name__)
UPLOADS = 4  # measurements files stored at the same time; others wait, and hold up nobody else
LARGE_BODIES = 2  # likewise other large bodies, each of which may take half a gigabyte of memory


@dataclass(frozen=True)
class Service:
    """A running service in one process."""

    settings: Settings
    engine: db.Engine
    published: Published
    tokens: Tokens
    generic: mpich.Generic
    workers: WorkerPool | None  # None in a worker itself
    uploads: CapacityLimiter
    large_bodies: CapacityLimiter
    streams: set[object] = field(default_factory=set)  # of events, that are open

    @classmethod
    def of(cls, settings: Settings, workers: WorkerPool | None) -> Service:
        """Open the database; raises InputError when that fails. Nothing published is loaded yet."""
        engine = db.open_database(settings.database)
        return cls(
            settings,
            engine,
            Published(engine),
            Tokens(engine),
            generic_of(settings.mpich_python),
            workers,
            CapacityLimiter(UPLOADS),
            CapacityLimiter(LARGE_BODIES),
        )

    @cached_property
    def metrics(self) -> Metrics:
        """Return the counters; workers have none: the process that asks counts what they do."""
        return Metrics(self.engine)

    def notice(self) -> None:
        """Follow what was just published. It is, even when it cannot be read again at once."""
        try:
            self.published.refresh()
        except InputError as reason:
            log.warning("what is published may be out of date: %s", reason)

    async def watch(self) -> None:
        """Notice what other processes publish, until cancelled."""
        while True:
            await asyncio.sleep(REFRESHED)
            await to_thread.run_sync(self.notice)


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _client(request: Request) -> Client:
    return client_of(request.scope)


Serving = Annotated[Service, Depends(_service)]
Asking = Annotated[Client, Depends(_client)]
