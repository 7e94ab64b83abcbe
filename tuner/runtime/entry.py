"""The function `tune`, which does not end a program, whatever fails in it or in its imports.

This module needs only mpi4py. All other modules are imported by `tune`, and a rank on which that
fails tells the others, so that all ranks continue with the library's own collectives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from tuner.base.errors import InputError, TunerError, shortened_repr
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

    table       a table or its file; by default TUNER_TABLE
    service     base URL of a service; by default TUNER_SERVICE
    cluster     name of the cluster at the service; by default TUNER_CLUSTER
    token       access token of the service; by default TUNER_TOKEN
    memory      `host`, or `cuda` to follow the rules for device buffers; the value of rank 0 is
                used on all ranks
    feedback    whether `finalize` sends the times of calls to the service; by default
                TUNER_FEEDBACK, and the value of rank 0 is used on all ranks
    verbose     whether `finalize` prints on standard error of rank 0 how many calls followed which
                rule. Counting costs some tenths of a microsecond per call. The log gets the same
                line, even without `verbose` if level INFO is enabled when `tune` is called

    An intercommunicator is returned as it is: its collectives are the library's. Without a table,
    with a table that some rank cannot use, and after any failure in here on any rank, all ranks
    leave every call to the library and rank 0 logs one line. Raises InputError if `comm` is not a
    communicator, and on all ranks for an unknown kind of memory.
    """
    if not isinstance(comm, MPI.Comm):
        raise InputError(f"tune() takes a communicator, not {shortened_repr(comm)}")
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        return comm
    plain = comm.plain if isinstance(comm, CommAlias) else comm
    source = table, service, cluster, token, memory

    def tuned(consensus: Consensus) -> Any:
        from tuner.runtime.dispatcher import make_tuned_comm

        return make_tuned_comm(consensus, plain, *source, feedback=feedback, verbose=verbose)

    made, failure = run_together(plain, tuned)
    if isinstance(made, InputError):
        raise made
    return _untuned(plain, failure) if made is None else made


def leave_untuned(plain: MPI.Intracomm, failure: str) -> Any:
    """Return a communicator that leaves every call to the library, where `tune` cannot be called.

    Collective with `tune` of the other ranks, which do the same.
    """

    def fail(_consensus: Consensus) -> Any:
        raise TunerError(failure)

    return _untuned(plain, run_together(plain, fail)[1])


def _untuned(plain: MPI.Intracomm, failure: str) -> Any:
    """Return a communicator that leaves every call to the library; rank 0 logs why."""
    if plain.rank == 0:
        warn(f"tuner: the library's own collectives are used: {failure}")
    made, _ = attempt(make_untuned_comm, plain)
    return plain if made is None else made


class UntunedComm(CommAlias):
    """A communicator whose collectives are the library's own, with the methods of a tuned one."""

    table = None

    def follow(self) -> None:
        """Do nothing: there are no rules."""

    def refresh(self) -> None:
        """Do nothing: a failed set-up is not tried again."""

    def report(self) -> None:
        """Do nothing: calls are not counted."""

    def finalize(self) -> None:
        """Do nothing: calls are not recorded."""


_CLASSES: dict[type[MPI.Intracomm], type[Any]] = {}


def make_untuned_comm(plain: MPI.Intracomm) -> Any:
    """Return an untuned object for a communicator, of a class derived from the program's."""
    kind = type(plain)
    if kind not in _CLASSES:
        _CLASSES[kind] = type(f"Untuned{kind.__name__}", (UntunedComm, kind), {"_kind": kind})
    made = cast_comm(_CLASSES[kind], plain)
    made.plain = plain
    return made
