"""Stored predictions, which are simulated times; each question is answered once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.db.db_errors import NotFoundError
from tuner.db.deduplication import InsertResult, content_digest, insert_if_absent
from tuner.db.models import PredictionRow
from tuner.db.pagination import PAGE_SIZE, Page, fetch_page


@dataclass(frozen=True)
class PredictionSummary:
    """The metadata of a prediction with its question."""

    id: int
    question: Mapping[str, Any]
    stored_at: datetime


@dataclass(frozen=True)
class StoredPrediction(PredictionSummary):
    """A prediction with its answer in `items`."""

    items: Sequence[Mapping[str, Any]]


_SUMMARY = (PredictionRow.id, PredictionRow.question, PredictionRow.stored_at)


def store_prediction(
    session: Session, question: Mapping[str, Any], items: Sequence[Mapping[str, Any]]
) -> InsertResult:
    """Store the answer to a question, which names `topology` and `calibration` (or None) by id.

    An answer that is stored already is kept. Raises InputError where one of the two ids does not
    exist.
    """
    values = {
        "topology_id": question["topology"],
        "calibration_id": question["calibration"],
        "question": dict(question),
        "items": [dict(item) for item in items],
        "digest": content_digest(question),
    }
    return insert_if_absent(session, PredictionRow.id, values, "digest")


def find_prediction(session: Session, question: Mapping[str, Any]) -> StoredPrediction | None:
    """Return the stored answer to this question, or None."""
    return _load(session, PredictionRow.digest == content_digest(question))


def load_prediction(session: Session, prediction_id: int) -> StoredPrediction:
    """Return a prediction by its id; raise NotFoundError if there is none."""
    found = _load(session, PredictionRow.id == prediction_id)
    if found is None:
        raise NotFoundError(f"the database has no prediction {prediction_id}")
    return found


def list_predictions(
    session: Session, *, after: int = 0, limit: int = PAGE_SIZE
) -> Page[PredictionSummary]:
    """Return a page of predictions in the order stored."""
    return fetch_page(session, select(*_SUMMARY), PredictionRow.id, PredictionSummary, after, limit)


def _load(session: Session, condition: Any) -> StoredPrediction | None:
    query = select(*_SUMMARY, PredictionRow.items).where(condition)
    found = session.execute(query).one_or_none()
    return None if found is None else StoredPrediction(*found)
