"""MPI libraries: what each calls the algorithms, what it can do with them, how it is made to."""

import os
import re
from types import ModuleType

from tuner.errors import InputError
from tuner.libraries import mpich, openmpi

LIBRARIES = {"openmpi": openmpi, "mpich": mpich}


def named(library: str) -> ModuleType:
    """The module of `openmpi 5.0.11` or `mpich`; raises InputError for any other library."""
    name = library.partition(" ")[0]
    if name not in LIBRARIES:
        known = " and ".join(LIBRARIES)
        raise InputError(
            f"tables cannot be made for {library!r}, only for {known}: write rules for another"
            " library yourself, as docs/formats.md shows, and export them"
        )
    return LIBRARIES[name]


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
