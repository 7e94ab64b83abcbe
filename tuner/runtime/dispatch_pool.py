"""Dispatches that the duplicates of a communicator use one after the other.

Making a backend takes milliseconds, and the ladders of a dispatch as long as a small call or two,
so programs that duplicate a communicator again and again would wait for little else. Which backend
a duplicate gets must be the same on all ranks, although ranks need not free duplicates in the same
order or at the same time. So all ranks exchange which ones are free, at a duplication, and then
give out those that are free on all of them, in order, without another word until none is left.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from mpi4py import MPI

from tuner.base.errors import TunerError
from tuner.runtime.backend import Backend
from tuner.runtime.consensus import attempt_all
from tuner.runtime.dispatch import Dispatch
from tuner.runtime.feedback import CallRing
from tuner.runtime.table_binding import AgreedRules
from tuner.runtime.tally import CallTally

MAX_DISPATCHES = 8  # dispatches for one communicator's duplicates
MAX_SKIPPED_EXCHANGES = 64  # duplications without an exchange, where none was free for long


class DispatchPool:
    """Those of the duplicates of one communicator.

    comm        plain; its duplications come in the same order on all ranks
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        rules: AgreedRules,
        ring: CallRing | None,
        tally: CallTally | None,
    ) -> None:
        self._comm = MPI.Intracomm(comm)  # not by a program's own methods
        self._rules, self._ring, self._tally = rules, ring, tally
        self._dispatches: list[Dispatch] = []
        self._in_use: set[int] = set()  # on this rank, by their numbers in `_call_all`
        self._free = deque[int]()  # on all ranks
        self._unusable: set[int] = set()  # of those in use: their duplicates are freed on this rank
        self._pause = self._next_pause = 0
        self._closed = False

    def acquire(self, comm: MPI.Intracomm) -> Dispatch | None:
        """Return a dispatch for a new duplicate, the same on all ranks; None where all are in use.

        Collective, like the duplication that it belongs to.
        """
        if not self._free:
            self._exchange()
        if not self._free:
            return None
        number = self._free.popleft()
        self._in_use.add(number)
        self._dispatches[number].attach(comm)
        return self._dispatches[number]

    def put_back(self, dispatch: Dispatch) -> None:
        """Note that its communicator was freed on this rank."""
        if self._closed:
            dispatch.backend.release()
            return
        number = self._dispatches.index(dispatch)
        if dispatch.backend.failed:  # what was sent to this rank may belong to a call that failed
            self._unusable.add(number)
        else:
            self._in_use.discard(number)
            dispatch.prepare_for_reuse()

    def close(self) -> None:
        """Release what no duplicate uses now, and the rest when they are freed; collective."""
        self._closed = True
        failure = attempt_all(
            dispatch.backend.release
            for number, dispatch in enumerate(self._dispatches)
            if number not in self._in_use or number in self._unusable
        )
        if failure:
            raise TunerError(failure)

    def _exchange(self) -> None:
        """Find out what is free on all ranks, and add one while there are few."""
        if self._pause:
            self._pause -= 1
            return
        number = len(self._dispatches)
        free = np.array([place not in self._in_use for place in range(number)])
        if number:
            self._comm.Allreduce(MPI.IN_PLACE, free, MPI.LAND)
        self._free.extend(np.flatnonzero(free).tolist())
        if number < MAX_DISPATCHES:
            backend = Backend(self._comm, self._tally, shared=True)
            self._dispatches.append(
                Dispatch(self._comm, self._rules, backend, self._ring, self._tally, pooled=True)
            )
            self._free.append(number)
        elif not self._free:
            self._pause = self._next_pause = min(2 * self._next_pause + 1, MAX_SKIPPED_EXCHANGES)
            return
        self._next_pause = 0
