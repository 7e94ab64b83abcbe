"""Lists are read in pages, each of which says where the next one starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Select
from sqlalchemy.orm import InstrumentedAttribute, Session

T = TypeVar("T")
PAGE_SIZE = 100  # entries, unless asked for otherwise


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some entries of a list; `next` is the `after` of the following page, None at the end."""

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
    """The rows of `query` whose `key` is above `after`, in its order.

    The first column of the query is the key; `made` turns a row's columns into an entry.
    """
    rows = session.execute(query.where(key > after).order_by(key).limit(limit + 1)).all()
    following = rows[limit - 1][0] if len(rows) > limit else None
    return Page([make_item(*row) for row in rows[:limit]], following)


def equals_if_given(column: Any, value: object) -> list[Any]:
    """Conditions that a column has this value; none for None, which asks for everything."""
    return [] if value is None else [column == value]
