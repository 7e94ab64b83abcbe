"""Calibrations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.base.atomic_io import finite
from tuner.core.calibration import Calibration, calibration_from_record, calibration_record
from tuner.db.db_errors import NotFoundError
from tuner.db.deduplication import Stored, digest_of, store_once
from tuner.db.measurements import require_measurements
from tuner.db.models import CalibrationRow
from tuner.db.pagination import PAGE, Page, only, page_of


@dataclass(frozen=True)
class StoredCalibration:
    """What a list says of a calibration."""

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
) -> Stored:
    """A calibration that was made from these measurements; stored once per content.

    Raises NotFoundError when there are no such measurements.
    """
    require_measurements(session, measurements_id)
    content = finite(calibration_record(calibration))
    values = {
        "probe_id": measurements_id,
        "cluster": calibration.cluster,
        "library": calibration.library,
        "content": content,
        "digest": digest_of([content, measurements_id]),
    }
    return store_once(session, CalibrationRow.id, values, "digest")


def load_calibration(session: Session, calibration_id: int) -> Calibration:
    """Raises NotFoundError."""
    row = session.get(CalibrationRow, calibration_id)
    if row is None:
        raise NotFoundError(f"the database has no calibration {calibration_id}")
    return calibration_from_record(row.content)


def list_calibrations(
    session: Session,
    *,
    cluster: str | None = None,
    library: str | None = None,
    after: int = 0,
    limit: int = PAGE,
) -> Page[StoredCalibration]:
    """In the order stored; of one cluster (by name) or one library, if asked for."""
    query = select(*_SUMMARY).where(
        *only(CalibrationRow.cluster, cluster), *only(CalibrationRow.library, library)
    )
    return page_of(session, query, CalibrationRow.id, StoredCalibration, after, limit)
