"""Parameter servers: ranks push gradients to servers and pull parameters from them.

A server handles the bytes of all ranks at its rate, unless the ports and links of the machine let
less through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from typing import Annotated, Any

from tuner.base.errors import InputError
from tuner.base.file_settings import COUNT, Flag, Kind, Rate, Seconds, Size, one_of
from tuner.training.frameworks.framework import Framework
from tuner.training.frameworks.framework_constants import constant_rate, constant_seconds
from tuner.training.frameworks.server_traffic import ServerTraffic, server_traffic
from tuner.training.job import Gradient, TrainingJob
from tuner.training.recorded import COMPUTE
from tuner.training.timeline import CALL, UPDATE, WAIT, Timeline

GRPC, RDMA_GRPC, MPI = TRANSPORTS = ("grpc", "rdma-grpc", "mpi")
BEST = 0  # as the number of servers: the one with the shortest iteration
TRIED_ITERATIONS = 3
SERVER_STREAM = TO, FROM = ("to", "from")  # begin the names of the streams of a server
NETWORK_STREAM = ("network to servers", "network from servers")  # of the tensors of all servers


def _read_servers(what: str, value: Any) -> int:
    return BEST if value == "best" else COUNT.read(what, value)


SERVERS = Kind("number", _read_servers, {"anyOf": [COUNT.schema, {"const": "best"}]})


@dataclass(frozen=True)
class ParameterServer(Framework):
    """Synchronous training with parameter servers.

    Each tensor has one server, which receives its gradients from all ranks, updates it and sends it
    to all of them; a rank goes on with a layer when its parameters are there. Tensors are dealt to
    the servers by size, the largest first to the server with the fewest bytes. An iteration ends
    with a barrier: each rank enqueues a token for every other one on one of the servers, as
    tf_cnn_benchmarks does (`add_sync_queues_and_barrier`).

    servers             number of servers, spread over the nodes of the ranks, whose ports they use;
                        BEST: the power of two, or the number of ranks, with the shortest iteration
    transport           GRPC, RDMA_GRPC (AR-gRPC) or MPI: decides what follows where it is 0
    rate                bytes per second of a server in each direction, with serialization
    worker_rate         bytes per second of a rank in each direction
    request             seconds of a server for one tensor of one rank
    token               seconds of a server for one token of the barrier
    shard               bytes from which a tensor is divided over all servers; 0: never
    local_aggregation   whether the ranks of a node add up their gradients before one of them pushes
    replicated          whether all parameters must be there before an iteration begins, as ranks
                        work on copies of them
    """

    servers: Annotated[int, SERVERS] = 1
    transport: Annotated[str, one_of(TRANSPORTS)] = GRPC
    rate: Rate = 0.0
    worker_rate: Rate = 0.0
    request: Seconds = 0.0
    token: Seconds = 0.0
    shard: Size = 0
    local_aggregation: Flag = False
    replicated: Flag = False
    _best: dict[tuple[object, ...], int] = field(default_factory=dict, compare=False)

    def compute_seconds(self, job: TrainingJob) -> float:
        """Return the seconds of a rank, without the update, which servers make."""
        return job.compute - job.update if job.ranks > 1 else job.compute

    def add_iteration(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        if job.ranks == 1:
            slowdown = job.slowdown(timeline)
            job.add_passes(timeline, ready, slowdown)
            return [job.add_update(timeline, (), slowdown)] * len(ready)
        return self.settled(job)._add_exchange(job, timeline, ready)

    def settled(self, job: TrainingJob) -> ParameterServer:
        """Return the framework with all settings that a job or the transport decide."""
        known = replace(
            self,
            rate=self.rate or constant_rate(self.transport, "rate"),
            worker_rate=self.worker_rate or constant_rate(self.transport, "worker_rate"),
            request=self.request or constant_seconds(self.transport, "request"),
            token=self.token or constant_seconds(self.transport, "token"),
        )
        if known.servers != BEST:
            return known
        case = (known, job.model.name, job.compute, job.times.placement)
        if case not in self._best:
            quiet = replace(job, noise=0.0)
            numbers = [*_powers_of_two(job.ranks), job.ranks]
            self._best[case] = min(
                numbers, key=lambda servers: replace(known, servers=servers)._seconds_tried(quiet)
            )
        return replace(known, servers=self._best[case])

    def _seconds_tried(self, job: TrainingJob) -> float:
        """Return the seconds of an iteration."""
        timeline, ready = Timeline(), list[int | None]([None] * len(job.model.layers))
        for _ in range(TRIED_ITERATIONS):
            before = timeline.end_of(COMPUTE)
            ready = self._add_exchange(job, timeline, ready)
        return timeline.end_of(COMPUTE) - before

    def _add_exchange(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        gradients = job.add_passes(timeline, ready, job.slowdown(timeline))
        traffic = self.traffic(job)
        pieces = self._pieces(gradients)
        server_of = _deal([nbytes for _, nbytes in pieces], self.servers)
        pushed = [
            self._push(job, timeline, traffic, one, nbytes, server)
            for (one, nbytes), server in zip(pieces, server_of, strict=True)
        ]
        tokens = job.ranks * (job.ranks - 1)
        synchronized = timeline.add("barrier", "barrier", WAIT, tokens * self.token, pushed)
        pulled: dict[int, int] = {}
        for at in reversed(range(len(pieces))):  # in the order of the forward pass
            (one, nbytes), server = pieces[at], server_of[at]
            pulled[one.layer] = self._pull(job, timeline, traffic, nbytes, server, synchronized)
        if self.replicated:
            copied = timeline.add("copy", "receive", WAIT, 0.0, pulled.values())
            return [copied] * len(ready)
        return [pulled.get(layer) for layer in range(len(ready))]

    def _pieces(self, gradients: Sequence[Gradient]) -> list[tuple[Gradient, int]]:
        """Return what is sent to one server each, with its bytes."""
        pieces = []
        for one in gradients:
            parts = self.servers if self.shard and one.nbytes >= self.shard else 1
            pieces += [(one, -(-one.nbytes // parts))] * parts
        return pieces

    def with_faster_servers(self, factor: float) -> ParameterServer:
        """Return the framework with servers and workers that are so many times as fast."""
        return replace(
            self,
            rate=self.rate * factor,
            worker_rate=self.worker_rate * factor,
            request=self.request / factor,
            token=self.token / factor,
        )

    def traffic(self, job: TrainingJob) -> ServerTraffic:
        """Return what the network takes for the tensors of a settled number of servers."""
        return server_traffic(job.times.placement, self.servers, self.local_aggregation)

    def senders(self, job: TrainingJob) -> int:
        """Return the number of ranks that exchange tensors with the servers."""
        nodes, _ = job.times.placement.shape
        return nodes if self.local_aggregation else job.ranks

    def _push(
        self,
        job: TrainingJob,
        timeline: Timeline,
        traffic: ServerTraffic,
        one: Gradient,
        nbytes: int,
        server: int,
    ) -> int:
        """Add the arrival of a gradient from all ranks at its server, and the update there."""
        share = nbytes / (job.model.elements * job.gradient_bytes)
        crossed = timeline.add(
            "push", NETWORK_STREAM[0], CALL, nbytes * traffic.push_all, [one.made_by]
        )
        seconds = self._seconds(job, nbytes, float(traffic.push[server]))
        arrived = timeline.add(
            f"push {one.name}", f"{TO} server {server}", CALL, seconds, [one.made_by]
        )
        after = [arrived, crossed]
        return timeline.add("update", f"server {server}", UPDATE, job.update * share, after)

    def _pull(
        self,
        job: TrainingJob,
        timeline: Timeline,
        traffic: ServerTraffic,
        nbytes: int,
        server: int,
        after: int,
    ) -> int:
        """Add the way of a parameter from its server to all ranks."""
        seconds = self._seconds(job, nbytes, float(traffic.pull[server]))
        sent = timeline.add("pull", f"{FROM} server {server}", CALL, seconds, [after])
        crossed = timeline.add("pull", NETWORK_STREAM[1], CALL, nbytes * traffic.pull_all, [after])
        seconds = nbytes / self.worker_rate
        return timeline.add("receive", "receive", CALL, seconds, [sent, crossed])

    def _seconds(self, job: TrainingJob, nbytes: int, per_byte: float) -> float:
        """Return the seconds in which a server exchanges a tensor with all ranks.

        per_byte    seconds that the network takes for each byte of the tensor
        """
        senders = self.senders(job)
        return senders * self.request + nbytes * max(senders / self.rate, per_byte)


def _powers_of_two(most: int) -> Iterator[int]:
    """Yield 1, 2, 4, ... as far as they are less than `most`."""
    number = 1
    while number < most:
        yield number
        number *= 2


def _deal(sizes: Sequence[int], servers: int) -> list[int]:
    """Return the server of each tensor: the largest first, each to the least loaded server."""
    if servers < 1:
        raise InputError(f"parameter servers: at least 1, not {servers}")
    load, server_of = [(0, server) for server in range(servers)], [0] * len(sizes)
    for at in sorted(range(len(sizes)), key=lambda at: -sizes[at]):
        held, server_of[at] = load[0]
        heapreplace(load, (held + sizes[at], server_of[at]))
    return server_of
