"""Timed messages between two ranks, and timed local reductions (rank side)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from tuner.probe.probe_plan import RECEIVER_DELAY_S, WARM_UP_REPETITIONS
from tuner.probe.timing import TimedOperation
from tuner.runtime.buffers import ByteArray

Allocator = Callable[[int], ByteArray]  # allocates host or device memory that MPI accepts

SHORT_BYTES = 16384  # calls below this many bytes are too short to time singly
SHORT_CALLS_PER_SAMPLE = 10  # of short calls
EAGER_TRIALS = 5
EAGER_START_BYTES = 1024  # bytes, a power of two; the search for the eager limit begins there
EAGER_PRECISION = 64  # the eager limit is found to 1 / this of its value
EAGER_MESSAGES = 80  # rough number of messages of the search for the eager limit
EAGER_TYPICAL_BYTES = 32768  # of such a message
AHEAD_MESSAGES = 24  # rough number of messages of the early-push test
ALL_PAIRS_SAMPLES = 5  # samples of each pair in an all-pairs sweep
LATE_RECEIVE_FACTOR = 3.0  # multiple of a Recv's time by which a late receiver delays it further
UNUSED_TAG = 1  # no message has it


def zeros(nbytes: int) -> ByteArray:
    """Return zeroed host memory for messages."""
    return np.zeros(nbytes, np.uint8)


def with_warm_up(call: Callable[[], object], nbytes: int) -> TimedOperation:
    """Return a timed call of a size series, which runs once untimed before each sample.

    The other sizes have evicted its data from the cache meanwhile.
    """
    return TimedOperation(
        call, warm_up=call, calls_per_sample=SHORT_CALLS_PER_SAMPLE if nbytes < SHORT_BYTES else 1
    )


def pingpong(
    comm: MPI.Comm, nbytes: int, allocate: Allocator = zeros, peer: int | None = None
) -> TimedOperation:
    """Return a timed round trip with `peer`, or between ranks 2i and 2i+1, all pairs at once.

    The lower rank begins. Half of the time is the one-way time: `session.py` halves the samples.
    """
    buffer = allocate(nbytes)
    peer = comm.rank ^ 1 if peer is None else peer

    def ping() -> None:
        comm.Send(buffer, peer)
        comm.Recv(buffer, peer)

    def pong() -> None:
        comm.Recv(buffer, peer)
        comm.Send(buffer, peer)

    return with_warm_up(ping if comm.rank < peer else pong, nbytes)


def measure_one_way(comm: MPI.Comm, pair: tuple[int, int], nbytes: int) -> list[float]:
    """Return one-way seconds between two ranks, half of each round trip on the first of them.

    It is quick, as the ranks do not agree on a start.
    """
    first = comm.rank == pair[0]
    trip, taken = pingpong(comm, nbytes, peer=pair[1] if first else pair[0]), list[float]()
    for _ in range(WARM_UP_REPETITIONS + ALL_PAIRS_SAMPLES):
        begin = MPI.Wtime()
        trip.call()
        taken.append((MPI.Wtime() - begin) / 2)
    return taken[WARM_UP_REPETITIONS:]


def exchange(comm: MPI.Comm, nbytes: int, exchanges: int, ring: bool = False) -> TimedOperation:
    """Return a timed exchange in which every rank sends and receives at once.

    `exchanges` of them follow one another, with the partners of `exchange_partners`. Large ones
    that follow one another at once may take longer than single ones: ranks get out of step, and
    what they send and what they receive wait for one another.
    """
    given, taken = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    requests = [
        [comm.Recv_init(taken, source), comm.Send_init(given, to)]
        for to, source in (
            exchange_partners(comm.rank, comm.size, ring, row) for row in range(exchanges)
        )
    ]

    def meet(pair: list[MPI.Prequest]) -> None:
        MPI.Prequest.Startall(pair)
        MPI.Request.Waitall(pair)

    def call() -> None:
        for pair in requests:
            meet(pair)

    one = with_warm_up(call, nbytes)
    return replace(one, warm_up=lambda: meet(requests[0]))  # several exchanges warm themselves up


def exchange_partners(rank: int, p: int, ring: bool, exchange_number: int = 0) -> tuple[int, int]:
    """Return the rank to send to and the rank to receive from in a sequence of exchanges.

    In a ring these are the next rank and the previous one. Otherwise partners exchange with each
    other: ranks 2i and 2i+1 and, in every second exchange, i and i+2 of each four, as in recursive
    doubling. Two ranks that only exchange with each other may stay in step, unlike ranks of a
    collective.
    """
    if ring:
        return (rank + 1) % p, (rank - 1) % p
    other = rank ^ 2 if exchange_number % 2 and rank < p - p % 4 else rank ^ 1
    return other, other


def fan_out(comm: MPI.Comm, nbytes: int, peers: int, nth: int = 0) -> TimedOperation:
    """Return a timed fan-out: rank 0 sends a message to each of ranks 1 to `peers`, all together.

    nth     timed until the message that was posted as the nth has arrived; 0: until all have
    """
    buffer = np.zeros(nbytes, np.uint8)
    if comm.rank == 0:
        requests = [comm.Send_init(buffer, peer) for peer in range(1, peers + 1)]
    else:
        requests = [comm.Recv_init(buffer, 0)] if comm.rank <= peers else []

    def start() -> None:
        MPI.Prequest.Startall(requests)

    def finish() -> None:
        MPI.Request.Waitall(requests)

    def whole() -> None:
        start()
        finish()

    if nth in (0, comm.rank):
        return TimedOperation(whole, warm_up=whole)
    return TimedOperation(start, after=finish, warm_up=whole)


OVERHEAD_MESSAGES = 8  # messages posted at once, to find the sender's overhead for each


def send_overhead(comm: MPI.Comm, nbytes: int) -> TimedOperation:
    """Return a timed post of messages by ranks 2i, to find the overhead of the sender.

    `session.py` divides the time by the number of messages. Both sides complete them after the
    sample. Nothing may be left over when a sample is cancelled between `warm_up` and `call`, so
    receives are posted after it, too.
    """
    buffers = np.zeros((OVERHEAD_MESSAGES, max(nbytes, 1)), np.uint8)[:, :nbytes]
    sender, peer = comm.rank % 2 == 0, comm.rank ^ 1
    prepare = comm.Send_init if sender else comm.Recv_init
    requests = [prepare(row, peer) for row in buffers]
    called: list[bool] = []

    def receive() -> None:
        if called:
            called.clear()
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)

    if sender:
        return TimedOperation(
            lambda: MPI.Prequest.Startall(requests), after=lambda: MPI.Request.Waitall(requests)
        )
    return TimedOperation(lambda: called.append(True), after=receive)


def message_train(
    comm: MPI.Comm, nbytes: int, messages: int, allocate: Allocator = zeros
) -> TimedOperation:
    """Return a timed train of `messages` posted together, and one empty answer.

    They go from rank 2i to rank 2i+1, all pairs at once. Two lengths give the time per further
    message, without latency and answer. Persistent requests start all messages in one call, so that
    the interpreter does not run in between.
    """
    buffers = allocate(messages * max(nbytes, 1)).reshape(messages, -1)[:, :nbytes]
    answer = np.zeros(0, np.uint8)
    sender, peer = comm.rank % 2 == 0, comm.rank ^ 1
    prepare = comm.Send_init if sender else comm.Recv_init
    requests = [prepare(row, peer) for row in buffers]

    def send() -> None:
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        comm.Recv(answer, peer)

    def receive() -> None:
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        comm.Send(answer, peer)

    return TimedOperation(send if sender else receive)


def null_call(comm: MPI.Comm) -> TimedOperation:
    """Return a timed Send and Recv with PROC_NULL: the cost of interpreter and library entry."""
    buffer = np.zeros(0, np.uint8)

    def call() -> None:
        comm.Send(buffer, MPI.PROC_NULL)
        comm.Recv(buffer, MPI.PROC_NULL)

    return TimedOperation(call, calls_per_sample=SHORT_CALLS_PER_SAMPLE)


def local_reduction(nbytes: int) -> TimedOperation:
    """Return a timed local sum of float32 by the library."""
    arriving, into = np.ones(nbytes // 4, np.float32), np.zeros(nbytes // 4, np.float32)
    return with_warm_up(lambda: MPI.SUM.Reduce_local(arriving, into), nbytes)


def measure_eager_limit(
    comm: MPI.Comm, largest: int, allocate: Allocator = zeros
) -> tuple[int, list[float]]:
    """Return the smallest message whose sender waits for the receiver, and the waits in seconds.

    The size is found to 1 / `EAGER_PRECISION`, and exactly if it is a power of two: by doubling, so
    that nothing much larger is sent, then by bisection. The receiver is inside the library but asks
    for the message `RECEIVER_DELAY_S` late: an eager message is taken in meanwhile, a rendezvous is
    not answered. If no sender waits, the size is `largest`, and the second value shows that nobody
    waited.
    """
    eager, waits = 0, min(EAGER_START_BYTES, largest)
    blocked = _measure_blocked_sends(comm, allocate(waits))
    while np.median(blocked) < RECEIVER_DELAY_S / 2:
        if waits == largest:
            return largest, blocked
        eager, waits = waits, min(2 * waits, largest)
        blocked = _measure_blocked_sends(comm, allocate(waits))
    while waits - eager > max(eager // EAGER_PRECISION, 1):
        middle = (eager + waits) // 2
        seconds = _measure_blocked_sends(comm, allocate(middle))
        if np.median(seconds) < RECEIVER_DELAY_S / 2:
            eager = middle
        else:
            waits, blocked = middle, seconds
    return waits, blocked


def measure_message(comm: MPI.Comm, nbytes: int) -> float:
    """Return the one-way seconds of a single message between ranks 0 and 1, as rank 0 sees it."""
    trip = pingpong(comm, nbytes)
    begin = time.monotonic()
    trip.call()
    return (time.monotonic() - begin) / 2


def measure_late_receives(comm: MPI.Comm, nbytes: int) -> list[float]:
    """Return the seconds of each Recv that rank 1 posted after the message could have arrived.

    Both ranks return them. If they are much shorter than the message takes, it was pushed before
    the receive was posted, whether or not its sender waits for the receive. Until then the receiver
    is inside the library.
    """
    buffer, taken, away = zeros(nbytes), list[float](), 0.0
    for trial in range(1 + EAGER_TRIALS):
        comm.Barrier()
        begin = time.monotonic()
        if comm.rank == 0:
            comm.Send(buffer, 1)
            continue
        while time.monotonic() < begin + away:
            comm.Iprobe(0, UNUSED_TAG)
        asked = time.monotonic()
        comm.Recv(buffer, 0)
        seconds = time.monotonic() - asked
        if trial == 0:
            away = RECEIVER_DELAY_S + LATE_RECEIVE_FACTOR * seconds
        else:
            taken.append(seconds)
    known: list[float] = comm.bcast(taken, 1)
    return known


def _measure_blocked_sends(comm: MPI.Comm, buffer: ByteArray) -> list[float]:
    """Return the seconds of each Send from rank 0 while rank 1 did not receive, on both ranks."""
    taken: list[float] = []
    for _ in range(EAGER_TRIALS):
        comm.Barrier()
        begin = time.monotonic()
        if comm.rank == 0:
            comm.Send(buffer, 1)
            taken.append(time.monotonic() - begin)
        else:
            while time.monotonic() < begin + RECEIVER_DELAY_S:
                comm.Iprobe(0, UNUSED_TAG)
            comm.Recv(buffer, 0)
    known: list[float] = comm.bcast(taken)
    return known
