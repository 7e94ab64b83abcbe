"""A check for parameter files of the MPI library that override its choice (rank side)."""

from __future__ import annotations

import re

from tuner import mpi_libraries
from tuner.base.errors import InputError
from tuner.runtime.control_variables import ControlVariables


def require_default_selection(library: str) -> None:
    """Raise InputError where a parameter file of the library forces an algorithm.

    Local; to be called before an algorithm is forced. Settings in the environment are found as
    well.
    """
    known, variables = mpi_libraries.library_module(library), ControlVariables()
    for name in known.OVERRIDING_VARIABLES:
        value = _value(variables, name)
        if re.fullmatch(known.OVERRIDING_PATTERN, f"{known.VARIABLE_PREFIX}{name}={value}"):
            none = 0 if isinstance(value, int) else ""
            raise InputError(
                f"{name} is {value} in a parameter file of the library, such as"
                " ~/.openmpi/mca-params.conf, and would decide for every launch: take it out there,"
                f" or set {known.VARIABLE_PREFIX}{name}={none} for this command"
            )


def _value(variables: ControlVariables, name: str) -> int | str:
    """Return the value of a variable; "" where its component is not in use."""
    try:
        return variables.read(name)
    except InputError:
        return ""
