"""Buckets of gradients that are reduced by one call; this module needs no other package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar


class Sized(Protocol):
    """Something with a size, such as a gradient."""

    @property
    def nbytes(self) -> int: ...


Member = TypeVar("Member", bound=Sized)


def fill_buckets(gradients: Sequence[Member], threshold: int) -> Iterator[list[Member]]:
    """Yield the gradients in buckets of at most `threshold` bytes; a longer one is by itself."""
    bucket, held = list[Member](), 0
    for one in gradients:
        if bucket and held + one.nbytes > threshold:
            yield bucket
            bucket, held = [], 0
        bucket.append(one)
        held += one.nbytes
    if bucket:
        yield bucket
