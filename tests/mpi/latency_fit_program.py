"""Of a ladder whose arms take ever longer only the first ones fit; the ranks agree how many.

Each of three arms takes ten times as long as the one before. Prints what each rank found for a time
that suffices for none of them, for two and for all.
"""

from itertools import chain, repeat

from mpi4py import MPI

from tests.support.waiting import be_slow
from tuner.probe.probe_plan import WARM_UP_REPETITIONS
from tuner.probe.timing import Stopwatch, TimedOperation

comm = MPI.COMM_WORLD
SHORT = 0.003
FEWEST = 5
SUFFICES = [SHORT * (WARM_UP_REPETITIONS + FEWEST) * times for times in (0.5, 30, 1000)]


def pausing(seconds: float) -> TimedOperation:
    """Takes so long."""
    return TimedOperation(lambda: be_slow(seconds))


def opening(seconds: float) -> TimedOperation:
    """Takes long the first time, as connections may that open."""
    pauses = chain([0.2], repeat(seconds))
    return TimedOperation(lambda: be_slow(next(pauses)))


def found(seconds: float) -> int:
    """How many of three arms fit."""
    arms = [opening(SHORT), pausing(SHORT * 10), pausing(SHORT * 100)]
    return len(watch.fit_within(arms, seconds, FEWEST).each)


watch = Stopwatch(comm.Dup(), oversubscribed=True)
everyone = comm.gather([found(seconds) for seconds in SUFFICES])
if comm.rank == 0:
    print(everyone)
