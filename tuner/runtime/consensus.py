"""Steps that all ranks of a communicator take together, or none of them.

`run_together` runs a function on every rank. Before the ranks exchange anything in that function,
they call `Consensus.check`, which takes one reduction of one number. A rank in which anything is
raised leaves the function and takes part in the next check of the others instead, whichever that
is. So all ranks learn of it, and none of them waits for a rank that does not come.

This holds as long as nothing can fail between a check and the exchange that follows it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from mpi4py import MPI

from tuner.base.errors import TunerError

T = TypeVar("T")
_MAX_CHARACTERS = 300  # of what an exception of Python says


class ObjectionError(Exception):
    """A rank objected in a check. It is raised by that check on every rank, with the same text."""


class AbandonedError(Exception):
    """A rank failed and has left. It is raised by the next check of all other ranks."""


class Consensus:
    """Checks over the ranks of one communicator.

    comm        where the ranks exchange what they think; nobody else uses it meanwhile. Of mpi4py's
                class, whatever the program's object is
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self._rank, self._size = comm.rank, comm.size

    def check(self, objection: str = "") -> None:
        """Raise ObjectionError on all ranks where one of them objects; collective."""
        reason = self._lowest_reason(objection, self._rank)
        if reason:
            raise ObjectionError(reason)

    def leave(self, failure: str) -> None:
        """Take part in the last check, or with a failure in the next one of the others."""
        reason = self._lowest_reason(failure, self._rank - self._size)
        if reason:
            raise AbandonedError(reason)

    def _lowest_reason(self, reason: str, priority: int) -> str:
        """Return the reason of the rank with the lowest place, "" where no rank has one.

        place       of this rank; those that leave come before those that object, since no check
                    can be trusted to be the same one on all ranks after one has left
        """
        lowest = array("i", [priority if reason else self._size])
        self.comm.Allreduce(MPI.IN_PLACE, [lowest, 1, MPI.INT], MPI.MIN)
        first = lowest[0]
        if first == self._size:
            return ""
        said: str = self.comm.bcast(reason, root=first % self._size)
        told = said if first % self._size == 0 else f"rank {first % self._size}: {said}"
        if first < 0:
            raise AbandonedError(told)
        return told


def run_together(comm: MPI.Intracomm, function: Callable[[Consensus], T]) -> tuple[T | None, str]:
    """Run `act` on all ranks of `comm`; collective.

    Returns what it returned and "", or None and why it failed on the lowest of the ranks on which
    it did. Whether it is the one or the other is the same on all ranks. What ends a program from
    outside (KeyboardInterrupt, SystemExit) is not caught.
    """
    own = MPI.Intracomm(comm)  # what a program's class makes of its methods is for its own calls
    try:
        with _errors_raised(own):
            return _run(Consensus(own), function)
    except MPI.Exception as failure:  # of the checks themselves
        return None, error_message(failure)


def _run(consensus: Consensus, function: Callable[[Consensus], T]) -> tuple[T | None, str]:
    made, failure = None, ""
    try:
        made = function(consensus)
    except (ObjectionError, AbandonedError) as reason:
        return None, str(reason)
    except Exception as reason:  # noqa: BLE001 - whatever it is, the others must hear of it
        failure = error_message(reason)
    try:
        consensus.leave(failure)
    except AbandonedError as reason:
        return None, str(reason)
    return made, ""


def attempt(function: Callable[..., T], *arguments: object) -> tuple[T | None, str]:
    """Return what `act` returns and "", or None and why it failed; `act` exchanges nothing."""
    try:
        return function(*arguments), ""
    except Exception as failure:  # noqa: BLE001 - no failure of ours ends a program
        return None, error_message(failure)


def attempt_all(functions: Iterable[Callable[[], object]]) -> str:
    """Do all of these, whatever fails; return why the first one did that failed, or ""."""
    failures = [failure for act in functions if (failure := attempt(act)[1])]
    return failures[0] if failures else ""


def error_message(failure: BaseException) -> str:
    """Return what an exception says, in one short line."""
    if isinstance(failure, MPI.Exception):
        return MPI.Get_error_string(failure.Get_error_class()).strip()
    said = " ".join(str(failure).split())
    if isinstance(failure, TunerError) and said:
        return said
    shown = said if len(said) <= _MAX_CHARACTERS else f"{said[:_MAX_CHARACTERS]}..."
    return f"{type(failure).__name__}: {shown}" if shown else type(failure).__name__


@contextmanager
def _errors_raised(comm: MPI.Intracomm) -> Iterator[None]:
    """Have errors of MPI raised here, although the program may want them to end all ranks."""
    usual = comm.Get_errhandler()
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        yield
    finally:
        comm.Set_errhandler(usual)
        usual.Free()
