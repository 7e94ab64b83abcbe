"""The value of I_MPI_ADJUST_<COLLECTIVE>: reading it strictly, and deciding with it as Intel MPI.

`5:0-1023;16:1024-4095;1` runs preset 5 up to 1023 bytes, 16 up to 4095, and 1 beyond. Measured with
2021.18: the first entry whose upper bound is not below the call counts, lower bounds are ignored,
and the last entry takes all that is left whatever its bounds are. A number with a unit is read as
far as its digits go, an unknown preset runs something else, a value in error is left out; the
library speaks of the latter two only with I_MPI_DEBUG=2. All of that is an InputError here.

Allgather, gather and scatter compare the bytes that one rank gives or gets, the others the whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.collective import Collective
from tuner.errors import InputError, quoted
from tuner.export import environment
from tuner.libraries.intelmpi import PER_RANK, PRESETS, choice_of
from tuner.table import Choice

PREFIX = "I_MPI_ADJUST_"
LARGEST = 2**31 - 1  # bytes of a bound; how Intel MPI reads larger numbers is not known
MOST_ENTRIES = 1000
_ENTRY = re.compile(r"(\d{1,3})(?::(\d{1,10})-(\d{1,10}))?")


@dataclass(frozen=True)
class Entry:
    """Calls of up to `last` bytes, None without bound, that no earlier entry took."""

    preset: int
    last: int | None = None


Ladders = Mapping[Collective, tuple[Entry, ...]]


def compared_bytes(collective: Collective, p: int, nbytes: int) -> int:
    """What the library compares with its bounds in a call of `nbytes` of the whole buffer."""
    return nbytes // p if collective in PER_RANK else nbytes


def decide(ladders: Ladders, collective: Collective, p: int, nbytes: int) -> Choice:
    """What Intel MPI is told for a call; the default where no variable speaks of the collective."""
    size = compared_bytes(collective, p, nbytes)
    for entry in ladders.get(collective, ()):
        if entry.last is None or size <= entry.last:
            return choice_of(entry.preset)
    return Choice()


def parse(text: str) -> Ladders:
    """What a file of such variables says; raises InputError naming what Intel MPI would misread."""
    try:
        variables = environment.parse(text)
    except InputError as reason:
        raise InputError(f"Intel MPI variables: {reason}") from None
    return dict(_ladder(name, value) for name, value in variables.items())


def _ladder(name: str, value: str) -> tuple[Collective, tuple[Entry, ...]]:
    collective = next((c for c in PRESETS if f"{PREFIX}{c.upper()}" == name), None)
    if collective is None:
        known = ", ".join(PREFIX + c.upper() for c in PRESETS)
        raise InputError(f"Intel MPI variables: {name} is none of {known}")
    entries = list[Entry]()
    words = value.split(";")
    if len(words) > MOST_ENTRIES:
        raise InputError(f"{name}: more than {MOST_ENTRIES} entries")
    for word in words:
        beyond = entries[-1].last if entries else -1
        entries.append(_entry(name, word, beyond, PRESETS[collective]))
    if entries[-1].last is not None:
        raise InputError(
            f"{name}: the last entry {quoted(words[-1])} would take all larger calls as well:"
            " write it without bounds"
        )
    return collective, tuple(entries)


def _entry(name: str, word: str, beyond: int | None, largest: int) -> Entry:
    match = _ENTRY.fullmatch(word)
    if match is None:
        raise InputError(
            f"{name}: {quoted(word)} is no PRESET or PRESET:FIRST-LAST in bytes; Intel MPI would"
            " misread it or leave out the whole value"
        )
    if int(match[1]) > largest:
        raise InputError(
            f"{name}: there is no preset {match[1]}, the largest is {largest}; Intel MPI would run"
            " something else"
        )
    if beyond is None:
        raise InputError(
            f"{name}: nothing is left for {quoted(word)} after an entry without bounds"
        )
    if match[3] is None:
        return Entry(int(match[1]))
    first, last = int(match[2]), int(match[3])
    if first != beyond + 1 or last < first or last > LARGEST:
        raise InputError(
            f"{name}: {quoted(word)} should begin at {beyond + 1} and end above, at most at"
            f" {LARGEST}: Intel MPI looks at the ends alone"
        )
    return Entry(int(match[1]), last)
