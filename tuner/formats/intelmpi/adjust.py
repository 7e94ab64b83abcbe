"""Write the value of I_MPI_ADJUST_<COLLECTIVE>, and read it strictly.

`5:0-1023;16:1024-4095;1` runs preset 5 up to 1023 bytes, 16 up to 4095, and 1 beyond. Measured with
2021.18: a number with a unit is read only up to its last digit, an unknown preset runs something
else, and a malformed value is ignored; the library reports the latter two only with I_MPI_DEBUG=2.
All of them raise InputError here. Allgather, gather and scatter compare the bytes that one rank
sends or receives, the others the whole buffer. Preset 0 is not the library's own decision.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.formats import strict_parsing
from tuner.formats.env_format import MAX_BOUND_BYTES, EnvDialect, EnvEntry
from tuner.mpi_libraries.intelmpi import MAX_PRESETS, PER_RANK_COLLECTIVES, choice_of, preset_of

VARIABLE_PREFIX = "I_MPI_ADJUST_"
MAX_ENTRIES = 1000
_ENTRY = re.compile(
    rf"({strict_parsing.INTEGER_PATTERN})(?::({strict_parsing.INTEGER_PATTERN})-({strict_parsing.INTEGER_PATTERN}))?"
)


def fallback_of(name: str) -> AlgorithmChoice | None:
    """Return the fallback algorithm of this name, such as `preset_1`; None for "".

    Raises InputError for another name.
    """
    if not name:
        return None
    preset_of(Collective.ALLREDUCE, AlgorithmChoice(name))
    return AlgorithmChoice(name)


def format_value(entries: Sequence[EnvEntry]) -> str:
    """Return entries as `5:0-1023;1`; the last one has no bound."""
    words, first = list[str](), 0
    for entry in entries:
        if entry.max_bytes is None:
            words.append(str(entry.number))
        else:
            words.append(f"{entry.number}:{first}-{entry.max_bytes}")
            first = entry.max_bytes + 1
    return ";".join(words)


def parse_value(collective: Collective, value: str) -> tuple[EnvEntry, ...]:
    """Return the entries of a value; raises InputError for what Intel MPI misreads or ignores."""
    entries, words = list[EnvEntry](), value.split(";")
    if len(words) > MAX_ENTRIES:
        raise InputError(f"more than {MAX_ENTRIES} entries")
    for word in words:
        beyond = entries[-1].max_bytes if entries else -1
        entries.append(_parse_entry(word, beyond, MAX_PRESETS[collective]))
    if entries[-1].max_bytes is not None:
        raise InputError(
            f"the last entry {shortened_repr(words[-1])} would take all larger calls as well:"
            " write it without bounds"
        )
    return tuple(entries)


def _parse_entry(word: str, beyond: int | None, largest: int) -> EnvEntry:
    match = _ENTRY.fullmatch(word)
    if match is None:
        raise InputError(
            f"{shortened_repr(word)} is not a PRESET or PRESET:FIRST-LAST in bytes; Intel MPI"
            " would misread it or leave out the whole value"
        )
    if int(match[1]) > largest:
        raise InputError(
            f"there is no preset {match[1]}, the largest is {largest}; Intel MPI would run"
            " something else"
        )
    if beyond is None:
        raise InputError(
            f"nothing is left for {shortened_repr(word)} after an entry without bounds"
        )
    if match[3] is None:
        return EnvEntry(int(match[1]))
    first, last = int(match[2]), int(match[3])
    if first != beyond + 1 or last < first or last > MAX_BOUND_BYTES:
        raise InputError(
            f"{shortened_repr(word)} should begin at {beyond + 1} and end above, at most at"
            f" {MAX_BOUND_BYTES}: Intel MPI looks at the ends alone"
        )
    return EnvEntry(int(match[1]), last)


DIALECT = EnvDialect(
    "Intel MPI",
    {c: f"{VARIABLE_PREFIX}{c.upper()}" for c in MAX_PRESETS},
    PER_RANK_COLLECTIVES,
    preset_of,
    lambda _, preset: choice_of(preset),
    format_value,
    parse_value,
)
