"""Storage of a large measurements file in many small transactions, so that others can write too.

Until the last transaction the probe has an author and is invisible. Each transaction renews the
author's claim. Where an author stops renewing it (usually because it was killed), the next upload
of the same content takes over and continues after the last stored series.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.orm import Session

from tuner.base.errors import InputError
from tuner.core.measurement import MeasurementReader, unreadable_file_error
from tuner.db.clusters import store_cluster
from tuner.db.db_errors import UnavailableError
from tuner.db.deduplication import InsertResult, insert_if_absent
from tuner.db.measurements import series_columns
from tuner.db.models import Base, ProbeRow, SeriesRow
from tuner.db.transactions import database_now, read_session, transaction

MAX_SERIES_PER_TRANSACTION = 10_000  # series per transaction, which takes well under a second
MAX_SAMPLES_PER_TRANSACTION = 200_000  # per transaction, where series are long
MAX_LINE_CHARACTERS = 1 << 20  # characters of a line
LEASE_DURATION = timedelta(seconds=15)  # an author that stored nothing for this long counts as dead
TIMEOUT_S = 20.0  # seconds to wait for another author, longer than the lease
POLL_INTERVAL_S = 0.25  # seconds
ABANDONED_AFTER = timedelta(days=7)  # older incomplete uploads are deleted

_SERIES = Base.metadata.tables[SeriesRow.__tablename__]


@dataclass(frozen=True)
class _Claim:
    """The right to store the series of a probe, of which `stored_series` are stored already."""

    probe_id: int
    author: str
    stored_series: int


class _TakenOverError(UnavailableError):
    """The error where another author has taken over the upload."""


def ingest(engine: Engine, source: Path | BinaryIO, name: str = "the upload") -> InsertResult:
    """Store a measurements file (see `tuner.core.measurement`), once per content, by its SHA-256.

    source      a file, or a binary stream, which is first copied into a temporary file
    name        the name of the source in error messages

    When this returns, everything is committed; when it raises InputError, nothing is stored.
    After an interruption nothing is visible, and the same call resumes. Raises InputError where
    the source is not a complete measurements file, UnavailableError while another upload stores
    the same content.
    """
    with _on_disk(source) as path:
        try:
            with path.open("rb") as raw:
                digest = hashlib.file_digest(raw, "sha256").hexdigest()
            with path.open(encoding="utf-8") as lines:
                return _store(
                    engine, MeasurementReader(_limit_line_length(lines, name), name), digest
                )
        except (OSError, UnicodeDecodeError) as reason:
            raise unreadable_file_error(name, reason) from None


@contextmanager
def _on_disk(source: Path | BinaryIO) -> Iterator[Path]:
    if isinstance(source, Path):
        yield source
        return
    with tempfile.NamedTemporaryFile(prefix="tuner-upload-") as copy:
        shutil.copyfileobj(source, copy)
        copy.flush()
        yield Path(copy.name)


def _limit_line_length(lines: TextIO, name: str) -> Iterator[str]:
    """Yield the lines; raise InputError for one that is too long before it is read completely."""
    for number, line in enumerate(
        iter(lambda: lines.readline(MAX_LINE_CHARACTERS + 1), ""), start=1
    ):
        if len(line) > MAX_LINE_CHARACTERS:
            raise InputError(
                f"{name}, line {number}: longer than {MAX_LINE_CHARACTERS} characters, which no"
                " series is"
            )
        yield line


def _store(engine: Engine, reader: MeasurementReader, digest: str) -> InsertResult:
    _delete_abandoned(engine)
    if reader.header is None:
        reader.require_complete(0)
    claim = _wait_for_claim(engine, reader, digest)
    if isinstance(claim, InsertResult):
        return claim
    try:
        _store_series(engine, reader, claim)
    except UnavailableError:
        raise
    except (InputError, UnicodeDecodeError):
        _discard(engine, claim)
        raise
    return InsertResult(claim.probe_id, True)


def _wait_for_claim(
    engine: Engine, reader: MeasurementReader, digest: str
) -> _Claim | InsertResult:
    """Return the right to store, or the id of the content where it is stored already."""
    author, deadline = secrets.token_hex(8), time.monotonic() + TIMEOUT_S
    while True:
        with transaction(engine) as session:
            claim = _claim(session, reader, digest, author)
        if claim is not None:
            return claim
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"{reader.name}: the same content is being stored at this moment; try again later"
            )
        time.sleep(POLL_INTERVAL_S)


def _claim(
    session: Session, reader: MeasurementReader, digest: str, author: str
) -> _Claim | InsertResult | None:
    """Return the claim or the stored id, or None while another author stores the content."""
    about, now = reader.metadata, database_now(session)
    values = {
        "cluster_id": store_cluster(session, about.cluster).id,
        "library": about.library,
        "provenance": dict(about.provenance),
        "digest": digest,
        "author": author,
        "series_count": 0,
        "written_at": now,
    }
    stored = insert_if_absent(session, ProbeRow.id, values, "digest")
    if stored.is_new:
        return _Claim(stored.id, author, 0)
    row = session.get(ProbeRow, stored.id, with_for_update=True)
    if row is None or row.written_at is None or row.author is None:
        return None if row is None else stored
    if row.written_at > now - LEASE_DURATION:
        return None
    row.author, row.written_at = author, now
    return _Claim(row.id, author, row.series_count)


def _store_series(engine: Engine, reader: MeasurementReader, claim: _Claim) -> None:
    count = 0
    for chunk in _chunk_series(reader, claim.probe_id):
        count += len(chunk)
        missing = [row for row in chunk if row["ordinal"] >= claim.stored_series]
        with transaction(engine) as session:
            _renew_claim(session, claim, max(count, claim.stored_series))
            if missing:
                session.execute(insert(_SERIES), missing)
    reader.require_complete(count)
    with transaction(engine) as session:
        _renew_claim(session, claim, count)
        session.execute(
            update(ProbeRow)
            .where(ProbeRow.id == claim.probe_id)
            .values(author=None, stored_at=database_now(session))
        )


def _chunk_series(reader: MeasurementReader, probe_id: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of the series in chunks that fit in one transaction."""
    piece: list[dict[str, Any]] = []
    samples = 0
    for ordinal, series in enumerate(reader.series()):
        piece.append(series_columns(probe_id, ordinal, series))
        samples += len(series.samples)
        if len(piece) >= MAX_SERIES_PER_TRANSACTION or samples >= MAX_SAMPLES_PER_TRANSACTION:
            yield piece
            piece, samples = [], 0
    if piece:
        yield piece


def _renew_claim(session: Session, claim: _Claim, count: int) -> None:
    """Renew the claim, which nobody else can take over until the end of the transaction.

    Raises _TakenOverError where another author has taken over.
    """
    renewed = session.scalar(
        update(ProbeRow)
        .where(ProbeRow.id == claim.probe_id, ProbeRow.author == claim.author)
        .values(series_count=count, written_at=database_now(session))
        .returning(ProbeRow.id)
    )
    if renewed is None:
        raise _TakenOverError("another upload of the same content took over; send it again")


def _discard(engine: Engine, claim: _Claim) -> None:
    """Delete the stored series, last first, so that an interrupted upload can still be resumed."""
    with read_session(engine) as session:
        row = session.get(ProbeRow, claim.probe_id)
        count = 0 if row is None else row.series_count
    while count > 0:
        count = max(count - MAX_SERIES_PER_TRANSACTION, 0)
        with transaction(engine) as session:
            _renew_claim(session, claim, count)
            session.execute(
                delete(SeriesRow).where(
                    SeriesRow.probe_id == claim.probe_id, SeriesRow.ordinal >= count
                )
            )
    with transaction(engine) as session:
        _renew_claim(session, claim, 0)
        session.execute(delete(ProbeRow).where(ProbeRow.id == claim.probe_id))


def _delete_abandoned(engine: Engine) -> None:
    with read_session(engine) as session:
        overdue = select(ProbeRow.id, ProbeRow.author).where(
            ProbeRow.author.is_not(None),
            ProbeRow.written_at < database_now(session) - ABANDONED_AFTER,
        )
        left = session.execute(overdue).all()
    for number, last in left:
        author = secrets.token_hex(8)
        with transaction(engine) as session:
            session.execute(
                update(ProbeRow)
                .where(ProbeRow.id == number, ProbeRow.author == last)
                .values(author=author, written_at=database_now(session))
            )
        with suppress(_TakenOverError):
            _discard(engine, _Claim(number, author, 0))
