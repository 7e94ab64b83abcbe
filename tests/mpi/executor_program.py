"""Run by mpirun: every algorithm on every communicator size up to the world's, checked exactly."""

import sys
from typing import Any

import numpy as np
from mpi4py import MPI

from tests.support.calls import ALL, every_schedule, inputs, matrix_product, operator_of, outputs
from tuner.algorithms import schedule_properties
from tuner.base.errors import ScheduleError
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, make_schedule
from tuner.runtime.executor import execute

WORLD = MPI.COMM_WORLD
MATRIX = MPI.INT64_T.Create_contiguous(4).Commit()


def multiply(arriving: Any, target: Any, _: MPI.Datatype) -> None:
    left, right = np.frombuffer(arriving, np.int64), np.frombuffer(target, np.int64)
    right[:] = matrix_product(left, right)


PRODUCT = MPI.Op.Create(multiply, commute=False)


def check(made: Schedule, comm: MPI.Intracomm, count: int, dtype: str) -> None:
    """Exact results: with the matrix product where operands keep their order, else with a sum.

    A collective without data combines what counts once, such as the bits of a set.
    """
    buffers, ordered = inputs(made.p, count), dtype == "matrix"
    commuting = MPI.SUM if made.collective.has_data else MPI.BOR
    if not ordered:
        buffers = [(matrices[:, 0] % 100).astype(dtype) for matrices in buffers]
    mine = buffers[comm.rank].copy()
    execute(made, comm, mine, PRODUCT if ordered else commuting, MATRIX if ordered else None)
    everywhere = outputs(made, buffers, operator_of(made.collective, ordered))
    share, expected = everywhere[comm.rank]
    if not np.array_equal(mine[share], expected):
        print(f"{made} {made.params}: rank {comm.rank} of {comm.size}, {count} x {dtype}: wrong")
        WORLD.Abort(1)


def dtypes(made: Schedule) -> list[str]:
    if not made.collective.has_data:
        return ["int32", "int16"]
    ordered = schedule_properties(made).order_preserving
    return ["int32", "float64", "int16", *(["matrix"] if ordered else [])]


def check_refusal(comm: MPI.Intracomm) -> None:
    """Chunks of unequal size cannot change places; nobody may wait for a rank that noticed."""
    crossed = [Round.of(0, 1, 0, 3), Round.of(1, 1, 3, 0)]
    onward = [Round.of(rank - 1, rank, 0) for rank in range(1, comm.size)]
    try:
        execute(make_schedule(Collective.BCAST, comm.size, 2, crossed + onward), comm, np.zeros(3))
    except ScheduleError:
        return
    print(f"rank {comm.rank} of {comm.size} did not refuse chunks of unequal size")
    WORLD.Abort(1)


def main() -> None:
    calls = 0
    for p in (int(text) for text in sys.argv[1:]):
        comm = MPI.Intracomm(WORLD.Split(0 if WORLD.rank < p else MPI.UNDEFINED, WORLD.rank))
        if comm == MPI.COMM_NULL:
            continue
        schedules = p
        for collective, name in ALL:
            for made in every_schedule(collective, name, p, few=True):
                if collective.is_rooted and made.root not in (0, p - 1):
                    continue
                counts = (0, 1, p - 1, p, 5 * p + 3)
                if collective.gives_in_scratch:  # of equal blocks
                    counts = (0, p, 2 * p, 5 * p, 8 * p)
                for i, count in enumerate(counts):
                    for dtype in dtypes(made)[(schedules + i) % 2 :: 2]:  # others the next time
                        check(made, comm, count, dtype)
                        calls += 1
                schedules += 1
        check_refusal(comm)
        comm.Free()
    if WORLD.rank == 0:
        print(f"{len(ALL)} algorithms of {len(Collective)} collectives, {calls} calls: all exact")


main()
