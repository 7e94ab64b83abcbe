"""Slurm host lists: `n[08-10,3]` is n08, n09, n10, n3; `r[1-2]n[1-2]` is four names."""

from __future__ import annotations

import re
from itertools import chain, product

from tuner.base.errors import InputError, shortened_repr

NUMBER_RANGE = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?")
MAX_NAME_LENGTH = 256


def expand_hostlist(text: str, max_names: int) -> list[str]:
    """Return the names of a host list in order.

    Raises InputError for more than `max_names` names and for a malformed list.
    """
    names: list[str] = []
    for part in split_hostlist(text):
        pieces = [
            _expand_piece(piece, max_names) for piece in re.split(r"(\[[^\[\]]*\])", part) if piece
        ]
        number = 1
        for piece in pieces:
            number *= len(piece)
        if len(names) + number > max_names:
            raise InputError(f"{shortened_repr(text)} stands for more than {max_names} names")
        if sum(len(piece[-1]) for piece in pieces) > MAX_NAME_LENGTH:
            raise InputError(f"{shortened_repr(part)} is longer than {MAX_NAME_LENGTH} characters")
        names += ["".join(letters) for letters in product(*pieces)]
    return names


def split_hostlist(text: str) -> list[str]:
    """Split a list at the commas outside of brackets; raise InputError if it is malformed."""
    found = re.findall(r"(?:\[[^\[\]]*\]|[^,\[\]\s])+", text)
    if not found or ",".join(found) != text:
        raise InputError(f"{shortened_repr(text)} is not a list of names such as n[01-16,20]")
    return found


def _expand_piece(piece: str, max_names: int) -> list[str]:
    """Return the alternatives of one pair of brackets, or the literal text itself."""
    if not piece.startswith("["):
        return [piece]
    return list(
        chain.from_iterable(_expand_range(text, max_names) for text in piece[1:-1].split(","))
    )


def _expand_range(text: str, max_names: int) -> list[str]:
    """Expand a range: `08-11` is 08, 09, 10, 11."""
    match = NUMBER_RANGE.fullmatch(text)
    if match is None:
        raise InputError(f"{shortened_repr(text)} is not a range such as 01-16")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 0 <= last - first < max_names:
        raise InputError(f"{shortened_repr(text)} does not stand for 1 to {max_names} numbers")
    return [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
