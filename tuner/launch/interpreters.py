"""Which Python interpreter runs the ranks of which MPI library."""

from __future__ import annotations

import sys
from pathlib import Path

from tuner.base.errors import ProbeError
from tuner.launch.installation import installation_of
from tuner.launch.launcher import Launcher
from tuner.launch.package import PACKAGE
from tuner.mpi_libraries.products import base_of

PYTHONS = {  # of the environments beside this one
    "mpich": Path(".venv-mpich/bin/python"),
    "intelmpi": Path(".venv-intelmpi/bin/python"),
}


def interpreter(library: str, given: Path | None = None) -> Path:
    """Return the interpreter for the ranks of a library.

    The given one, else that of the environment that `make venv` sets up for the library, else this
    one.
    """
    if given is not None:
        return given.absolute()
    own, beside = Path(sys.executable), PYTHONS.get(base_of(library))
    if beside is None:
        return own
    for place in (beside.absolute(), PACKAGE.parent / beside):
        if place.exists():
            return place
    return own if _has(own, base_of(library)) else PACKAGE.parent / beside


def _has(python: Path, base: str) -> bool:
    try:
        return installation_of(python).base == base
    except ProbeError:
        return False


def libmpi(library: str, python: Path) -> Path:
    """Return the MPI library that ranks of `python` load; raises ProbeError when there is none."""
    return Launcher.find(base_of(library), python).libmpi()
