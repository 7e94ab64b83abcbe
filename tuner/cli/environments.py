"""Which Python interpreter runs the ranks of which MPI library."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tuner.base.errors import ProbeError
from tuner.launch import PACKAGE, Launcher, installation_of
from tuner.launch.rank_program import SINGLE, THREAD_LEVELS
from tuner.mpi_libraries.products import base_of

LIBRARIES = ("openmpi", "mpich")
PYTHONS = {  # of the environments beside this one
    "mpich": Path(".venv-mpich/bin/python"),
    "intelmpi": Path(".venv-intelmpi/bin/python"),
}


def add_library(parser: argparse.ArgumentParser) -> None:
    """The options that choose a library and its interpreter."""
    parser.add_argument(
        "--library", choices=LIBRARIES, help="MPI library (default: the one that --python has)"
    )
    parser.add_argument(
        "--python", type=Path, metavar="PYTHON",
        help="interpreter of the environment that holds this library (default: this one, or with"
        " --library mpich .venv-mpich/bin/python where it exists)",
    )  # fmt: skip


def add_thread_level(parser: argparse.ArgumentParser) -> None:
    """Declare the option that says how MPI is initialised."""
    parser.add_argument(
        "--thread-level", choices=THREAD_LEVELS, default=SINGLE, metavar="LEVEL",
        help="with which the programs initialise MPI: single (default), which MPI_Init gives,"
        " funneled, serialized, or multiple, which mpi4py asks for",
    )  # fmt: skip


def settle_library(options: argparse.Namespace) -> None:
    """Set `library` to what the interpreter has, where no library is named; raises ProbeError."""
    if options.library is None:
        options.library = installation_of(interpreter("", options.python)).base


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
