"""A schedule carried out by real ranks over point-to-point messages."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.errors import ScheduleError
from tuner.schedule import ARRIVING_OP_DST, NO_REDUCTION, Round, Schedule

TAG = 0x7475  # of all our messages; MPI keeps messages of one pair of ranks in order


def execute(
    schedule: Schedule,
    comm: MPI.Intracomm,
    buffer: NDArray[np.generic],
    op: MPI.Op = MPI.SUM,
    datatype: MPI.Datatype | None = None,
) -> None:
    """Every rank of `comm` takes its part in `schedule`, in place on its `buffer`.

    buffer      contiguous, shape (count, ...): its first axis counts elements. It holds what the
                rank contributes and, afterwards, what the collective gives it; chunks that are
                neither are overwritten at will.
    datatype    of one element where numpy's own does not say (operators on derived datatypes)

    Raises ScheduleError when comm's size is not the schedule's p, or the count is not divisible
    as the schedule needs.
    """
    if comm.size != schedule.p:
        raise ScheduleError(f"{schedule} cannot run on {comm.size} ranks")
    run = _Run(schedule, comm, buffer, op, datatype)
    for r in schedule.rounds():
        run.require_equal_sizes(r)
        mine = (r.src == comm.rank) | (r.dst == comm.rank)
        if mine.any():
            run.play(r.take(mine))


class _Run:
    """One rank's memory during one call."""

    def __init__(
        self,
        schedule: Schedule,
        comm: MPI.Intracomm,
        buffer: NDArray[np.generic],
        op: MPI.Op,
        datatype: MPI.Datatype | None,
    ) -> None:
        self.schedule, self.comm, self.op, self.datatype = schedule, comm, op, datatype
        self.offsets = schedule.offsets(len(buffer))
        self.memory = (buffer, np.empty_like(buffer))  # the user's buffer, scratch

    def window(self, first: int, chunks: int) -> NDArray[np.generic]:
        """The elements of consecutive chunks."""
        half, first = divmod(first, self.schedule.n_chunks)
        return self.memory[half][self.offsets[first] : self.offsets[first + chunks]]

    def message(self, elements: NDArray[np.generic]) -> object:
        """What mpi4py sends or receives."""
        return elements if self.datatype is None else [elements, len(elements), self.datatype]

    def require_equal_sizes(self, r: Round) -> None:
        """Every rank looks at every row: all refuse together, and none waits for another."""
        first, into = r.first % self.schedule.n_chunks, r.into % self.schedule.n_chunks
        sent = self.offsets[first + r.count] - self.offsets[first]
        if (sent != self.offsets[into + r.count] - self.offsets[into]).any():
            raise ScheduleError(f"{self.schedule}: the count must be a multiple of its chunks")

    def play(self, r: Round) -> None:
        """Start all transfers of the round, wait for all, then fold in row order."""
        requests: list[MPI.Request] = []
        folds: list[tuple[NDArray[np.generic], NDArray[np.generic], int]] = []
        rows = zip(*(column.tolist() for column in r.columns), strict=True)
        for src, dst, first, into, chunks, reduce in rows:
            source, target = self.window(first, chunks), self.window(into, chunks)
            if len(source) == 0:
                continue
            if src == dst:
                folds.append((source.copy(), target, reduce))
            elif src == self.comm.rank:
                requests.append(self.comm.Isend(self.message(source), dst, TAG))
            elif reduce == NO_REDUCTION:
                requests.append(self.comm.Irecv(self.message(target), src, TAG))
            else:
                arriving = np.empty_like(target)
                requests.append(self.comm.Irecv(self.message(arriving), src, TAG))
                folds.append((arriving, target, reduce))
        MPI.Request.Waitall(requests)
        for arriving, target, reduce in folds:
            self.fold(arriving, target, reduce)

    def fold(self, arriving: NDArray[np.generic], target: NDArray[np.generic], reduce: int) -> None:
        """MPI's Reduce_local computes `second = first op second`."""
        if reduce == NO_REDUCTION:
            target[...] = arriving
        elif reduce == ARRIVING_OP_DST or self.op.is_commutative:
            self.op.Reduce_local(self.message(arriving), self.message(target))
        else:
            self.op.Reduce_local(self.message(target), self.message(arriving))
            target[...] = arriving
