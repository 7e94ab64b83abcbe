"""Capabilities of libraries that can do everything that is asked of them here."""

from __future__ import annotations

from tuner import mpi_libraries
from tuner.mpi_libraries.capabilities import Capabilities, ControlVariable


def everything(library: str) -> Capabilities:
    """All variables of the library's module can be set, to all numbers and names of algorithms."""
    known = mpi_libraries.library_module(library)
    names = {native.name for found in known.ALGORITHMS.values() for native in _natives(found)}
    values = {**{str(number): number for number in range(16)}, **dict.fromkeys(names, 1)}
    return Capabilities({name: ControlVariable(True, values) for name in known.CONTROL_VARIABLES})


def _natives(found: object) -> list[mpi_libraries.mpich.NativeAlgorithm]:
    return list(found.values()) if isinstance(found, dict) else []
