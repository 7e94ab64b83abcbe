"""Which Python interpreter runs the ranks of which MPI library."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tuner.runtime.launch import PACKAGE, Launcher

LIBRARIES = ("openmpi", "mpich")
PYTHONS = {  # of the environments beside this one
    "mpich": Path(".venv-mpich/bin/python"),
    "intelmpi": Path(".venv-intelmpi/bin/python"),
}


def add_library(parser: argparse.ArgumentParser) -> None:
    """The options that choose a library and its interpreter."""
    parser.add_argument(
        "--library", choices=LIBRARIES, default="openmpi", help="MPI library (default: openmpi)"
    )
    parser.add_argument(
        "--python", type=Path, metavar="PYTHON",
        help="interpreter of the environment that holds this library (default: this one for"
        " openmpi, .venv-mpich/bin/python for mpich)",
    )  # fmt: skip


def interpreter(library: str, given: Path | None = None) -> Path:
    """The interpreter for the ranks: the given one, else the one `make venv` sets up."""
    if given is not None:
        return given.absolute()
    if library not in PYTHONS:
        return Path(sys.executable)
    here = PYTHONS[library].absolute()
    return here if here.exists() else PACKAGE.parent / PYTHONS[library]


def libmpi(library: str, python: Path) -> Path:
    """The MPI library that ranks of `python` load; raises ProbeError when they load none."""
    return Launcher.find(library, python).libmpi()
