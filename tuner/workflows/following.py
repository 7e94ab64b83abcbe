"""Write the files with which an MPI library follows a table, and the settings that activate them.

MPICH's MPIR layer and its device layer each read a file; the two files lie side by side.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import write_atomically
from tuner.core.table import TuningTable
from tuner.formats import mpich
from tuner.launch.interpreters import loaded_libmpi
from tuner.mpi_libraries.mpich import DEVICE_COLLECTIVES
from tuner.validation import validate_mpich, validate_openmpi

TUNING_FILES = {"openmpi": "openmpi.rules", "mpich": "mpich.json"}  # in a result's directory
DEVICE_LAYER_DISABLED = (
    f"this MPICH has no device layer that reads a tuning file ({mpich.DEVICE.variable}):"
    f" its table is used with {DEVICE_COLLECTIVES}=none, which switches such a layer off for all"
    " calls, also those without rules"
)


def launch_settings(library: str, file: Path) -> dict[str, Any]:
    """Return how to start a program under a file (and the one beside it, for MPICH).

    `command` has the words before the program's name, `environment` the variables.
    """
    if library == "mpich":
        return {"command": ["mpiexec"], "environment": mpich_environment(file)}
    parameters = validate_openmpi.activation(file)
    words = (word for name, value in parameters.items() for word in ("--mca", name, value))
    return {"command": ["mpirun", *words], "environment": {}}


def command_line(use: Mapping[str, Any]) -> str:
    """Return what a user types in a shell before the program's name."""
    variables = (f"{name}={shlex.quote(value)}" for name, value in use["environment"].items())
    return " ".join([*variables, shlex.join(use["command"])])


def mpich_environment(file: Path) -> dict[str, str]:
    """Return the variables under which MPICH follows the files of its layers."""
    return validate_mpich.activation(file, device_file(file))


def device_file(file: Path) -> Path | None:
    """Return the file of MPICH's device layer beside that of its MPIR layer, or None."""
    beside = mpich.device.device_file_path(file)
    return beside if beside.is_file() else None


def write_device_file(table: TuningTable, python: Path, file: Path) -> None:
    """Write the file of the device layer beside `file`, where MPICH has that layer.

    Where it has none, a file that is left from another library is removed.
    """
    own = mpich.read_generic_trees(loaded_libmpi("mpich", python)).device
    beside = mpich.device.device_file_path(file)
    if own is None:
        beside.unlink(missing_ok=True)
        return
    kept, _ = mpich.drop_inexpressible(table.with_block_placement())
    write_atomically(beside, mpich.device.emit(kept, own))


def known_limitation(library: str, python: Path) -> str:
    """Return a sentence on a known disadvantage of following a table in this library, or ""."""
    if (
        library != "mpich"
        or mpich.read_generic_trees(loaded_libmpi(library, python)).device is not None
    ):
        return ""
    return DEVICE_LAYER_DISABLED
