"""Lists of names as Slurm writes them: `n[08-10,3]` is n08, n09, n10, n3; `r[1-2]n[1-2]` four."""

from __future__ import annotations

import re
from itertools import chain, product

from tuner.base.errors import InputError, quoted

RANGE = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?")
LONGEST_NAME = 256


def expanded(text: str, most: int) -> list[str]:
    """The names in order. Raises InputError for more than `most` and for what is no such list."""
    names: list[str] = []
    for part in parts(text):
        pieces = [_piece(piece, most) for piece in re.split(r"(\[[^\[\]]*\])", part) if piece]
        number = 1
        for piece in pieces:
            number *= len(piece)
        if len(names) + number > most:
            raise InputError(f"{quoted(text)} stands for more than {most} names")
        if sum(len(piece[-1]) for piece in pieces) > LONGEST_NAME:
            raise InputError(f"{quoted(part)} is longer than {LONGEST_NAME} characters")
        names += ["".join(letters) for letters in product(*pieces)]
    return names


def parts(text: str) -> list[str]:
    """Split a list at the commas outside of brackets; raises InputError for what is no list."""
    found = re.findall(r"(?:\[[^\[\]]*\]|[^,\[\]\s])+", text)
    if not found or ",".join(found) != text:
        raise InputError(f"{quoted(text)} is not a list of names such as n[01-16,20]")
    return found


def _piece(piece: str, most: int) -> list[str]:
    """The letters as they are, or what a pair of brackets stands for."""
    if not piece.startswith("["):
        return [piece]
    return list(chain.from_iterable(_numbers(text, most) for text in piece[1:-1].split(",")))


def _numbers(text: str, most: int) -> list[str]:
    """`08-11` is 08, 09, 10, 11."""
    match = RANGE.fullmatch(text)
    if match is None:
        raise InputError(f"{quoted(text)} is not a range such as 01-16")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 0 <= last - first < most:
        raise InputError(f"{quoted(text)} does not stand for 1 to {most} numbers")
    return [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
