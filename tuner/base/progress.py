"""How far long work is: what it calls after every part that is done, and how to hear nothing."""

from collections.abc import Callable

Counted = Callable[[int, int], None]  # (parts done, parts altogether)


def quietly(_done: int, _total: int) -> None:
    """Report no progress."""
