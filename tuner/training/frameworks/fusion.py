"""Horovod and PyTorch DDP: buckets of gradients are reduced during the backward pass."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from tuner.base.file_settings import Flag, Seconds, Size, one_of
from tuner.core.collective import Collective
from tuner.topology import CUDA
from tuner.training.buckets import fill_buckets
from tuner.training.frameworks.framework import Framework
from tuner.training.frameworks.framework_constants import constant_bytes, constant_seconds
from tuner.training.groups import Group
from tuner.training.job import Gradient, TrainingJob
from tuner.training.recorded import COMPUTE
from tuner.training.timeline import Timeline

MIB = 1 << 20
ALIGNMENT = 64  # bytes; Horovod rounds its fusion buffer to a multiple of it for each local rank
FORWARD_ORDER, BACKWARD_ORDER = BUCKET_ORDERS = ("forward", "backward")


@dataclass(frozen=True)
class Horovod(Framework):
    """Horovod: a background thread reduces in cycles what is ready on all ranks.

    At each cycle the ranks agree on the tensors that all of them have, fuse these in buffers of at
    most `fusion_threshold` bytes, and reduce them. Without the response cache rank 0 receives a
    request for each tensor of each rank; with it a bit for each tensor is combined.

    A host launches the kernels of its GPU long before they run and announces a gradient as soon as
    its kernel is launched. The thread waits for the values before it reduces them; meanwhile other
    gradients pile up and are fused. In host memory a gradient is announced when it is computed.

    cycle_time          seconds between the starts of two cycles, at least
    hierarchical        reduce-scatter on the nodes, allreduce across nodes, allgather on the nodes
    cache               whether agreed responses are cached, as by default since version 0.16
    blocking            whether a cycle ends when its reductions have ended, as over MPI; over NCCL
                        the next cycle begins while they run
    round_trip          seconds of an agreement between two ranks; over n ranks log2 n times as much
    request             seconds that rank 0 takes for one request
    launch              seconds in which a host launches the kernels of a layer in one pass
    """

    fusion_threshold: Size = constant_bytes("horovod", "fusion_threshold")
    cycle_time: Seconds = constant_seconds("horovod", "cycle_time")
    hierarchical: Flag = False
    cache: Flag = True
    blocking: Flag = False
    round_trip: Seconds = constant_seconds("horovod", "round_trip")
    request: Seconds = constant_seconds("horovod", "request")
    launch: Seconds = constant_seconds("horovod", "launch")

    def add_iteration(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        slowdown = job.slowdown(timeline)
        begin = timeline.end_of(COMPUTE)
        gradients = job.add_passes(timeline, ready, slowdown)
        announced = [self._announced(job, timeline, one, begin) for one in gradients]
        last = self._reduce(job, timeline, list(zip(announced, gradients, strict=True)))
        updated = job.add_update(timeline, last, slowdown)
        return [updated] * len(job.model.layers)

    def _announced(
        self, job: TrainingJob, timeline: Timeline, one: Gradient, begin: float
    ) -> float:
        """Return when all ranks have announced a gradient, in seconds."""
        computed = timeline.ready([one.made_by])
        if job.times.memory != CUDA:
            return computed
        layers = len(job.model.layers)
        launched = (2 * job.passes - 1) * layers + layers - one.layer
        return min(computed, begin + launched * self.launch)

    def _reduce(
        self, job: TrainingJob, timeline: Timeline, waiting: list[tuple[float, Gradient]]
    ) -> list[int]:
        """Add the cycles until all gradients are reduced; return the last call.

        waiting     gradients in the order of computation, each with the moment of its announcement
        """
        threshold = self.buffer_bytes(job)
        start, last = self._cycle_after(waiting[0][0]), list[int]()
        while waiting and job.ranks > 1:
            here = [one for moment, one in waiting if moment <= start]
            waiting = waiting[len(here) :]
            agreed = start + self._agreement(job.ranks, len(here))
            for bucket in fill_buckets(here, threshold):
                last = [self._reduce_bucket(job, timeline, bucket, agreed)]
            computed = timeline.ready([one.made_by for one in here])
            ended = timeline.ready(last) if self.blocking else computed
            start = max(start + self.cycle_time, agreed, ended)
            if waiting and waiting[0][0] > start:
                start = self._cycle_after(waiting[0][0])
        return last

    def _cycle_after(self, moment: float) -> float:
        """Return the start of the first cycle after a moment, in seconds."""
        if not self.cycle_time:
            return moment
        return max(moment, math.ceil(moment / self.cycle_time) * self.cycle_time)

    def buffer_bytes(self, job: TrainingJob) -> int:
        """Return the bytes of the fusion buffer: the threshold, rounded up."""
        unit = job.times.placement.shape[1] * 8 * ALIGNMENT
        return -(-self.fusion_threshold // unit) * unit

    def _agreement(self, ranks: int, tensors: int) -> float:
        """Return the seconds in which the ranks agree on some tensors."""
        combined = self.round_trip * math.log2(ranks)
        return combined if self.cache else combined + ranks * tensors * self.request

    def _reduce_bucket(
        self, job: TrainingJob, timeline: Timeline, bucket: Sequence[Gradient], agreed: float
    ) -> int:
        nbytes = sum(one.nbytes for one in bucket)
        made = [one.made_by for one in bucket]
        if len(bucket) > 1:
            made = [job.add_copy(timeline, nbytes, made, not_before=agreed)]
        if self.hierarchical:
            called = add_hierarchical_allreduce(job, timeline, nbytes, made, agreed)
        else:
            called = job.add_call(timeline, Collective.ALLREDUCE, nbytes, made, not_before=agreed)
        return job.add_copy(timeline, nbytes, [called]) if len(bucket) > 1 else called


def add_hierarchical_allreduce(
    job: TrainingJob, timeline: Timeline, nbytes: int, after: Sequence[int], not_before: float = 0.0
) -> int:
    """Add a reduce-scatter on each node, allreduces across nodes, and an allgather on each node."""
    nodes, ppn = job.times.placement.shape
    local, across = Group(ppn), Group(nodes, ppn)
    scattered = job.add_call(
        timeline, Collective.REDUCE_SCATTER, nbytes, after, local, not_before=not_before
    )
    share = -(-nbytes // ppn)
    reduced = job.add_call(timeline, Collective.ALLREDUCE, share, [scattered], across)
    return job.add_call(timeline, Collective.ALLGATHER, nbytes, [reduced], local)


@dataclass(frozen=True)
class Ddp(Framework):
    """PyTorch's DistributedDataParallel: fixed buckets, each reduced when it is complete.

    order           BACKWARD_ORDER: buckets hold the tensors in the order in which gradients are
                    computed; FORWARD_ORDER: in the order of the model, as if it ran backwards
                    from the wrong end
    """

    bucket: Size = 25 * MIB
    first_bucket: Size = MIB
    order: Annotated[str, one_of(BUCKET_ORDERS)] = BACKWARD_ORDER

    def add_iteration(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        slowdown = job.slowdown(timeline)
        gradients = job.add_passes(timeline, ready, slowdown)
        calls = []
        for bucket in self.buckets(gradients):
            nbytes = sum(one.nbytes for one in bucket)
            copied = job.add_copy(timeline, nbytes, [one.made_by for one in bucket])
            calls.append(job.add_call(timeline, Collective.ALLREDUCE, nbytes, [copied]))
        updated = job.add_update(timeline, calls, slowdown)
        return [updated] * len(job.model.layers)

    def buckets(self, gradients: Sequence[Gradient]) -> Iterator[list[Gradient]]:
        """Yield the buckets in the order in which they are reduced.

        A bucket is complete with the tensor that takes it to its limit or beyond.
        """
        ordered = gradients if self.order == BACKWARD_ORDER else gradients[::-1]
        limit, bucket, held = self.first_bucket, list[Gradient](), 0
        for one in ordered:
            bucket.append(one)
            held += one.nbytes
            if held >= limit:
                yield bucket
                limit, bucket, held = self.bucket, [], 0
        if bucket:
            yield bucket
