"""Stored measurements, which are loaded exactly as stored and are invisible until complete."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Select, insert, select, tuple_
from sqlalchemy.orm import Session

from tuner.core.measurement import Measurement, Measurements, end_line, header_line, series_line
from tuner.db.clusters import cluster_from_row, store_cluster
from tuner.db.db_errors import UnavailableError, not_found
from tuner.db.deduplication import InsertResult, insert_if_absent
from tuner.db.models import ClusterRow, ProbeRow, SeriesRow
from tuner.db.pagination import PAGE_SIZE, Page, equals_if_given, fetch_page
from tuner.db.transactions import read_session

SERIES_PER_READ = 2000  # series read at a time

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
    ClusterRow.name,
    ProbeRow.library,
    ProbeRow.provenance,
    ProbeRow.series_count,
    ProbeRow.stored_at,
)
_POINT = (SeriesRow.subject, SeriesRow.p, SeriesRow.nbytes, SeriesRow.algorithm, SeriesRow.ordinal)


@dataclass(frozen=True)
class StoredMeasurements:
    """The metadata of stored measurements; `series` counts their series."""

    id: int
    digest: str
    cluster: str
    library: str
    provenance: Mapping[str, Any]
    series: int
    stored_at: datetime


def store_measurements(session: Session, measurements: Measurements) -> InsertResult:
    """Store measurements in this transaction, once per content; for large files use `ingest`.

    Raises UnavailableError while another upload stores the same content.
    """
    digest = hashlib.sha256()
    for line in _file_lines(measurements):
        digest.update(line.encode())
    values = {
        "cluster_id": store_cluster(session, measurements.cluster).id,
        "library": measurements.library,
        "provenance": dict(measurements.provenance),
        "digest": digest.hexdigest(),
        "series_count": len(measurements.series),
    }
    stored = insert_if_absent(session, ProbeRow.id, values, "digest")
    if stored.is_new:
        rows = [series_columns(stored.id, *each) for each in enumerate(measurements.series)]
        if rows:  # an empty list would insert a row of defaults
            session.execute(insert(SeriesRow), rows)
    elif session.get_one(ProbeRow, stored.id).author is not None:
        raise UnavailableError("these measurements are being stored by somebody else; try again")
    return stored


def load_measurements(session: Session, measurements_id: int) -> Measurements:
    """Return measurements by their id; raise NotFoundError if there are none."""
    row = _load_complete(session, measurements_id)
    query = select(*_SERIES).where(SeriesRow.probe_id == row.id).order_by(SeriesRow.ordinal)
    series = tuple(_measurement(*each) for each in session.execute(query))
    return Measurements(cluster_from_row(row.cluster), row.library, row.provenance, series)


def measurement_lines(engine: Engine, measurements_id: int) -> Iterator[str]:
    """Yield the lines of the measurements file with their newlines, in many short reads.

    Raises NotFoundError at the first line.
    """
    with read_session(engine) as session:
        row = _load_complete(session, measurements_id)
        header = header_line(cluster_from_row(row.cluster), row.library, row.provenance)
        count = row.series_count
    yield header + "\n"
    for begin in range(0, count, SERIES_PER_READ):
        with read_session(engine) as session:
            query = select(*_SERIES).where(
                SeriesRow.probe_id == measurements_id,
                SeriesRow.ordinal >= begin,
                SeriesRow.ordinal < begin + SERIES_PER_READ,
            )
            rows = session.execute(query.order_by(SeriesRow.ordinal)).all()
        yield from (series_line(_measurement(*each)) + "\n" for each in rows)
    yield end_line(count) + "\n"


def describe_measurements(session: Session, measurements_id: int) -> StoredMeasurements:
    """Return the metadata of measurements; raise NotFoundError if there are none."""
    found = session.execute(_summaries().where(ProbeRow.id == measurements_id)).one_or_none()
    if found is None:
        raise not_found(f"measurements {measurements_id}")
    return StoredMeasurements(*found)


def list_measurements(
    session: Session,
    *,
    cluster: str | None = None,
    library: str | None = None,
    after: int = 0,
    limit: int = PAGE_SIZE,
) -> Page[StoredMeasurements]:
    """Return a page of measurements in the order in which their storage began.

    cluster     only those of this cluster, by name
    library     only those of this library
    """
    query = _summaries().where(
        *equals_if_given(ClusterRow.name, cluster), *equals_if_given(ProbeRow.library, library)
    )
    return fetch_page(session, query, ProbeRow.id, StoredMeasurements, after, limit)


def list_series(
    session: Session,
    measurements_id: int,
    *,
    collective: str | None = None,
    p: int | None = None,
    nbytes: int | None = None,
    algorithm: str | None = None,
    after: int = 0,
    limit: int = PAGE_SIZE,
) -> Page[Measurement]:
    """Return a page of series, ordered by subject, p, nbytes, algorithm and place as in the index.

    after       place in the file, from 1, of the last series of the previous page

    Raises NotFoundError.
    """
    row = _load_complete(session, measurements_id)
    query = select(SeriesRow.ordinal, *_SERIES).where(
        SeriesRow.probe_id == row.id,
        *equals_if_given(SeriesRow.subject, collective),
        *equals_if_given(SeriesRow.p, p),
        *equals_if_given(SeriesRow.nbytes, nbytes),
        *equals_if_given(SeriesRow.algorithm, algorithm),
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


def load_pair_sweep(session: Session, measurements_id: int) -> list[Measurement]:
    """Return the series in which every host met others, in the order in which they were measured.

    Raises NotFoundError.
    """
    row = _load_complete(session, measurements_id)
    query = select(*_SERIES).where(SeriesRow.probe_id == row.id, SeriesRow.kind == "sweep")
    return [_measurement(*each) for each in session.execute(query.order_by(SeriesRow.ordinal))]


def require_measurements(session: Session, measurements_id: int | None) -> None:
    """Raise NotFoundError unless the id is None or that of complete measurements."""
    if measurements_id is not None:
        _load_complete(session, measurements_id)


def series_columns(probe_id: int, ordinal: int, series: Measurement) -> dict[str, Any]:
    """Return the columns of a series, which have the names of its fields."""
    return {**vars(series), "params": dict(series.params), "probe_id": probe_id, "ordinal": ordinal}


def _summaries() -> Select[*tuple[Any, ...]]:
    return select(*_SUMMARY).join(ClusterRow).where(ProbeRow.author.is_(None))


def _load_complete(session: Session, measurements_id: int) -> ProbeRow:
    row = session.get(ProbeRow, measurements_id)
    if row is None or row.author is not None:
        raise not_found(f"measurements {measurements_id}")
    return row


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


def _file_lines(measurements: Measurements) -> Iterator[str]:
    about = (measurements.cluster, measurements.library, measurements.provenance)
    yield header_line(*about) + "\n"
    for series in measurements.series:
        yield series_line(series) + "\n"
    yield end_line(len(measurements.series)) + "\n"
