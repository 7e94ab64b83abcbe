"""Print which MPI an interpreter loads and what it can do, without starting MPI.

    python -m tuner.rank_programs.inspection

It prints one JSON object: python, numpy, mpi4py and its configuration, the library's file, version
string and standard, and the capabilities that matter to this program.
"""

from __future__ import annotations

import importlib.util
import json
import platform
from pathlib import Path
from typing import Any

import mpi4py

mpi4py.rc.initialize = False
mpi4py.rc.finalize = False

# only after these settings, which keep MPI from starting
from mpi4py import MPI  # noqa: E402

from tuner import mpi_libraries  # noqa: E402
from tuner.base.errors import InputError  # noqa: E402
from tuner.mpi_libraries.capabilities import Capabilities, capabilities_record  # noqa: E402
from tuner.mpi_libraries.products import identify  # noqa: E402
from tuner.runtime.control_variables import ControlVariables, loaded_library  # noqa: E402


def find_capabilities(version_text: str) -> Capabilities:
    """Return what the loaded library can do; empty for a library that is not supported."""
    try:
        known = mpi_libraries.library_module(identify(version_text).library)
    except InputError:
        return Capabilities({})
    variables = ControlVariables()
    found = {name: variables.describe(name) for name in known.CONTROL_VARIABLES}
    return Capabilities({name: one for name, one in found.items() if one is not None})


def inspect() -> dict[str, Any]:
    """Return the whole report."""
    said = MPI.Get_library_version().replace("\0", "").strip()
    return {
        "python": platform.python_version(),
        "numpy": _numpy(),
        "mpi4py": mpi4py.__version__,
        "config": mpi4py.get_config(),
        "libmpi": str(loaded_library()),
        "says": said,
        "extension": Path(str(MPI.__file__)).name,
        "standard": list(MPI.Get_version()),
        "capabilities": capabilities_record(find_capabilities(said)),
    }


def _numpy() -> str:
    """Return numpy's version; "" if it is not installed."""
    if importlib.util.find_spec("numpy") is None:
        return ""
    import numpy

    return numpy.__version__


if __name__ == "__main__":
    print(json.dumps(inspect()))
