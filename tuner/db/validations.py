"""Results of validation and of held-out timing for a version of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from tuner.db.models import HeldoutRow, ValidationRow

_VALIDATION_FIELDS = ("collective", "p", "nbytes", "expected", "executed", "confirmed", "reason")
_HELDOUT_FIELDS = ("collective", "p", "nbytes", "algorithm", "default_s", "tuned_s", "ratio")


def store_validations(
    session: Session, version: int, validations: Sequence[Mapping[str, Any]]
) -> None:
    """Store the validations of a version, replacing earlier ones.

    Each record has collective, p, nbytes, expected, executed, confirmed (bool) and reason.
    """
    session.execute(delete(ValidationRow).where(ValidationRow.version == version))
    for proof in validations:
        session.add(
            ValidationRow(version=version, **{name: proof[name] for name in _VALIDATION_FIELDS})
        )
    session.flush()


def load_validations(session: Session, version: int) -> list[dict[str, Any]]:
    """Return the validations in the order stored; empty if nothing was validated."""
    rows = session.scalars(
        select(ValidationRow).where(ValidationRow.version == version).order_by(ValidationRow.id)
    )
    return [{name: getattr(row, name) for name in _VALIDATION_FIELDS} for row in rows]


def store_heldout(session: Session, version: int, results: Sequence[Mapping[str, Any]]) -> None:
    """Store the held-out timings of a version, replacing earlier ones.

    Each record has collective, p, nbytes, algorithm, default_s and tuned_s (seconds), ratio and
    ci95 (a pair), as the `heldout` records of a report.
    """
    session.execute(delete(HeldoutRow).where(HeldoutRow.version == version))
    for result in results:
        low, high = result["ci95"]
        fields = {name: result[name] for name in _HELDOUT_FIELDS}
        session.add(HeldoutRow(version=version, **fields, ci95_low=low, ci95_high=high))
    session.flush()


def load_heldout(session: Session, version: int) -> list[dict[str, Any]]:
    """Return the held-out timings in the order stored; empty if nothing was compared."""
    rows = session.scalars(
        select(HeldoutRow).where(HeldoutRow.version == version).order_by(HeldoutRow.id)
    )
    return [
        {name: getattr(row, name) for name in _HELDOUT_FIELDS}
        | {"ci95": [row.ci95_low, row.ci95_high]}
        for row in rows
    ]
