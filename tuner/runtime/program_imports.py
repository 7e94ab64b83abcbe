"""The import path of an unmodified program: as if Python ran the program alone."""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

PACKAGE = __name__.partition(".")[0]
LAZILY_IMPORTED = (  # modules that the runtime loads during calls
    "tuner.mpi_libraries",
    "tuner.mpi_libraries.products",
    "tuner.runtime.dispatcher",
    "tuner.runtime.service_client",
)


def use_working_directory() -> None:
    """Make the working directory the first entry of `sys.path`, as it is under `python -m`.

    It takes the place of the folder of a console script; `python -P` adds neither. `python -I`
    is left as it is.
    """
    if sys.flags.isolated:
        return
    with suppress(OSError):  # the directory was deleted
        sys.path[: 0 if sys.flags.safe_path else 1] = [str(Path.cwd())]


def release_package_name(folder: str) -> None:
    """Let a program import its own module `tuner`, if `folder`, that of the program, has one.

    Modules of this package keep their names in `sys.modules`, and find each other there.
    """
    found = PathFinder.find_spec(PACKAGE, [folder])
    ours = sys.modules[PACKAGE].__file__
    if found is None or found.origin is None or ours is None:
        return
    if not Path(found.origin).samefile(ours):
        for name in LAZILY_IMPORTED:
            importlib.import_module(name)
        del sys.modules[PACKAGE]
