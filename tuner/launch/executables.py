"""The search for the launcher of an MPI library, of the same product and version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tuner.base.errors import ProbeError
from tuner.launch.installation import Installation
from tuner.mpi_libraries.profiles import PROFILES, LibraryProfile

SRUN = "srun"  # starts ranks of every library that Slurm was built for, in a Slurm job
HYDRA_SUFFIX = ".hydra"  # suffix of a launcher's name that mpicc does not have
MAX_PREFIX_LEVELS = 4  # directories above a library's file that may be its prefix
VERSION_TIMEOUT_S = 10.0  # for --version


@dataclass(frozen=True)
class LauncherExecutable:
    """A launcher that was found, with its version; "" where it is unknown."""

    path: Path
    version: str


@dataclass(frozen=True)
class KnownLauncher:
    """A launcher that a command starts, of a known library."""

    path: Path
    version: str
    profile: LibraryProfile


def find_launcher_executable(installation: Installation) -> Path:
    """Return the launcher of an installation.

    It is searched beside the interpreter, in the prefix of its MPI library and on PATH, under all
    names that distributions give it. Raises ProbeError where none has the same library and version.
    """
    others = list[LauncherExecutable]()
    for one in find_executables(installation):
        if _is_same_version(one.version, installation):
            return one.path
        others.append(one)
    raise ProbeError(_not_found_message(installation, others))


def find_mpicc(launcher: Path) -> Path | None:
    """Return the `mpicc` beside a launcher, such as `mpicc.openmpi` beside `mpirun.openmpi`.

    None where there is none.
    """
    suffix = launcher.suffix if launcher.suffix != HYDRA_SUFFIX else ""
    beside = launcher.with_name(f"mpicc{suffix}")
    return beside if launcher.name != SRUN and os.access(beside, os.X_OK) else None


def find_executables(installation: Installation) -> Iterator[LauncherExecutable]:
    """Yield every launcher of the library, of any version, then srun in a Slurm job."""
    seen = set[Path]()
    for directory in _directories(installation):
        for name in PROFILES[installation.base].launcher_names:
            path = directory / name
            if os.access(path, os.X_OK) and path.is_file() and path.resolve() not in seen:
                seen.add(path.resolve())
                version = launcher_version(path, installation.base)
                if version:
                    yield LauncherExecutable(path, version)
    if "SLURM_JOB_ID" in os.environ:
        places = map(Path, os.environ.get("PATH", "").split(os.pathsep))
        yield from (
            LauncherExecutable(place / SRUN, "")
            for place in places
            if os.access(place / SRUN, os.X_OK)
        )


def is_launcher_name(word: str) -> bool:
    """Return whether a word of a command has the name of some library's launcher."""
    return any(Path(word).name in profile.launcher_names for profile in PROFILES.values())


def identify_launcher(word: str, search_path: str | None = None) -> KnownLauncher | None:
    """Return the launcher that a word of a command starts; None for other commands.

    search_path     directories in which it is searched; None: those of PATH
    """
    found = shutil.which(word, path=search_path) if is_launcher_name(word) else None
    for profile in PROFILES.values() if found else ():
        version = launcher_version(Path(str(found)), profile.name)
        if version:
            return KnownLauncher(Path(str(found)), version, profile)
    return None


@cache
def launcher_version(path: Path, base: str) -> str:
    """Return the version that a launcher of a library prints; "" for one of another library."""
    try:
        run = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=VERSION_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(PROFILES[base].version_pattern, run.stdout + run.stderr)
    return next(filter(None, match.groups()), "") if match else ""


def _directories(installation: Installation) -> Iterator[Path]:
    yield installation.python.parent
    yield from (parent / "bin" for parent in list(installation.libmpi.parents)[1:MAX_PREFIX_LEVELS])
    yield from (Path(part) for part in os.environ.get("PATH", "").split(os.pathsep) if part)


def _is_same_version(version: str, installation: Installation) -> bool:
    """Return whether a launcher of this version starts ranks of the installed library.

    Products built on another library have their own versions, which match any launcher. Only the
    parts that both versions have are compared, since Intel's launcher omits the last one.
    """
    product = installation.identity.product
    if product.name != product.base or not version:
        return True
    given, wanted = version.split("."), installation.identity.version.split(".")
    return all(one == other for one, other in zip(given, wanted, strict=False))


def _not_found_message(installation: Installation, others: list[LauncherExecutable]) -> str:
    name, python = PROFILES[installation.base].launcher_names[0], installation.python
    if others:
        there = ", ".join(f"{one.path} ({one.version})" for one in others)
        return (
            f"{python} loads {installation.identity}, but the launchers here are of other versions:"
            f" {there}: put the {name} of {installation.libmpi} first on PATH"
        )
    return (
        f"{python} loads {installation.identity} ({installation.libmpi}), but there is no"
        f" {name} of it beside"
        " the interpreter, with the library or on PATH: add its directory to PATH"
    )
