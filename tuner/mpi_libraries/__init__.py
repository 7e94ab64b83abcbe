"""MPI libraries: what each calls the algorithms, what it can do with them, how it is made to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import Choice
from tuner.mpi_libraries import mpich, openmpi
from tuner.mpi_libraries.capabilities import Capabilities
from tuner.mpi_libraries.products import base_of, title_of

LIBRARIES = {"openmpi": openmpi, "mpich": mpich}
Candidates = Callable[..., Sequence[Choice]]


def named(library: str) -> ModuleType:
    """Return the module of `openmpi 5.0.11`, `mpich` or what is built on one of them.

    Raises InputError for any other library.
    """
    name = base_of(library)
    if name not in LIBRARIES:
        known = " and ".join(LIBRARIES)
        raise InputError(
            f"tables cannot be made for {library!r}, only for {known}: write rules for another"
            " library yourself, as docs/formats.md shows, and export them"
        )
    return LIBRARIES[name]


def offered(library: str, capabilities: Capabilities) -> Candidates:
    """Return `candidates` of a library's module less those that this version of it lacks."""
    known = named(library)

    def candidates(collective: Collective, *arguments: object) -> list[Choice]:
        return [
            choice
            for choice in known.candidates(collective, *arguments)
            if not capabilities.lacks(known.settings(collective, choice))
        ]

    return candidates


def shortcomings(library: str, capabilities: Capabilities) -> list[str]:
    """Return which algorithms this version lacks, one sentence for each collective."""
    known, lines = named(library), []
    for collective in known.ALGORITHMS:
        usual = known.candidates(collective, 8, 1 << 20)
        kept = offered(library, capabilities)(collective, 8, 1 << 20)
        lacking = dict.fromkeys(choice.algorithm for choice in usual if choice not in kept)
        if lacking:
            lines.append(
                f"{title_of(library)} has no {_listed(lacking)} for {collective}: the other"
                " algorithms are measured"
            )
    return lines


def require_unset(pattern: str) -> None:
    """Raises InputError for variables of the environment that would decide what is to be found out.

    pattern     what matches NAME=VALUE of such variables: `DECIDING` of a library's module
    """
    found = sorted(
        name for name, value in os.environ.items() if re.fullmatch(pattern, f"{name}={value}")
    )
    if found:
        are, them = ("is", "it") if len(found) == 1 else ("are", "them")
        raise InputError(
            f"{' and '.join(found)} {are} set and would decide for every launch: unset {them}"
        )


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
