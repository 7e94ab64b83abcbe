"""Run by mpirun: threads that all want to be alone, each over a communicator of all ranks.

Prints `fine`, how often two were alone at once, or the level of threads where MPI allows no such
thing.
"""

import os
import threading

os.environ["MPI4PY_RC_THREAD_LEVEL"] = "multiple"

from mpi4py import MPI

from tuner.runtime.collective_lock import VARIABLES_LOCK, collective_lock

WORLD = MPI.COMM_WORLD
THREADS = 3
TIMES = 3
inside, together = list[int](), list[int]()


def often(comm: MPI.Intracomm, number: int) -> None:
    for _ in range(TIMES):
        with collective_lock(comm):
            inside.append(number)
            comm.Barrier()
            together.append(len(inside) - 1)
            inside.remove(number)


def main() -> None:
    comms = [WORLD.Dup() for _ in range(THREADS)]
    threads = [
        threading.Thread(target=often, args=(comm, number)) for number, comm in enumerate(comms)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wrong = WORLD.allreduce(sum(together) + VARIABLES_LOCK.locked())
    entered = WORLD.allreduce(len(together))
    if WORLD.rank == 0:
        fine = wrong == 0 and entered == THREADS * TIMES * WORLD.size
        print("fine" if fine else f"{wrong} times of {entered}", flush=True)


if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
    main()
elif WORLD.rank == 0:
    print(f"level {MPI.Query_thread()}", flush=True)
