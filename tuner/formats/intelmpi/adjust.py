"""The value of I_MPI_ADJUST_<COLLECTIVE>: writing it, and reading it strictly.

`5:0-1023;16:1024-4095;1` runs preset 5 up to 1023 bytes, 16 up to 4095, and 1 beyond. Measured with
2021.18: a number with a unit is read as far as its digits go, an unknown preset runs something
else, a value in error is left out; the library speaks of the latter two with I_MPI_DEBUG=2 alone.
All of that is an InputError here. Allgather, gather and scatter compare the bytes that one rank
gives or gets, the others the whole; preset 0 is not the library's own decision.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner.base.errors import InputError, quoted
from tuner.core.collective import Collective
from tuner.core.table import Choice
from tuner.formats import strict_parsing
from tuner.formats.env_format import LARGEST, Dialect, Entry
from tuner.mpi_libraries.intelmpi import PER_RANK, PRESETS, choice_of, preset_of

PREFIX = "I_MPI_ADJUST_"
MOST_ENTRIES = 1000
_ENTRY = re.compile(
    rf"({strict_parsing.NUMBER})(?::({strict_parsing.NUMBER})-({strict_parsing.NUMBER}))?"
)


def otherwise_of(name: str) -> Choice | None:
    """A stand-in for Intel MPI's own decision, such as `preset_1`; None of "".

    Raises InputError for another name.
    """
    if not name:
        return None
    preset_of(Collective.ALLREDUCE, Choice(name))
    return Choice(name)


def write(entries: Sequence[Entry]) -> str:
    """`5:0-1023;1` of entries, the last of which has no bound."""
    words, first = list[str](), 0
    for entry in entries:
        if entry.last is None:
            words.append(str(entry.number))
        else:
            words.append(f"{entry.number}:{first}-{entry.last}")
            first = entry.last + 1
    return ";".join(words)


def read(collective: Collective, value: str) -> tuple[Entry, ...]:
    """The entries of a value; raises InputError for what Intel MPI would misread or leave out."""
    entries, words = list[Entry](), value.split(";")
    if len(words) > MOST_ENTRIES:
        raise InputError(f"more than {MOST_ENTRIES} entries")
    for word in words:
        beyond = entries[-1].last if entries else -1
        entries.append(_entry(word, beyond, PRESETS[collective]))
    if entries[-1].last is not None:
        raise InputError(
            f"the last entry {quoted(words[-1])} would take all larger calls as well: write it"
            " without bounds"
        )
    return tuple(entries)


def _entry(word: str, beyond: int | None, largest: int) -> Entry:
    match = _ENTRY.fullmatch(word)
    if match is None:
        raise InputError(
            f"{quoted(word)} is no PRESET or PRESET:FIRST-LAST in bytes; Intel MPI would misread it"
            " or leave out the whole value"
        )
    if int(match[1]) > largest:
        raise InputError(
            f"there is no preset {match[1]}, the largest is {largest}; Intel MPI would run"
            " something else"
        )
    if beyond is None:
        raise InputError(f"nothing is left for {quoted(word)} after an entry without bounds")
    if match[3] is None:
        return Entry(int(match[1]))
    first, last = int(match[2]), int(match[3])
    if first != beyond + 1 or last < first or last > LARGEST:
        raise InputError(
            f"{quoted(word)} should begin at {beyond + 1} and end above, at most at {LARGEST}:"
            " Intel MPI looks at the ends alone"
        )
    return Entry(int(match[1]), last)


DIALECT = Dialect(
    "Intel MPI",
    {c: f"{PREFIX}{c.upper()}" for c in PRESETS},
    PER_RANK,
    preset_of,
    lambda _, preset: choice_of(preset),
    write,
    read,
)
