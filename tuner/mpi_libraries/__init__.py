"""MPI libraries: their names for the algorithms, what they can do, and how they are configured."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

from tuner.base.errors import InputError
from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.core.table import LIBRARY, AlgorithmChoice
from tuner.mpi_libraries import mpich, openmpi
from tuner.mpi_libraries.capabilities import Capabilities
from tuner.mpi_libraries.products import base_of, title_of

LIBRARY_MODULES = {"openmpi": openmpi, "mpich": mpich}
CandidateFunction = Callable[..., Sequence[AlgorithmChoice]]


def library_module(library: str) -> ModuleType:
    """Return the module of `openmpi 5.0.11`, `mpich` or what is built on one of them.

    Raises InputError for any other library.
    """
    name = base_of(library)
    if name not in LIBRARY_MODULES:
        known = " and ".join(LIBRARY_MODULES)
        raise InputError(
            f"tables cannot be made for {library!r}, only for {known}: write rules for another"
            " library yourself, as docs/reference/library-formats.md shows, and export them"
        )
    return LIBRARY_MODULES[name]


def min_call_bytes(library: str, choice: AlgorithmChoice) -> int:
    """Return the size in bytes, over the whole buffer, of the smallest call that may run a choice.

    library     name and version; 0 for one that tables are not made for here

    Algorithms that the library does not run itself take calls of any size.
    """
    known = LIBRARY_MODULES.get(base_of(library))
    return known.min_call_bytes(choice) if known and choice.runner == LIBRARY else 0


def require_safe_size(library: str, choice: AlgorithmChoice, start_bytes: int) -> None:
    """Raise InputError for a rule from `start_bytes` on that has calls too small for its choice."""
    least = min_call_bytes(library, choice)
    if start_bytes < least:
        raise InputError(
            f"{title_of(library)} may divide a segment by the size of the datatype,"
            f" which is 0 in some calls of {plural(start_bytes, 'byte')}, and then the program"
            f" ends: let the rule start at {plural(least, 'byte')}"
        )


def available_candidates(library: str, capabilities: Capabilities) -> CandidateFunction:
    """Return `candidates` of a library's module less those that this version of it lacks."""
    known = library_module(library)

    def candidates(collective: Collective, *arguments: object) -> list[AlgorithmChoice]:
        return [
            choice
            for choice in known.candidates(collective, *arguments)
            if not capabilities.missing_reason(known.settings(collective, choice))
        ]

    return candidates


def describe_missing_algorithms(library: str, capabilities: Capabilities) -> list[str]:
    """Return which algorithms this version lacks, one sentence for each collective."""
    known, lines = library_module(library), []
    for collective in known.ALGORITHMS:
        usual = known.candidates(collective, 8, 1 << 20)
        kept = available_candidates(library, capabilities)(collective, 8, 1 << 20)
        lacking = dict.fromkeys(choice.algorithm for choice in usual if choice not in kept)
        if lacking:
            lines.append(
                f"{title_of(library)} has no {_join_names(lacking)} for {collective}: the other"
                " algorithms are measured"
            )
    return lines


def require_no_override(pattern: str) -> None:
    """Raise InputError where the environment forces decisions that are to be observed.

    pattern     matches NAME=VALUE of such variables: `OVERRIDING_PATTERN` of a library's module
    """
    found = sorted(
        name for name, value in os.environ.items() if re.fullmatch(pattern, f"{name}={value}")
    )
    if found:
        are, them = ("is", "it") if len(found) == 1 else ("are", "them")
        raise InputError(
            f"{' and '.join(found)} {are} set and would decide for every launch: unset {them}"
        )


def _join_names(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
