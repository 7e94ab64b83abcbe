"""MPI libraries: what each calls the algorithms, what it can do with them, how it is made to."""

from types import ModuleType

from tuner.errors import InputError
from tuner.libraries import mpich, openmpi

LIBRARIES = {"openmpi": openmpi, "mpich": mpich}


def named(library: str) -> ModuleType:
    """The module of `openmpi 5.0.11` or `mpich`; raises InputError for any other library."""
    name = library.partition(" ")[0]
    if name not in LIBRARIES:
        known = " and ".join(LIBRARIES)
        raise InputError(f"tables cannot be made for {library!r}, only for {known}")
    return LIBRARIES[name]
