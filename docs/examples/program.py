"""A program to try tables on: broadcasts and sums, and how long they take on the slowest rank.

mpirun -n 4 python docs/examples/program.py
mpirun -n 4 python docs/examples/program.py 4800 65536     # of these sizes, in bytes
mpirun -n 4 python -m tuner.run --table table.json docs/examples/program.py
"""

import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
for size in map(int, sys.argv[1:] or (2**14, 2**17, 2**20)):
    mine, total = np.ones(size // 8), np.empty(size // 8)
    for name, call in ("bcast", (comm.Bcast, mine)), ("allreduce", (comm.Allreduce, mine, total)):
        taken = []
        for _ in range(12):
            comm.Barrier()
            begin = MPI.Wtime()
            call[0](*call[1:])
            taken.append(comm.allreduce(MPI.Wtime() - begin, MPI.MAX))
        if comm.rank == 0:
            print(f"{name:9} {mine.nbytes:8} bytes {1e3 * np.median(taken[2:]):9.3f} ms")
