"""Stored calibrations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.base.atomic_io import encode_infinities
from tuner.core.calibration import Calibration, calibration_from_record, calibration_record
from tuner.db.db_errors import not_found
from tuner.db.deduplication import InsertResult, content_digest, insert_if_absent
from tuner.db.measurements import require_measurements
from tuner.db.models import CalibrationRow
from tuner.db.pagination import PAGE_SIZE, Page, equals_if_given, fetch_page


@dataclass(frozen=True)
class StoredCalibration:
    """The metadata of a stored calibration."""

    id: int
    measurements_id: int | None
    cluster: str
    library: str
    digest: str
    stored_at: datetime


_SUMMARY = (
    CalibrationRow.id,
    CalibrationRow.probe_id,
    CalibrationRow.cluster,
    CalibrationRow.library,
    CalibrationRow.digest,
    CalibrationRow.stored_at,
)


def store_calibration(
    session: Session, calibration: Calibration, measurements_id: int | None = None
) -> InsertResult:
    """Store a calibration that was fitted to these measurements, once per content.

    Raises NotFoundError where there are no such measurements.
    """
    require_measurements(session, measurements_id)
    content = encode_infinities(calibration_record(calibration))
    values = {
        "probe_id": measurements_id,
        "cluster": calibration.cluster,
        "library": calibration.library,
        "content": content,
        "digest": content_digest([content, measurements_id]),
    }
    return insert_if_absent(session, CalibrationRow.id, values, "digest")


def load_calibration(session: Session, calibration_id: int) -> Calibration:
    """Return a calibration by its id; raise NotFoundError if there is none."""
    row = session.get(CalibrationRow, calibration_id)
    if row is None:
        raise not_found(f"calibration {calibration_id}")
    return calibration_from_record(row.content)


def list_calibrations(
    session: Session,
    *,
    cluster: str | None = None,
    library: str | None = None,
    after: int = 0,
    limit: int = PAGE_SIZE,
) -> Page[StoredCalibration]:
    """Return a page of calibrations in the order stored.

    cluster     only those of this cluster, by name
    library     only those of this library
    """
    query = select(*_SUMMARY).where(
        *equals_if_given(CalibrationRow.cluster, cluster),
        *equals_if_given(CalibrationRow.library, library),
    )
    return fetch_page(session, query, CalibrationRow.id, StoredCalibration, after, limit)
