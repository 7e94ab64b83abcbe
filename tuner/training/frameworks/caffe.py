"""Designs by Ohio State University: S-Caffe, SHM-Learn-Dist, OC-Caffe, and broadcasts of CNTK.

Sources: A. A. Awan et al., S-Caffe (PPoPP 2017); SHM-Learn-Dist; A. A. Awan et al., Efficient
large message broadcast using NCCL and CUDA-aware MPI (EuroMPI 2016, arXiv 1707.09414).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tuner.base.errors import InputError
from tuner.base.file_settings import Count, Flag, Rate, Size, one_of
from tuner.core.collective import Collective
from tuner.training.frameworks.framework import Framework
from tuner.training.frameworks.framework_constants import constant_rate
from tuner.training.job import TrainingJob
from tuner.training.recorded import COMPUTE
from tuner.training.timeline import COPY, UPDATE, Timeline

GRADIENTS, WEIGHTS = AVERAGES = ("gradients", "weights")


@dataclass(frozen=True)
class SCaffe(Framework):
    """S-Caffe: the root broadcasts each layer before its forward pass and reduces its gradients.

    A helper thread reduces the gradients of a layer while the backward pass goes on; the root alone
    updates the parameters.

    overlapped      whether calls overlap with computation; if not, all parameters are broadcast
                    before the iteration and all gradients reduced after it, as before S-Caffe
    """

    overlapped: Flag = True

    def add_iteration(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        slowdown = job.slowdown(timeline)
        received = self._broadcast(job, timeline, ready)
        gradients = job.add_passes(timeline, received, slowdown)
        made = {one.layer: one.made_by for one in gradients}
        if not self.overlapped:
            made = dict.fromkeys(made, min(made.values(), key=lambda at: -at))
        reduced = [
            job.add_call(
                timeline,
                Collective.REDUCE,
                job.model.layers[layer].elements * job.gradient_bytes,
                [made[layer]],
            )
            for layer in made
        ]
        updated = job.add_update(timeline, reduced, slowdown)
        return [updated] * len(job.model.layers)

    def _broadcast(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        """Add the broadcasts of all layers; return the operation after which each can be used."""
        received: list[int | None] = []
        for layer, before in enumerate(ready):
            after = [] if before is None else [before]
            nbytes = job.layer_bytes(layer)
            received.append(job.add_call(timeline, Collective.BCAST, nbytes, after))
        return received if self.overlapped else [received[-1]] * len(received)


@dataclass(frozen=True)
class GatherAverage(Framework):
    """SHM-Learn-Dist: gradients or weights are gathered, averaged at a root, and broadcast.

    Everything goes through host memory and nothing overlaps with computation.

    averages        what is averaged, GRADIENTS or WEIGHTS: weights are averaged after each
                    rank's own update
    host_rate       bytes per second of copies between GPU and host memory
    average_rate    bytes per second at which the root adds up what it gathered
    """

    averages: Annotated[str, one_of(AVERAGES)] = GRADIENTS
    host_rate: Rate = constant_rate("shm-learn-dist", "host_rate")
    average_rate: Rate = constant_rate("shm-learn-dist", "average_rate")

    def add_iteration(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        slowdown = job.slowdown(timeline)
        last = [job.add_passes(timeline, ready, slowdown)[-1].made_by]
        if self.averages == WEIGHTS:
            last = [job.add_update(timeline, last, slowdown)]
        if job.ranks > 1:
            last = [self._average(job, timeline, last)]
        if self.averages == GRADIENTS:
            last = [job.add_update(timeline, last, slowdown)]
        return [last[0]] * len(job.model.layers)

    def _average(self, job: TrainingJob, timeline: Timeline, after: Sequence[int]) -> int:
        """Add the copies, the gather, the sum at the root, and the broadcast; return the last."""
        nbytes = job.model.elements * job.gradient_bytes
        whole = job.ranks * nbytes
        copied = timeline.add("copy to host", COMPUTE, COPY, nbytes / self.host_rate, after)
        gathered = job.add_call(timeline, Collective.GATHER, whole, [copied])
        summed = timeline.add("average", COMPUTE, UPDATE, whole / self.average_rate, [gathered])
        sent = job.add_call(timeline, Collective.BCAST, nbytes, [summed])
        return timeline.add("copy to GPU", COMPUTE, COPY, nbytes / self.host_rate, [sent])


@dataclass(frozen=True)
class OutOfCore(Framework):
    """OC-Caffe: a model that does not fit into the memory of a GPU is trained from host memory.

    What is beyond the memory crosses the link to the host twice in an iteration, out and in.

    memory          bytes of the memory of a GPU; 0: those of the machine's GPUs
    link_rate       bytes per second between GPU and host memory
    fault_rate      bytes per second if pages move one by one when they are touched
    optimized       whether data are moved ahead of their use, beside the computation; if not, a GPU
                    waits for each page (naive unified memory)
    """

    memory: Size = 0
    link_rate: Rate = constant_rate("oc-caffe", "link_rate")
    fault_rate: Rate = constant_rate("oc-caffe", "fault_rate")
    optimized: Flag = True

    def add_iteration(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        """Add an iteration; return the operation after which each layer can be used again.

        Raises InputError where it is not known how much memory a GPU has.
        """
        slowdown = job.slowdown(timeline)
        memory = self.memory or job.device_memory
        if not memory:
            raise InputError(
                "oc-caffe: how much memory a GPU has here is not known: give `memory`, such as"
                " 16GiB"
            )
        beyond = max(0.0, footprint(job) - memory)
        stream = "host link" if self.optimized else COMPUTE
        rate = self.link_rate if self.optimized else self.fault_rate
        moved = timeline.add("out of core", stream, COPY, 2 * beyond / rate)
        gradients = job.add_passes(timeline, ready, slowdown)
        calls = [
            job.add_call(timeline, Collective.ALLREDUCE, one.nbytes, [one.made_by])
            for one in gradients
        ]
        updated = job.add_update(timeline, [*calls, moved], slowdown)
        return [updated] * len(job.model.layers)


def footprint(job: TrainingJob) -> int:
    """Return the bytes that training holds in memory.

    These are parameters, gradients and momentum, and activations with their gradients.
    """
    activations = sum(layer.activations for layer in job.model.layers) * job.samples
    return 4 * (3 * job.model.elements + 2 * activations)


@dataclass(frozen=True)
class BroadcastExchange(Framework):
    """CNTK: every rank broadcasts its share of the gradients in turn, as in VGG training there.

    shares          broadcasts per iteration; 0: one for each tensor, with roots in turn
    """

    shares: Count = 0

    def add_iteration(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        slowdown = job.slowdown(timeline)
        gradients = job.add_passes(timeline, ready, slowdown)
        last = gradients[-1].made_by
        nbytes = [one.nbytes for one in gradients]
        if self.shares:
            nbytes = [sum(nbytes) // self.shares] * self.shares
        calls = [
            job.add_call(timeline, Collective.REDUCE_SCATTER, sum(nbytes), [last]),
            *(job.add_call(timeline, Collective.BCAST, own, [last]) for own in nbytes),
        ]
        updated = job.add_update(timeline, calls, slowdown)
        return [updated] * len(job.model.layers)
