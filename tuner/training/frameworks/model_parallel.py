"""Tensor, pipeline and expert parallelism of transformers, as in Megatron-LM.

A rank has a share of every matrix (tensor parallelism) of some of the blocks (pipeline
parallelism); such a replica of the model exists several times (data parallelism). With experts,
these are divided over ranks of different replicas (expert parallelism).

If the head uses the embedding of tokens, both the first and the last stage have it, and they add up
its gradients.

Sources: M. Shoeybi et al. (arXiv 1909.08053): two allreduces per block and pass; D. Narayanan et
al. (arXiv 2104.04473): the schedules 1F1B and interleaved 1F1B, and messages between stages of
which each tensor-parallel rank sends its part; V. Korthikanti et al. (arXiv 2205.05198): sequence
parallelism and recomputed activations; D. Lepikhin et al. (arXiv 2006.16668): all-to-all exchanges
of tokens before and after the experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tuner.training.frameworks.framework import Framework
from tuner.training.frameworks.parallel_settings import ParallelSettings
from tuner.training.frameworks.pipeline_passes import PipelinePasses, ReducedPart
from tuner.training.frameworks.stage_gradients import (
    gather_parameters,
    gradient_buckets,
    reduce_embedding,
    reduce_gradients,
    updated_elements,
)
from tuner.training.frameworks.stage_work import expert_loads, stage_message, stage_work
from tuner.training.job import TrainingJob
from tuner.training.timeline import BACKWARD, FORWARD, Timeline


@dataclass(frozen=True)
class ModelParallel(ParallelSettings, Framework):
    """Megatron-LM: a transformer that is divided over ranks.

    The samples of a pass are a microbatch; the passes of an iteration are its microbatches.
    """

    def compute_seconds(self, job: TrainingJob) -> float:
        """Return the seconds that a rank computes in an iteration, as the mean of all stages.

        Of the ranks that hold experts it is the one with most tokens.
        """
        load = expert_loads(self, job, range(len(job.model.layers)))
        forward, backward = (float((one * load).sum()) for one in (job.forward, job.backward))
        passes = job.passes * (forward * (2 if self.recompute else 1) + backward)
        updated = updated_elements(self, job.model, self.replicas(job))
        share = sum(updated) / self.pipeline / job.model.elements
        return passes / self.replica_ranks + job.update * share

    def add_iteration(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        """Add an iteration; return the operation after which each layer can be used again.

        Raises InputError for a model that cannot be divided like this.
        """
        self.check(job)
        before = [one for one in ready[:1] if one is not None]
        pipeline = self._passes(job, timeline, before)
        ended = pipeline.add()
        reduced = pipeline.reduced or [
            operation
            for stage in range(self.pipeline)
            for operation in reduce_gradients(
                self, job, timeline, stage, self.layers_of_stage(job.model, stage), ended[stage]
            )
        ]
        reduced += reduce_embedding(self, job, timeline, reduced)
        updated = updated_elements(self, job.model, self.replicas(job))
        share = max(updated) / job.model.elements
        last = [job.add_update(timeline, reduced, share=share)]
        if self.distributed:
            last = [
                gather_parameters(self, job, timeline, stage, last[0])
                for stage in range(self.pipeline)
            ]
        latest = max(last, key=lambda at: timeline.operations[at].end[0])
        return [latest] * len(job.model.layers)

    def _passes(
        self, job: TrainingJob, timeline: Timeline, before: Sequence[int]
    ) -> PipelinePasses:
        """Return the passes of all stages, which are to be added to a timeline."""
        work = {
            (stage, chunk, phase): stage_work(
                self, job, self.layers_of(job.model, stage, chunk), phase
            )
            for stage in range(self.pipeline)
            for chunk in range(self.interleaved)
            for phase in (FORWARD, BACKWARD)
        }

        def last_parts(stage: int, chunk: int) -> Iterator[ReducedPart]:
            for layers in gradient_buckets(self, job, stage, chunk):
                reduce = partial(reduce_gradients, self, job, timeline, stage, layers)
                yield ReducedPart(stage_work(self, job, layers, BACKWARD), reduce)

        return PipelinePasses(
            self.order,
            job,
            timeline,
            before,
            stage_message(self, job),
            work,
            last_parts if self.overlapped else None,
        )
