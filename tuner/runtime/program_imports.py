"""The import path of an unmodified program: as if Python ran the program alone."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
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


def use_place_of_program(program: str) -> None:
    """Put what `python program` puts there into the place of the first entry of `sys.path`.

    That is the program itself if it is a directory or a zip file, else its folder, which is that
    of the file where it is a symbolic link. `python -I` adds no folder.
    """
    if is_import_path_entry(program):
        entry = program if Path(program).is_absolute() else f"{Path.cwd()}/{program}"
    elif sys.flags.isolated:
        return
    else:
        entry = str(Path(program).resolve().parent)
    sys.path[: 0 if sys.flags.isolated else 1] = [entry]


def is_import_path_entry(program: str) -> bool:
    """Return whether modules can be imported from a program: a directory or a zip file."""
    return pkgutil.get_importer(program) is not None


def has_main_module(program: str) -> bool:
    """Return whether a directory or zip file contains a `__main__`."""
    return PathFinder.find_spec("__main__", [program]) is not None


def run_main_module(program: str) -> None:
    """Run the `__main__` of a directory or zip file, where `use_place_of_program` has put it."""
    spec = PathFinder.find_spec("__main__", sys.path[:1])
    if spec is None or spec.loader is None:
        raise SystemExit(f"{program}: expected a __main__.py in it")
    module = sys.modules["__main__"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def release_package_name() -> None:
    """Let a program import its own module `tuner`, if the first entry of `sys.path` has one.

    Modules of this package keep their names in `sys.modules`, and find each other there. Those
    that are imported later are loaded now; raises what their import raises, after the release.
    """
    found = PathFinder.find_spec(PACKAGE, sys.path[:1])
    ours = sys.modules[PACKAGE]
    if found is None or found.origin is None or ours.__file__ is None:
        return
    if not Path(found.origin).samefile(ours.__file__):
        try:
            for name in LAZILY_IMPORTED:
                importlib.import_module(name)
        finally:
            del sys.modules[PACKAGE]
