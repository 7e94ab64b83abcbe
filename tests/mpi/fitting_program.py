"""Of a ladder whose arms take ever longer only the first ones fit; the ranks agree how many.

Each of three arms takes ten times as long as the one before. Prints what each rank found for a time
that suffices for none of them, for two and for all.
"""

import time

from mpi4py import MPI

from tuner.probe.plan import WARM_UP
from tuner.probe.timing import Arm, Stopwatch

comm = MPI.COMM_WORLD
SHORT, FEWEST = 0.003, 5
SUFFICES = [SHORT * (WARM_UP + FEWEST) * times for times in (0.5, 30, 1000)]


def pausing(seconds: float) -> Arm:
    """Takes so long."""
    return Arm(lambda: time.sleep(seconds))


calls = 0


def first(seconds: float) -> Arm:
    """Takes long the first time, as connections are opened."""

    def call() -> None:
        global calls
        calls += 1
        time.sleep(1.0 if calls == 1 else seconds)

    return Arm(call)


watch = Stopwatch(comm.Dup(), crowded=True)
arms = [first(SHORT), pausing(SHORT * 10), pausing(SHORT * 100)]
found = [watch.fitting(arms, seconds, FEWEST) for seconds in SUFFICES]
everyone = comm.gather(found)
if comm.rank == 0:
    print(everyone)
