"""Paginated lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Select
from sqlalchemy.orm import InstrumentedAttribute, Session

T = TypeVar("T")
PAGE_SIZE = 100  # entries by default


@dataclass(frozen=True)
class Page(Generic[T]):
    """A page of a list; `next` is the `after` of the following page, or None at the end."""

    items: list[T]
    next: int | None


def fetch_page(
    session: Session,
    query: Select[*tuple[Any, ...]],
    key: InstrumentedAttribute[int],
    make_item: Callable[..., T],
    after: int,
    limit: int,
) -> Page[T]:
    """Return the rows of `query` whose `key` is above `after`, ordered by it, as a page.

    The first column of the query is the key; `make_item` turns a row's columns into an entry.
    """
    rows = session.execute(query.where(key > after).order_by(key).limit(limit + 1)).all()
    following = rows[limit - 1][0] if len(rows) > limit else None
    return Page([make_item(*row) for row in rows[:limit]], following)


def equals_if_given(column: Any, value: object) -> list[Any]:
    """Return the condition that a column has this value as a list, which is empty for None."""
    return [] if value is None else [column == value]
