"""ZeRO and FSDP: optimizer state, gradients and parameters are divided over the ranks.

Source: S. Rajbhandari et al., ZeRO (arXiv 1910.02054); Y. Zhao et al., PyTorch FSDP
(arXiv 2304.11277), which is stage 3 with a unit of parameters for each block of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError
from tuner.base.file_settings import Count, Size
from tuner.core.collective import Collective
from tuner.training.frameworks.framework import Framework
from tuner.training.frameworks.fusion import MIB, Ddp
from tuner.training.job import TrainingJob
from tuner.training.recorded import COMPUTE
from tuner.training.timeline import BACKWARD, FORWARD, Timeline

STAGES = (1, 2, 3)


@dataclass(frozen=True)
class Zero(Framework):
    """ZeRO of stage 1, 2 or 3.

    Stage 1 reduces all gradients on all ranks and gathers the updated parameters; stage 2 leaves
    each rank its share of the gradients; stage 3 gathers the parameters of a unit before each pass
    over it and drops them afterwards.

    bucket          bytes of gradients that are reduced at once; in stage 3 least bytes of a unit
    prefetch        units whose parameters are gathered ahead of their use in stage 3
    """

    stage: Count = 1
    bucket: Size = 25 * MIB
    prefetch: Count = 1

    def __post_init__(self) -> None:
        if self.stage not in STAGES:
            raise InputError(f"ZeRO has the stages 1, 2 and 3, not {self.stage}")

    def compute_seconds(self, job: TrainingJob) -> float:
        """Return the seconds of a rank, over all of which the update is divided."""
        return job.compute - job.update * (1 - 1 / job.ranks)

    def add_iteration(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        slowdown = job.slowdown(timeline)
        if self.stage == 3:
            return self._add_gathering(job, timeline, ready, slowdown)
        gradients = job.add_passes(timeline, ready, slowdown)
        collective = Collective.ALLREDUCE if self.stage == 1 else Collective.REDUCE_SCATTER
        calls = [
            job.add_call(
                timeline, collective, sum(one.nbytes for one in bucket), [bucket[-1].made_by]
            )
            for bucket in Ddp(self.bucket, self.bucket).buckets(gradients)
        ]
        updated = job.add_update(timeline, calls, slowdown, share=1 / job.ranks)
        return self._gather_updated(job, timeline, updated)

    def _gather_updated(
        self, job: TrainingJob, timeline: Timeline, updated: int
    ) -> list[int | None]:
        """Add the allgathers of updated parameters in the order of the forward pass."""
        ready: list[int | None] = [None] * len(job.model.layers)
        for unit in self.units(job):
            nbytes = sum(job.layer_bytes(layer) for layer in unit)
            gathered = job.add_call(timeline, Collective.ALLGATHER, nbytes, [updated])
            for layer in unit:
                ready[layer] = gathered
        return ready

    def units(self, job: TrainingJob) -> Iterator[list[int]]:
        """Yield the layers of each unit, in the order of the forward pass."""
        unit, held = list[int](), 0
        for layer in range(len(job.model.layers)):
            unit.append(layer)
            held += job.layer_bytes(layer)
            if held >= self.bucket:
                yield unit
                unit, held = [], 0
        if unit:
            yield unit

    def _add_gathering(
        self,
        job: TrainingJob,
        timeline: Timeline,
        ready: Sequence[int | None],
        slowdown: FloatArray,
    ) -> list[int | None]:
        """Add an iteration of stage 3, in which every pass gathers the parameters."""
        units = list(self.units(job))
        reduced = [at for at in ready[:1] if at is not None]
        for number in range(job.passes):
            self._add_pass(job, timeline, units, reduced, slowdown, FORWARD)
            last = number == job.passes - 1
            reduced = self._add_pass(
                job, timeline, units[::-1], [], slowdown, BACKWARD, reduces=last
            )
        updated = job.add_update(timeline, reduced, slowdown, share=1 / job.ranks)
        return [updated] * len(job.model.layers)

    def _add_pass(
        self,
        job: TrainingJob,
        timeline: Timeline,
        units: Sequence[Sequence[int]],
        before: list[int],
        slowdown: FloatArray,
        phase: str,
        *,
        reduces: bool = False,
    ) -> list[int]:
        """Add one pass over all units; return the calls that reduce its gradients.

        before      operations before which no parameter can be gathered
        """
        done, reduced = list[int](), list[int]()
        for at, unit in enumerate(units):
            used = done[at - 1 - self.prefetch : at - self.prefetch] if at > self.prefetch else []
            nbytes = sum(job.layer_bytes(layer) for layer in unit)
            gathered = job.add_call(timeline, Collective.ALLGATHER, nbytes, [*before, *used])
            done.append(_add_unit(job, timeline, unit, gathered, slowdown, phase))
            if reduces and at:
                reduced.append(self._reduce(job, timeline, units[at - 1], done[at - 1]))
        if reduces:
            reduced.append(self._reduce(job, timeline, units[-1], done[-1]))
        return reduced

    def _reduce(self, job: TrainingJob, timeline: Timeline, unit: Sequence[int], after: int) -> int:
        elements = sum(job.model.layers[layer].elements for layer in unit)
        nbytes = elements * job.gradient_bytes
        return job.add_call(timeline, Collective.REDUCE_SCATTER, nbytes, [after])


def _add_unit(
    job: TrainingJob,
    timeline: Timeline,
    unit: Sequence[int],
    gathered: int,
    slowdown: FloatArray,
    phase: str,
) -> int:
    """Add the computation of the layers of a unit; return the last one."""
    times = job.forward if phase == FORWARD else job.backward
    seconds = float(times[list(unit)].sum()) * slowdown
    names = [job.model.layers[layer].name for layer in unit]
    name = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    return timeline.add(name, COMPUTE, phase, seconds, [gathered])
