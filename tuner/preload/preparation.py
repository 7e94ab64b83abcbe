"""Prepare what ranks need to follow a table: our library, and the table's flat file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.base.code_digest import DIGITS, code_digest
from tuner.base.compiler import run_compiler
from tuner.base.errors import InputError
from tuner.base.units import parse_duration, plural
from tuner.core.table import parse_table
from tuner.launch.executables import KnownLauncher, find_mpicc
from tuner.launch.launcher import PRELOAD_VARIABLE
from tuner.preload.command import launcher_of, program_of, unpreloadable_reason
from tuner.preload.compilation import PreloadLibrary, build_library
from tuner.preload.flat_table import write_flat_table
from tuner.preload.report import flat_notes
from tuner.runtime.dynamic_rules import FORCING_VARIABLES_PATTERN
from tuner.runtime.table_cache import cache_directory
from tuner.runtime.table_loading import load_table
from tuner.runtime.table_source import (
    TUNE_AFTER_VARIABLE,
    FetchedTable,
    TableRequest,
    resolve_request,
    sha256_hex,
)

# In what `ldd` prints. Names of Open MPI, MPICH and Intel MPI; ABI, Spectrum MPI and Cray MPICH.
_LINKED_MPI = re.compile(r"\blibmpi(?:_abi|_ibm|_cray|_gnu_\d+)?\.so\S* => (/\S+)")
AGREE_VARIABLE = "TUNER_AGREE_EVERY"  # ragged calls from one agreement to the next
OWN = "the library's own collectives are used"


class UnpreloadableError(InputError):
    """A program into which nothing can be loaded."""


@dataclass(frozen=True)
class Preparation:
    """The variables that the ranks of a command need, and a note for the user.

    environment     their variables; empty where they use the library's own collectives
    note            one line for the user; "" for none
    table           name and digest of the table that they follow; "" for none
    flat            its flat file
    request         where the table came from
    fetched         its text
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    table: str = ""
    flat: Path = Path()
    request: TableRequest | None = None
    fetched: FetchedTable | None = None


def prepare(
    command: Sequence[str],
    table: Path | None = None,
    service: str | None = None,
    cluster: str | None = None,
) -> Preparation:
    """Prepare the table for a command; the environment decides what the arguments leave open.

    Raises InputError where there is no such table, where it is for another library, and where our
    library cannot be built; the program could run without it in any case.
    """
    request = resolve_request("", table, service, cluster)
    if not request.name:
        return Preparation(
            note=f"no table is given (--table, --service, TUNER_TABLE, TUNER_SERVICE): {OWN}"
        )
    try:
        built, launcher = library_for(command)
    except UnpreloadableError as reason:
        return Preparation(
            note=f"{reason}: {OWN}; it can follow a file of its MPI instead (tuner table export)"
        )
    fetched = load_table(replace(request, library=built.library))
    digest = sha256_hex(f"{code_digest()} {fetched.text}")[:DIGITS]
    flat = cache_directory().absolute() / f"{digest}.flat"
    left = flat_notes(flat)
    if left is None:
        left = write_flat_table(parse_table(fetched.text), flat)
    rest = f"{plural(len(left), 'rule')} left to the library: {left[0]}" if left else ""
    after = os.environ.get(TUNE_AFTER_VARIABLE)
    delay = {"TUNER_TUNE_AFTER_US": str(round(1e6 * parse_duration(after)))} if after else {}
    forcing = launcher.profile.environment(launcher.profile.start_settings(built.library))
    if forcing.keys() & os.environ.keys() or any(
        map(FORCING_VARIABLES_PATTERN.fullmatch, os.environ)
    ):
        forcing = {}  # keep the user's settings
    return Preparation(
        {PRELOAD_VARIABLE: str(built.path.absolute()), "TUNER_FLAT_TABLE": str(flat)}
        | delay
        | _agreements()
        | forcing,
        "; ".join(filter(None, (fetched.note, rest))),
        f"{request.name} ({digest})",
        flat,
        request,
        fetched,
    )


def _agreements() -> dict[str, str]:
    """Return the variable of how often ranks agree on sizes; raise InputError for a wrong value."""
    every = os.environ.get(AGREE_VARIABLE)
    if every and not re.fullmatch(r"\d{1,9}", every):
        raise InputError(
            f"{AGREE_VARIABLE}: {every!r} is not a number of calls: write 64, for one call of so"
            " many in which ranks exchange their sizes, or 0 for never"
        )
    return {AGREE_VARIABLE: every} if every else {}


def library_for(command: Sequence[str]) -> tuple[PreloadLibrary, KnownLauncher]:
    """Return the library to load into the ranks of a command, and their launcher.

    Raises UnpreloadableError where nothing can be loaded into the program, and InputError where our
    library cannot be built for its MPI.
    """
    program = program_of(command)
    reason = unpreloadable_reason(program) if program else ""
    if reason:
        raise UnpreloadableError(f"{reason}, so that nothing can be loaded into it")
    cache = cache_directory().absolute()
    if re.search(r"[\s:]", str(cache)):
        raise InputError(
            f"nothing can be loaded from {cache}, since LD_PRELOAD is split at spaces and colons:"
            " name another directory in TUNER_CACHE"
        )
    launcher = launcher_of(command)
    if launcher is None:
        found = shutil.which("mpirun") or shutil.which("mpiexec")
        raise InputError(
            f"`{found} --version` names no MPI that is known ({_first_words(found)}):"
            " put that of your MPI first in PATH"
            if found
            else "neither mpirun nor mpiexec was found: add the bin directory of your MPI to PATH"
        )
    compiler = find_mpicc(launcher.path)
    if compiler is None:
        raise InputError(
            f"mpicc was not found beside {launcher.path}: install it, and a C compiler"
        )
    built = build_library(compiler)
    theirs, ours = (linked_mpi(file) if file else None for file in (program, built.path))
    if theirs and ours and theirs != ours:
        raise InputError(f"{program} uses {theirs}, but {launcher.path} belongs to {ours}")
    return built, launcher


def _first_words(launcher: str) -> str:
    """Return what a launcher says instead of its version, one line."""
    try:
        said = run_compiler([launcher, "--version"], "it failed").strip()
        return "it says: " + (said.partition("\n")[0] or "nothing")
    except InputError as reason:
        return str(reason)


def linked_mpi(file: Path) -> Path | None:
    """Return the MPI library that a program or library is linked to; None where it is not known.

    A program must not load a library for another MPI, whose handles are of other types.
    """
    try:
        run = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = _LINKED_MPI.search(run.stdout)
    return Path(found[1]).resolve() if found else None
