"""Conforming calls that rules may break: `error_handling_program.py CALL SIZE`.

gather BYTES    root 0 gathers in place, so its send count means nothing
scatter BYTES   only the root says how much it sends
allgather BYTES in place, so no send count means anything
reduce MATRICES root 0 reduces by an operator that does not commute

Prints one JSON line: {"error": MPI error class, "right": ...}.
"""

import json
import sys

import numpy as np
from mpi4py import MPI

from tuner.probe.collectives import MODULUS, matrix_product

world = MPI.COMM_WORLD
root = world.rank == 0


def gather(nbytes: int) -> bool:
    """In place at the root."""
    part = np.full(nbytes, world.rank, np.int8)
    whole = np.zeros((world.size, nbytes), np.int8)
    world.Gather(MPI.IN_PLACE if root else part, whole if root else None)
    return not root or bool((whole == np.arange(world.size)[:, None]).all())


def scatter(nbytes: int) -> bool:
    """Every rank gets its number."""
    whole = np.repeat(np.arange(world.size, dtype=np.int8), nbytes)
    part = np.full(nbytes, -1, np.int8)
    world.Scatter(whole if root else None, part)
    return bool(world.allreduce((part == world.rank).all(), MPI.LAND))


def allgather(nbytes: int) -> bool:
    """In place everywhere."""
    whole = np.zeros((world.size, nbytes), np.int8)
    whole[world.rank] = world.rank
    world.Allgather(MPI.IN_PLACE, whole)
    return bool((whole == np.arange(world.size)[:, None]).all())


def reduce(matrices: int) -> bool:
    """A product of 2x2 matrices in the order of ranks."""
    given = np.random.default_rng(3).integers(0, MODULUS, (world.size, matrices, 2, 2))
    expected = given[0]
    for operand in given[1:]:
        expected = expected @ operand % MODULUS
    datatype = MPI.INT32_T.Create_contiguous(4).Commit()
    operator = MPI.Op.Create(matrix_product, commute=False)
    mine, received = given[world.rank].astype(np.int32), np.zeros((matrices, 2, 2), np.int32)
    world.Reduce([mine, matrices, datatype], [received, matrices, datatype], operator)
    return not root or np.array_equal(received, expected)


error, right = 0, False
try:
    calls = {"gather": gather, "scatter": scatter, "allgather": allgather, "reduce": reduce}
    right = calls[sys.argv[1]](int(sys.argv[2]))
except MPI.Exception as reason:
    error = reason.Get_error_class()
if root:
    print(json.dumps({"error": error, "right": right}), flush=True)
