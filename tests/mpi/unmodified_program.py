"""Run by mpirun under `tuner.run`: a program that knows nothing of tables. Its first argument says
how the last rank ends; the others wait for it, or end in order."""

import signal
import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
total = np.zeros(1000)
for value in range(100):
    comm.Allreduce(np.full(1000, float(value)), total)
    assert (total == value * comm.size).all()
if comm.rank == 0:
    print(__name__, *sys.argv[1:], type(comm).__name__, sys.path[0], flush=True)
ending = sys.argv[1]
if comm.rank == comm.size - 1:
    if ending == "raise":
        print("last words")  # in a pipe, so in Python's own buffer
        raise ValueError("of the program")
    if ending.isdecimal():
        sys.exit(int(ending))
    if ending.startswith("SIG"):
        signal.raise_signal(signal.Signals[ending])
    if ending == "give up":
        sys.exit("the program gives up")
if ending == "raise":
    comm.Barrier()
if ending == "finalize":
    MPI.Finalize()
