"""Print which sizes of a series of exchanges are measured, and which are excluded.

The candidates come in any order. One of them takes a fifth of the time that is left, so that a few
calls of it fit and no more.
"""

import json
import time

from mpi4py import MPI

from tests.support.waiting import be_slow
from tuner.probe.probe_plan import ProbeCandidate, ProbePlan, ProbePoint
from tuner.probe.session import ProbeSession
from tuner.probe.timing import TimedOperation

SECONDS = 6.0
LONG_BYTES = 512
comm = MPI.COMM_WORLD
excluded = list[int]()


class SlowSession(ProbeSession):
    """A session whose messages of `LONG_BYTES` and more are slow."""

    def _timed_operation(self, point: ProbePoint, candidate: ProbeCandidate) -> TimedOperation:
        is_long = point.nbytes_of(candidate) >= LONG_BYTES
        return TimedOperation(lambda: be_slow(SECONDS / 5 if is_long else 0.0))


def exclude(point: ProbePoint, candidate: ProbeCandidate, _reason: str) -> None:
    """Take down a size."""
    excluded.append(point.nbytes_of(candidate))


candidates = tuple(ProbeCandidate(nbytes=nbytes) for nbytes in (LONG_BYTES, 8, 1024, 64))
series = ProbePoint("exchange", "network", 2, 0, candidates, 1.0, nodes=2, ppn=1)
plan = ProbePlan("openmpi", 2, 2, 1e9, "any", (series,))
session = SlowSession(
    plan,
    comm,
    True,
    None,
    lambda: None,
    exclude,
    lambda *_: None,
    lambda _: None,
    time.monotonic() + SECONDS,
)
lines = session.measure(series, 0.0)
if comm.rank == 0:
    measured = [json.loads(line)["nbytes"] for line in (lines or "").splitlines()]
    print(json.dumps([measured, excluded]))
session.close()
