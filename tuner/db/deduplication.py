"""Deduplicated storage: equal content has one id, however often and by whomever it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import InstrumentedAttribute, Session


@dataclass(frozen=True)
class InsertResult:
    """The id of stored content; `is_new` is false where it was stored before."""

    id: int
    is_new: bool


def content_digest(content: object) -> str:
    """Return the SHA-256 of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def insert_if_absent(
    session: Session, key: InstrumentedAttribute[int], values: Mapping[str, Any], *unique: str
) -> InsertResult:
    """Insert `values` unless a row is equal in its `unique` columns; return the row's id.

    key     the mapped primary key, such as ClusterRow.id

    Of several sessions that insert the same at the same time, one does; the others wait for it
    and return its row.
    """
    row: Any = key.class_
    equal: ColumnElement[bool] = and_(*(getattr(row, name) == values[name] for name in unique))
    insert = _insert(session)(row).values(**values).on_conflict_do_nothing().returning(key)
    while True:  # a conflicting row may be deleted before it is found
        known = session.scalar(select(key).where(equal))
        if known is not None:
            return InsertResult(known, False)
        made = session.scalar(insert)
        if made is not None:
            return InsertResult(made, True)


def _insert(session: Session) -> Any:
    if session.get_bind().dialect.name != "postgresql":
        return sqlite.insert
    from sqlalchemy.dialects import postgresql  # takes 50 ms, which SQLite does not need

    return postgresql.insert
