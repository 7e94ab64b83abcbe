"""Request bodies in temporary files, and storage of measurements from there."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import Request

from tuner import db
from tuner.api.problems import Problem
from tuner.api.workers import WorkerPool

log = logging.getLogger(__name__)
MAX_INLINE_INGEST_BYTES = 1 << 20  # bytes that take less time to store than starting a worker


@asynccontextmanager
async def body_on_disk(request: Request) -> AsyncIterator[Path]:
    """Store the body of a request in a temporary file; raise Problem 503 where the disk is full."""
    received = False
    try:
        with tempfile.NamedTemporaryFile(prefix="tuner-upload-") as file:
            async for piece in request.stream():
                file.write(piece)
            file.flush()
            received = True
            yield Path(file.name)
    except OSError as reason:
        if received:
            raise
        log.warning("a request body could not be kept: %s", reason.strerror)
        raise Problem(503, "the service has no room for this upload: send it later") from None


def ingest_file(engine: db.Engine, path: Path, workers: WorkerPool) -> db.InsertResult:
    """Store measurements as `db.ingest` does, in a worker for a large file."""
    if path.stat().st_size <= MAX_INLINE_INGEST_BYTES:
        return db.ingest(engine, path)
    return workers.run(_ingest, engine.url.render_as_string(hide_password=False), path)


def _ingest(database: str, path: Path) -> db.InsertResult:
    engine = db.open_database(database, must_exist=True)
    try:
        return db.ingest(engine, path)
    finally:
        engine.dispose()
