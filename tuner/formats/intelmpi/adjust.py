"""Write the value of I_MPI_ADJUST_<COLLECTIVE>, and read it strictly.

`5:0-1023;16:1024-4095;1` runs preset 5 up to 1023 bytes, 16 up to 4095, and 1 beyond. Measured with
2021.18: a number with a unit is read only up to its last digit, an unknown preset runs something
else, and a malformed value is ignored; the library reports the latter two only with I_MPI_DEBUG=2.
All of them raise InputError here. A bounded last entry takes all larger calls, too (timed with
2021.15), and lower bounds are not looked at: both are reported. Allgather, gather and scatter
compare the bytes that one rank sends or receives, the others the whole buffer. Preset 0 is not the
library's own decision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

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


def parse_value(
    collective: Collective, value: str, report: Callable[[str], None]
) -> tuple[EnvEntry, ...]:
    """Return the entries of a value as Intel MPI takes them; raises InputError for what it ignores.

    report  takes sentences on bounds that do not count
    """
    entries, words, beyond = list[EnvEntry](), value.split(";"), -1
    if len(words) > MAX_ENTRIES:
        raise InputError(f"more than {MAX_ENTRIES} entries")
    for word in words:
        if entries and entries[-1].max_bytes is None:
            raise InputError(
                f"nothing is left for {shortened_repr(word)} after an entry without bounds"
            )
        entries.append(_parse_entry(word, beyond, MAX_PRESETS[collective], report))
        beyond = max(beyond, entries[-1].max_bytes or 0)
    if entries[-1].max_bytes is not None:
        report(
            f"the last entry {shortened_repr(words[-1])} takes all larger calls as well, as timed"
            " with Intel MPI 2021.15: write it without bounds, or an entry for these after it"
        )
    return (*entries[:-1], EnvEntry(entries[-1].number))


def _parse_entry(word: str, beyond: int, largest: int, report: Callable[[str], None]) -> EnvEntry:
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
    if match[3] is None:
        return EnvEntry(int(match[1]))
    first, last = int(match[2]), int(match[3])
    if last < first or last > MAX_BOUND_BYTES:
        raise InputError(
            f"{shortened_repr(word)} should begin at {beyond + 1} and end above, at most at"
            f" {MAX_BOUND_BYTES}"
        )
    if first != beyond + 1:
        report(
            f"{shortened_repr(word)} should begin at {beyond + 1}: Intel MPI looks at the ends"
            " alone"
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
