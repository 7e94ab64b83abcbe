"""Measure a transport's software cost of a message between two ranks of one host (rank side).

The ranks communicate as if they were on two hosts; `tuner.probe.multi_host` starts them in a launch
of their own. Between two hosts a short message takes as long, plus the time of the links: their
latency, and the frame at their rate. A rank that has waited for long may sleep, and waking up takes
time, too. So the ranks also hold a message back before they answer, as long as one may be on its
way.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from tuner.probe.rank_layout import open_connections
from tuner.probe.timing import Stopwatch, TimedOperation

MESSAGE_BYTES = 8
DELAYS_S = (0.0, 3e-5, 1e-4, 2e-4, 4e-4, 8e-4)  # seconds
BUDGET_S = 3.0
CI_HALF_WIDTH = 0.01  # relative, of a median's 95 % interval
FRAME_ROUND_TRIPS = 500


def delayed_pingpong(comm: MPI.Comm, seconds: float) -> TimedOperation:
    """Return a timed round trip of ranks 0 and 1, which hold the message, busy, for `seconds`."""
    buffer = np.zeros(MESSAGE_BYTES, np.uint8)

    def hold() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    def ping() -> None:
        comm.Send(buffer, 1)
        comm.Recv(buffer, 1)
        hold()

    def pong() -> None:
        comm.Recv(buffer, 0)
        hold()
        comm.Send(buffer, 0)

    return TimedOperation(pong if comm.rank else ping, calls_per_sample=10)


def interface_sent_bytes() -> int:
    """Return the bytes that the interface `lo` has sent, headers included.

    They are the 9th number of proc_pid_net(5); 0 where the system does not say.
    """
    table = Path("/proc/net/dev")
    lines = table.read_text().splitlines() if table.exists() else []
    return sum(int(line.split()[9]) for line in lines if line.split()[0] == "lo:")


def measure_frame_bytes(comm: MPI.Comm) -> float:
    """Return the bytes on the wire of a short message; 0 if messages do not pass the interface."""
    trip = delayed_pingpong(comm, 0.0).call
    comm.Barrier()
    before = interface_sent_bytes()
    for _ in range(FRAME_ROUND_TRIPS):
        trip()
    return (interface_sent_bytes() - before) / (2 * FRAME_ROUND_TRIPS)


def main() -> None:
    """Print, as JSON, `frame_bytes` and `hold_times`, on rank 0.

    `hold_times` has [seconds held, further one-way seconds] for each of `DELAYS_S`.
    """
    comm = MPI.COMM_WORLD
    open_connections(comm)
    watch = Stopwatch(comm.Dup(), oversubscribed=False)
    pingpongs = [delayed_pingpong(comm, seconds) for seconds in DELAYS_S]
    taken = watch.sample(
        pingpongs, ci_half_width=CI_HALF_WIDTH, seconds=BUDGET_S, seed=1, is_comparison=False
    )
    nbytes = measure_frame_bytes(comm)
    if comm.rank == 0:
        besides = np.quantile(taken, 0.25, axis=0) / 2 - DELAYS_S  # disturbances only add time
        pairs = [list(each) for each in zip(DELAYS_S, besides, strict=True)]
        print(json.dumps({"frame_bytes": nbytes, "hold_times": pairs}), flush=True)


if __name__ == "__main__":
    main()
