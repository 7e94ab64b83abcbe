"""An unmodified program under a tuned `MPI.COMM_WORLD`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from mpi4py import MPI
from mpi4py.run import run_command_line, set_abort_status

from tuner.runtime.dispatcher import tune


def run(
    command: Sequence[str],
    table: Path | None = None,
    service: str | None = None,
    cluster: str | None = None,
    *,
    feedback: bool | None = None,
) -> NoReturn:
    """Run `file argument ...` or `-m module argument ...` as `__main__`; collective.

    Exits as the program does. But for an orderly end that takes all ranks along when this one
    ends, since the others would wait for it for ever.
    """
    status: object = 1
    try:
        tuned = tune(MPI.COMM_WORLD, table, service=service, cluster=cluster, feedback=feedback)
        vars(MPI)["COMM_WORLD"] = tuned
        ended = _ended(command)
        if ended in (0, None) and not MPI.Is_finalized():
            tuned.finalize()
        status = ended
    finally:
        set_abort_status(status)
    sys.exit(ended)


def _ended(command: Sequence[str]) -> str | int | None:
    """The status with which the program ends, as `sys.exit` takes it."""
    try:
        run_command_line(list(command))
    except SystemExit as ended:
        return ended.code
    return None
