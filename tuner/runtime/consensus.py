"""Steps that succeed on all ranks of a communicator or on none of them.

`run_together` runs a function on every rank. Before the ranks exchange anything in that function,
they call `Consensus.check`, which takes one reduction of one number. A rank on which an exception
is raised leaves the function and takes part in the next check of the others instead. So all ranks
learn of the failure, and none of them waits for a rank that does not come.

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
_MAX_CHARACTERS = 300  # of the text of an exception that is not ours


class ObjectionError(Exception):
    """An objection of one rank, raised by the check on every rank with the same text."""


class AbandonedError(Exception):
    """A failure of one rank that has left, raised by the next check of all other ranks."""


class Consensus:
    """A series of checks over the ranks of one communicator.

    comm        communicator for the checks, which nothing else uses meanwhile; an object of
                mpi4py's class, whatever class the program's object has
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self._rank, self._size = comm.rank, comm.size

    def check(self, objection: str = "") -> None:
        """Raise ObjectionError on all ranks if one of them objects; collective.

        Raises AbandonedError if a rank has left after a failure.
        """
        reason = self._lowest_reason(objection, self._rank)
        if reason:
            raise ObjectionError(reason)

    def leave(self, failure: str) -> None:
        """Take part in the final check, or report a failure in the next check of the others.

        failure     why this rank failed, "" where it did not

        Raises AbandonedError where any rank failed.
        """
        reason = self._lowest_reason(failure, self._rank - self._size)
        if reason:
            raise AbandonedError(reason)

    def _lowest_reason(self, reason: str, priority: int) -> str:
        """Return the reason of the rank with the lowest priority number, "" where no rank has one.

        priority    of this rank. Ranks that leave come before those that object: once a rank has
                    left, the ranks need not be at the same check

        Raises AbandonedError where the first rank is one that leaves.
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
    """Run `function` on all ranks of `comm`; collective.

    Returns its result and "", or None and the failure of the lowest rank on which it failed; which
    of the two is the same on all ranks. KeyboardInterrupt and SystemExit are not caught.
    """
    own = MPI.Intracomm(comm)  # without the methods of the program's class
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
    """Return the result of `function` and "", or None and why it failed.

    `function` must not communicate with other ranks.
    """
    try:
        return function(*arguments), ""
    except Exception as failure:  # noqa: BLE001 - no failure of ours ends a program
        return None, error_message(failure)


def attempt_all(functions: Iterable[Callable[[], object]]) -> str:
    """Call all functions, even after a failure; return the first failure, or ""."""
    failures = [failure for act in functions if (failure := attempt(act)[1])]
    return failures[0] if failures else ""


def error_message(failure: BaseException) -> str:
    """Return the text of an exception as one short line."""
    if isinstance(failure, MPI.Exception):
        return MPI.Get_error_string(failure.Get_error_class()).strip()
    said = " ".join(str(failure).split())
    if isinstance(failure, TunerError) and said:
        return said
    shown = said if len(said) <= _MAX_CHARACTERS else f"{said[:_MAX_CHARACTERS]}..."
    return f"{type(failure).__name__}: {shown}" if shown else type(failure).__name__


@contextmanager
def _errors_raised(comm: MPI.Intracomm) -> Iterator[None]:
    """Raise errors of MPI as exceptions here, whatever error handler the program has set."""
    usual = comm.Get_errhandler()
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        yield
    finally:
        comm.Set_errhandler(usual)
        usual.Free()
