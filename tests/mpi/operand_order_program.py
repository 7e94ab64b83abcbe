"""Allreduce with a non-commutative operator: `operand_order_program.py [[p, matrices], ...]`.

Prints one JSON line per case: {p, matrices, right}.
"""

import json
import sys

from mpi4py import MPI

from tuner.probe.collectives import preserves_operand_order

world = MPI.COMM_WORLD
for p, matrices in json.loads(sys.argv[1]):
    comm = world.Split(0 if world.rank < p else MPI.UNDEFINED, world.rank)
    if comm != MPI.COMM_NULL:
        right = comm.allreduce(preserves_operand_order(comm, matrices, seed=7), MPI.LAND)
        if world.rank == 0:
            print(json.dumps({"p": p, "matrices": matrices, "right": right}), flush=True)
        comm.Free()
