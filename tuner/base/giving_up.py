"""Long computations that end early when their results are no longer wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class GivenUpError(Exception):
    """The result of a computation is no longer wanted."""


_is_given_up: list[Callable[[], bool]] = []


@contextmanager
def given_up_when(is_given_up: Callable[[], bool]) -> Iterator[None]:
    """Have `go_on` ask a function, which must be fast, inside this context."""
    _is_given_up.append(is_given_up)
    try:
        yield
    finally:
        _is_given_up.pop()


def go_on() -> None:
    """Raise GivenUpError if the result is no longer wanted.

    Long loops call this every few milliseconds.
    """
    if _is_given_up and _is_given_up[-1]():
        raise GivenUpError
