"""`tune`: never the end of a program, whatever fails in it or in what it imports.

This module needs mpi4py alone. All else is imported by `tune`, and a rank on which that fails tells
the others, so that all ranks go on with the library's own collectives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from tuner.base.errors import InputError, shortened_repr
from tuner.runtime.comm_types import CommAlias, cast_comm
from tuner.runtime.consensus import Consensus, attempt, run_together
from tuner.runtime.log import warn

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.core.table import TuningTable


def tune(
    comm: MPI.Comm,
    table: TuningTable | Path | str | None = None,
    *,
    service: str | None = None,
    cluster: str | None = None,
    token: str | None = None,
    memory: str = "host",
    feedback: bool | None = None,
    verbose: bool = False,
) -> Any:
    """Return a communicator like `comm` that follows a table; collective over `comm`.

    table       or its file; without it TUNER_TABLE
    service     base URL, cluster and token of a service to ask; without them TUNER_SERVICE,
                TUNER_CLUSTER and TUNER_TOKEN
    memory      `host`, or `cuda` to follow the rules for device buffers; rank 0's counts
    feedback    whether `finalize` tells the service how long calls took (TUNER_FEEDBACK=1)
    verbose     whether `finalize` prints on standard error of rank 0 how many calls followed which
                rule. Counting costs some tenths of a microsecond for each call. The log has the
                same line, also without `verbose` where it takes lines of level INFO by now

    An intercommunicator is returned as it is: its collectives are the library's. No table, one that
    some rank cannot use, and any failure in here on any rank leave every call to the library on all
    ranks, said in one line of the log. Raises InputError for what is no communicator, and on all
    ranks for an unknown kind of memory.
    """
    if not isinstance(comm, MPI.Comm):
        raise InputError(f"tune() takes a communicator, not {shortened_repr(comm)}")
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        return comm
    plain = comm.plain if isinstance(comm, CommAlias) else comm

    def tuned(consensus: Consensus) -> Any:
        from tuner.runtime.dispatcher import make_tuned_comm

        return make_tuned_comm(
            consensus,
            plain,
            table,
            service,
            cluster,
            token,
            memory,
            feedback=feedback,
            verbose=verbose,
        )

    made, failure = run_together(plain, tuned)
    if isinstance(made, InputError):
        raise made
    if made is None:
        if plain.rank == 0:
            warn(f"tuner: the library's own collectives are used: {failure}")
        made, _ = attempt(make_untuned_comm, plain)
        return plain if made is None else made
    return made


class UntunedComm(CommAlias):
    """A communicator whose collectives are the library's own, with the methods of a tuned one."""

    table = None

    def follow(self) -> None:
        """Do nothing: there is nothing to follow."""

    def refresh(self) -> None:
        """Do nothing: what failed is not tried again."""

    def report(self) -> None:
        """Do nothing: nothing was counted."""

    def finalize(self) -> None:
        """Do nothing: nothing was recorded."""


_CLASSES: dict[type[MPI.Intracomm], type[Any]] = {}


def make_untuned_comm(plain: MPI.Intracomm) -> Any:
    """Return another object for a communicator, of a class derived from the program's."""
    kind = type(plain)
    if kind not in _CLASSES:
        _CLASSES[kind] = type(f"Untuned{kind.__name__}", (UntunedComm, kind), {"_kind": kind})
    made = cast_comm(_CLASSES[kind], plain)
    made.plain = plain
    return made
