"""A pool of dispatches that the duplicates of a communicator use one after the other.

Creating a backend takes milliseconds, and building dispatch tables as long as a small call or two,
which would dominate programs that duplicate a communicator again and again. A duplicate must get
the same backend on all ranks, although ranks need not free duplicates in the same order or at the
same time. So at a duplication all ranks exchange which dispatches are free, and then hand out those
that are free on all ranks, in order, without another exchange until none is left.
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

MAX_DISPATCHES = 8  # for the duplicates of one communicator
MAX_SKIPPED_EXCHANGES = 64  # duplications without an exchange after several that found none free


class DispatchPool:
    """A pool of dispatches for the duplicates of one communicator.

    comm        plain communicator; its duplications come in the same order on all ranks
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        rules: AgreedRules,
        ring: CallRing | None,
        tally: CallTally | None,
    ) -> None:
        self._comm = MPI.Intracomm(comm)  # without the methods of a program's class
        self._rules, self._ring, self._tally = rules, ring, tally
        self._dispatches: list[Dispatch] = []
        self._in_use: set[int] = set()  # on this rank, indices into `_dispatches`
        self._free = deque[int]()  # on all ranks, indices into `_dispatches`
        self._unusable: set[int] = set()  # put back on this rank after a failure; stay in `_in_use`
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
        """Take back a dispatch whose communicator was freed on this rank."""
        if self._closed:
            dispatch.backend.release()
            return
        number = self._dispatches.index(dispatch)
        if dispatch.backend.failed:  # messages of the failed call may still arrive
            self._unusable.add(number)
        else:
            self._in_use.discard(number)
            dispatch.prepare_for_reuse()

    def close(self) -> None:
        """Release the dispatches that no duplicate uses; collective.

        The others are released when they are put back. Raises TunerError where a release failed.
        """
        self._closed = True
        failure = attempt_all(
            dispatch.backend.release
            for number, dispatch in enumerate(self._dispatches)
            if number not in self._in_use or number in self._unusable
        )
        if failure:
            raise TunerError(failure)

    def _exchange(self) -> None:
        """Exchange which dispatches are free; add one while there are few. Collective."""
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
