"""A training job: what every rank computes, and what the ranks exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.core.collective import Collective
from tuner.training.call_times import CallTimes
from tuner.training.groups import Call, Group
from tuner.training.model import Model
from tuner.training.recorded import COMMUNICATION, COMPUTE
from tuner.training.timeline import BACKWARD, CALL, COPY, FORWARD, UPDATE, Timeline


@dataclass(frozen=True)
class Gradient:
    """The gradient of a tensor: its bytes, and the operation that computes it."""

    name: str
    layer: int
    nbytes: int
    made_by: int


@dataclass(frozen=True)
class TrainingJob:
    """A job in which all ranks train the same model on samples of their own.

    forward, backward   seconds of each layer for the samples of one pass, shape (layers,)
    update              seconds of the optimizer for all parameters
    gradient_bytes      bytes of an element of a gradient as it is exchanged
    parameter_bytes     bytes of an element of a parameter as it is exchanged
    copy_rate           bytes per second of a copy within the memory of a rank
    passes              forward and backward passes of an iteration (gradient accumulation)
    noise               relative standard deviation of the compute time of a rank, drawn anew for
                        each rank and iteration
    samples             samples of a rank and pass
    device_memory       bytes of the memory of a rank's GPU, 0 where that is not known
    """

    model: Model
    forward: FloatArray
    backward: FloatArray
    update: float
    times: CallTimes
    gradient_bytes: int = 4
    parameter_bytes: int = 4
    copy_rate: float = float("inf")
    passes: int = 1
    noise: float = 0.0
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    samples: int = 1
    device_memory: float = 0.0

    @property
    def ranks(self) -> int:
        return self.times.placement.p

    @property
    def compute(self) -> float:
        """Seconds that a rank computes in an iteration, without noise."""
        return self.passes * float(self.forward.sum() + self.backward.sum()) + self.update

    def slowdown(self, timeline: Timeline) -> FloatArray:
        """Draw the factor of the compute time of each rank, shape (ranks of the timeline,)."""
        if not self.noise:
            return np.ones(timeline.ranks)
        drawn = self.random.standard_normal(timeline.ranks)
        factor: FloatArray = np.exp(self.noise * drawn - self.noise**2 / 2)
        return factor

    def layer_bytes(self, layer: int) -> int:
        """Return the bytes of the parameters of a layer."""
        return self.model.layers[layer].elements * self.parameter_bytes

    def add_passes(
        self, timeline: Timeline, ready: Sequence[int | None], slowdown: FloatArray
    ) -> list[Gradient]:
        """Add all forward and backward passes; return the gradients in the order of computation.

        ready       operation after which the parameters of each layer can be used
        """
        made: list[int] = []
        for number in range(self.passes):
            first = ready if number == 0 else [None] * len(ready)
            self.add_forward(timeline, first, slowdown)
            made = self.add_backward(timeline, slowdown)
        return self.gradients(made)

    def add_forward(
        self, timeline: Timeline, ready: Sequence[int | None], slowdown: FloatArray
    ) -> None:
        for layer, first, seconds in zip(self.model.layers, ready, self.forward, strict=True):
            after = () if first is None else (first,)
            timeline.add(layer.name, COMPUTE, FORWARD, seconds * slowdown, after)

    def add_backward(self, timeline: Timeline, slowdown: FloatArray) -> list[int]:
        """Add the backward pass; return the operation of each layer."""
        made = [
            timeline.add(layer.name, COMPUTE, BACKWARD, seconds * slowdown)
            for layer, seconds in zip(self.model.layers[::-1], self.backward[::-1], strict=True)
        ]
        return made[::-1]

    def gradients(self, made: Sequence[int]) -> list[Gradient]:
        """Return the gradients in the order in which they are computed.

        made        operation that computes the gradients of each layer
        """
        return [
            Gradient(tensor.name, number, tensor.elements * self.gradient_bytes, made[number])
            for number in reversed(range(len(self.model.layers)))
            for tensor in reversed(self.model.layers[number].tensors)
        ]

    def add_update(
        self,
        timeline: Timeline,
        after: Sequence[int],
        slowdown: FloatArray | float = 1.0,
        share: float = 1.0,
    ) -> int:
        """Add the optimizer's update of a share of the parameters; return its operation."""
        return timeline.add("update", COMPUTE, UPDATE, self.update * share * slowdown, after)

    def add_call(
        self,
        timeline: Timeline,
        collective: Collective,
        nbytes: int,
        after: Sequence[int] = (),
        group: Group | None = None,
        not_before: float = 0.0,
        stream: str = COMMUNICATION,
    ) -> int:
        """Add a call of a collective on all ranks, or on the groups of a kind; return it."""
        call = Call(collective.value, nbytes, group or self.times.world)
        before = timeline.call_before(stream, after, not_before)
        seconds = self.times.seconds_after(before, call)
        return timeline.add(collective.value, stream, CALL, seconds, after, not_before, call)

    def add_copy(
        self, timeline: Timeline, nbytes: int, after: Sequence[int] = (), not_before: float = 0.0
    ) -> int:
        """Add a copy of bytes in the memory of a rank to the communication stream; return it.

        A rank alone has nothing to exchange and copies nothing.
        """
        seconds = 2 * nbytes / self.copy_rate if self.ranks > 1 else 0.0  # read and written
        return timeline.add("copy", COMMUNICATION, COPY, seconds, after, not_before)
