"""The Python interpreter that runs the ranks of an MPI library."""

from __future__ import annotations

import sys
from pathlib import Path

from tuner.base.errors import ProbeError
from tuner.launch.installation import inspect_interpreter
from tuner.launch.launcher import Launcher
from tuner.launch.package import PACKAGE_DIR
from tuner.mpi_libraries.products import base_of
from tuner.mpi_libraries.profiles import PROFILES


def find_interpreter(library: str, requested: Path | None = None) -> Path:
    """Return the interpreter for the ranks of a library.

    This is the requested one, else that of the environment that `make venv` creates for the
    library, else this one if it has the library. Without any of them it is the path that the
    environment would have. Libraries without an environment of their own use this interpreter.
    """
    if requested is not None:
        return requested.absolute()
    own, known = Path(sys.executable), PROFILES.get(base_of(library))
    if known is None or known.interpreter is None:
        return own
    beside = known.interpreter
    for place in (beside.absolute(), PACKAGE_DIR.parent / beside):
        if place.exists():
            return place
    return own if _has_library(own, base_of(library)) else PACKAGE_DIR.parent / beside


def _has_library(python: Path, base: str) -> bool:
    try:
        return inspect_interpreter(python).base == base
    except ProbeError:
        return False


def loaded_libmpi(library: str, python: Path) -> Path:
    """Return the MPI library that ranks of `python` load; raises ProbeError when there is none."""
    return Launcher.find(base_of(library), python).libmpi()
