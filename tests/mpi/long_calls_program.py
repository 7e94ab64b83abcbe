"""Print how often each rank makes a call that takes long on rank 1 alone, and its samples.

Precision is no matter here, so that the ranks end after the fewest repetitions.
"""

from mpi4py import MPI

from tests.support.waiting import be_slow
from tuner.probe.timing import Stopwatch, TimedOperation

LONG = 0.12  # seconds
comm = MPI.COMM_WORLD
calls = list[int]()


def call() -> None:
    """Make the call."""
    calls.append(comm.rank)
    if comm.rank == 1:
        be_slow(LONG)


samples = Stopwatch(comm.Dup(), oversubscribed=True).sample(
    [TimedOperation(call)], ci_half_width=1e9, seconds=0.0, seed=1
)
everyone = comm.gather([len(calls), len(samples)])
if comm.rank == 0:
    print(everyone)
