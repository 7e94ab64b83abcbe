"""The execution of an unmodified program under a tuned `MPI.COMM_WORLD`."""

from __future__ import annotations

import copyreg
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from runpy import run_path
from typing import Any, NoReturn

from mpi4py import MPI
from mpi4py.run import run_command_line, set_abort_status

from tuner.runtime.consensus import attempt
from tuner.runtime.deferred import defer_tuning
from tuner.runtime.entry import leave_untuned, tune
from tuner.runtime.log import warn
from tuner.runtime.program_imports import (
    is_import_path_entry,
    release_package_name,
    run_main_module,
    use_place_of_program,
)


def run(
    command: Sequence[str],
    table: Path | None = None,
    service: str | None = None,
    cluster: str | None = None,
    *,
    feedback: bool | None = None,
    verbose: bool = False,
) -> NoReturn:
    """Run `file argument ...` or `-m module argument ...` as `__main__`; collective.

    Exits with the status of the program, 130 for Ctrl-C. A status other than 0 aborts all ranks,
    since the others might wait for this one for ever.
    """
    status: object = 1
    try:
        if table is None and service is None and os.environ.get("TUNER_TABLE"):
            table = Path(os.environ["TUNER_TABLE"])
        begin = partial(
            tune,
            table=table and _absolute(table),
            service=service,
            cluster=cluster,
            feedback=feedback,
            verbose=verbose,
        )
        if command[0] != "-m":
            use_place_of_program(command[0])
        _, failure = attempt(release_package_name)
        if failure:
            begin = partial(leave_untuned, failure=failure)
        tuned = defer_tuning(MPI.COMM_WORLD, begin)
        replace_world(tuned)
        orderly = False
        try:
            ended = _exit_status(command)
            orderly = ended in (0, None) and not MPI.Is_finalized()
        finally:
            _, failure = attempt(tuned.finalize if orderly else tuned.report)
            if failure:
                warn(f"tuner: {failure}")
        status = ended
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
        raise
    finally:
        set_abort_status(status)
    sys.exit(ended)


def _absolute(path: Path) -> Path:
    """Return the path as seen from the present working directory, where there is one."""
    try:
        return path.absolute()
    except OSError:
        return path


def replace_world(tuned: Any) -> None:
    """Replace `MPI.COMM_WORLD` by `tuned`, also for pickling."""
    vars(MPI)["COMM_WORLD"] = tuned
    tuned.__module__ = MPI.__name__  # where pickle looks for a constant
    copyreg.pickle(MPI.Intracomm, _reduce_comm)


def _reduce_comm(comm: MPI.Intracomm) -> Any:
    """Reduce a communicator as mpi4py does, except the plain object of `MPI.COMM_WORLD`."""
    reduced = comm.__reduce__()
    if isinstance(reduced, str) and getattr(MPI, reduced) is not comm:
        return type(comm), (getattr(MPI, reduced),)
    return reduced


def _exit_status(command: Sequence[str]) -> str | int | None:
    """Run the program and return its exit status, as `sys.exit` takes it."""
    try:
        if command[0] == "-m":
            run_command_line(list(command))
        else:
            _run_program(command)
    except SystemExit as ended:
        return ended.code
    return None


def _run_program(command: Sequence[str]) -> None:
    """Run a file, a directory or a zip file, whose place `sys.path` begins with."""
    sys.argv[:] = command
    if is_import_path_entry(command[0]):
        run_main_module(command[0])
    else:
        run_path(command[0], run_name="__main__")
