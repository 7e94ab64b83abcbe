"""Measurements: what comes out equals what went in, and unfinished ones are seen by nobody."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Select, insert, select, tuple_
from sqlalchemy.orm import Session

from tuner.core.measurement import Measurement, Measurements, end_line, header_line, series_line
from tuner.db.clusters import cluster_of, store_cluster
from tuner.db.db_errors import NotFoundError, UnavailableError
from tuner.db.deduplication import Stored, store_once
from tuner.db.models import ClusterRow, ProbeRow, SeriesRow
from tuner.db.pagination import PAGE, Page, only, page_of
from tuner.db.transactions import reading

MANY = 2000  # series read at a time

_SERIES = tuple(
    getattr(SeriesRow, name)
    for name in (
        "kind",
        "subject",
        "nodes",
        "ppn",
        "p",
        "nbytes",
        "samples",
        "algorithm",
        "params",
        "memory",
        "launch",
        "placement",
    )
)
_SUMMARY = (
    ProbeRow.id,
    ProbeRow.digest,
    ProbeRow.cluster_id,
    ClusterRow.name,
    ProbeRow.library,
    ProbeRow.provenance,
    ProbeRow.series_count,
    ProbeRow.stored_at,
)
_POINT = (SeriesRow.subject, SeriesRow.p, SeriesRow.nbytes, SeriesRow.algorithm, SeriesRow.ordinal)


@dataclass(frozen=True)
class StoredMeasurements:
    """What a list says of measurements; `series` counts them."""

    id: int
    digest: str
    cluster_id: int
    cluster: str
    library: str
    provenance: Mapping[str, Any]
    series: int
    stored_at: datetime


def store_measurements(session: Session, measurements: Measurements) -> Stored:
    """All in this transaction; for large files there is `ingest`.

    The same content is stored once. Raises UnavailableError while somebody else stores it.
    """
    digest = hashlib.sha256()
    for line in _file(measurements):
        digest.update(line.encode())
    values = {
        "cluster_id": store_cluster(session, measurements.cluster).id,
        "library": measurements.library,
        "provenance": dict(measurements.provenance),
        "digest": digest.hexdigest(),
        "series_count": len(measurements.series),
    }
    stored = store_once(session, ProbeRow.id, values, "digest")
    if stored.new:
        rows = [series_values(stored.id, *each) for each in enumerate(measurements.series)]
        session.execute(insert(SeriesRow), rows)
    elif session.get_one(ProbeRow, stored.id).author is not None:
        raise UnavailableError("these measurements are being stored by somebody else; try again")
    return stored


def load_measurements(session: Session, measurements_id: int) -> Measurements:
    """Raises NotFoundError."""
    row = _complete(session, measurements_id)
    query = select(*_SERIES).where(SeriesRow.probe_id == row.id).order_by(SeriesRow.ordinal)
    series = tuple(_measurement(*each) for each in session.execute(query))
    return Measurements(cluster_of(row.cluster), row.library, row.provenance, series)


def measurement_lines(engine: Engine, measurements_id: int) -> Iterator[str]:
    """The lines of the measurements file, each with its newline, in many short reads.

    Raises NotFoundError at the first line.
    """
    with reading(engine) as session:
        row = _complete(session, measurements_id)
        header = header_line(cluster_of(row.cluster), row.library, row.provenance)
        count = row.series_count
    yield header + "\n"
    for begin in range(0, count, MANY):
        with reading(engine) as session:
            query = select(*_SERIES).where(
                SeriesRow.probe_id == measurements_id,
                SeriesRow.ordinal >= begin,
                SeriesRow.ordinal < begin + MANY,
            )
            rows = session.execute(query.order_by(SeriesRow.ordinal)).all()
        yield from (series_line(_measurement(*each)) + "\n" for each in rows)
    yield end_line(count) + "\n"


def describe_measurements(session: Session, measurements_id: int) -> StoredMeasurements:
    """Raises NotFoundError."""
    found = session.execute(_summaries().where(ProbeRow.id == measurements_id)).one_or_none()
    if found is None:
        raise _absent(measurements_id)
    return StoredMeasurements(*found)


def list_measurements(
    session: Session,
    *,
    cluster: str | None = None,
    library: str | None = None,
    after: int = 0,
    limit: int = PAGE,
) -> Page[StoredMeasurements]:
    """In the order in which storing began; of one cluster (by name) or library, if asked for."""
    query = _summaries().where(*only(ClusterRow.name, cluster), *only(ProbeRow.library, library))
    return page_of(session, query, ProbeRow.id, StoredMeasurements, after, limit)


def list_series(
    session: Session,
    measurements_id: int,
    *,
    collective: str | None = None,
    p: int | None = None,
    nbytes: int | None = None,
    algorithm: str | None = None,
    after: int = 0,
    limit: int = PAGE,
) -> Page[Measurement]:
    """Series by subject, p, nbytes and algorithm, which is the order of the index.

    after       place in the file, from 1, of the last series that is not wanted any more

    Raises NotFoundError.
    """
    row = _complete(session, measurements_id)
    query = select(SeriesRow.ordinal, *_SERIES).where(
        SeriesRow.probe_id == row.id,
        *only(SeriesRow.subject, collective),
        *only(SeriesRow.p, p),
        *only(SeriesRow.nbytes, nbytes),
        *only(SeriesRow.algorithm, algorithm),
    )
    if after:
        place = select(*_POINT).where(SeriesRow.probe_id == row.id, SeriesRow.ordinal == after - 1)
        found = session.execute(place).one_or_none()
        if found is None:
            return Page([], None)
        query = query.where(tuple_(*_POINT) > tuple(found))
    rows = session.execute(query.order_by(*_POINT).limit(limit + 1)).all()
    items = [_measurement(*each[1:]) for each in rows[:limit]]
    return Page(items, rows[limit - 1][0] + 1 if len(rows) > limit else None)


def require_measurements(session: Session, measurements_id: int | None) -> None:
    """Raises NotFoundError unless they are there, or None."""
    if measurements_id is not None:
        _complete(session, measurements_id)


def series_values(probe_id: int, ordinal: int, series: Measurement) -> dict[str, Any]:
    """The columns of a series: they are called as its fields are."""
    return {**vars(series), "params": dict(series.params), "probe_id": probe_id, "ordinal": ordinal}


def _summaries() -> Select[*tuple[Any, ...]]:
    return select(*_SUMMARY).join(ClusterRow).where(ProbeRow.author.is_(None))


def _complete(session: Session, measurements_id: int) -> ProbeRow:
    row = session.get(ProbeRow, measurements_id)
    if row is None or row.author is not None:
        raise _absent(measurements_id)
    return row


def _absent(measurements_id: int) -> NotFoundError:
    return NotFoundError(f"the database has no measurements {measurements_id}")


def _measurement(
    kind: str,
    subject: str,
    nodes: int,
    ppn: int,
    p: int,
    nbytes: int,
    samples: list[float],
    *rest: Any,
) -> Measurement:
    return Measurement(kind, subject, nodes, ppn, p, nbytes, tuple(samples), *rest)


def _file(measurements: Measurements) -> Iterator[str]:
    """What the measurements file holds, in pieces."""
    about = (measurements.cluster, measurements.library, measurements.provenance)
    yield header_line(*about) + "\n"
    for series in measurements.series:
        yield series_line(series) + "\n"
    yield end_line(len(measurements.series)) + "\n"
