"""The passes of a pipeline's stages over microbatches, and the messages between the stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tuner.training.frameworks.pipeline_schedule import PipelineSchedule, Step
from tuner.training.groups import Call
from tuner.training.job import TrainingJob
from tuner.training.recorded import COMPUTE
from tuner.training.timeline import BACKWARD, CALL, FORWARD, Timeline


class StageWork(NamedTuple):
    """The numbers of a step of a stage that are the same for all microbatches.

    compute     seconds that a rank computes
    calls       calls that the ranks of the stage wait for, each with how often it is made
    """

    compute: float
    calls: tuple[tuple[Call, int], ...]


class ReducedPart(NamedTuple):
    """A part of a pass, and a function that adds the reduction of its gradients after it."""

    work: StageWork
    add_reduction: Callable[[int], Iterable[int]]


class PipelinePasses:
    """The steps of all stages, which are added to a timeline as soon as what they wait for is.

    before      operations before which no step begins
    message     message from a stage to the next one
    work        what a stage does in a step, by stage, chunk and phase
    last_parts  returns the parts of the last backward pass of a stage over a chunk, each with a
                function that adds the reduction of its gradients after an operation; None where
                gradients are reduced after the passes
    """

    def __init__(
        self,
        order: PipelineSchedule,
        job: TrainingJob,
        timeline: Timeline,
        before: Sequence[int],
        message: Call,
        work: Mapping[tuple[int, int, str], StageWork],
        last_parts: Callable[[int, int], Iterable[ReducedPart]] | None,
    ) -> None:
        self._order, self._job, self._timeline = order, job, timeline
        self._before, self._message, self._work = before, message, work
        self._last_parts = last_parts
        self.reduced: list[int] = []  # calls that reduce gradients during the passes
        self._arrivals: dict[tuple[int, Step], int] = {}
        self._last = order.stages * order.chunks - 1

    def add(self) -> list[int]:
        """Add all steps; return the last operation of each stage."""
        stages = range(self._order.stages)
        waiting = [self._order.steps(stage, self._job.passes)[::-1] for stage in stages]
        ended = [0] * len(waiting)
        while any(waiting):
            for stage in stages:
                while waiting[stage] and self._is_ready(stage, waiting[stage][-1]):
                    ended[stage] = self._add_step(stage, waiting[stage].pop())
        return ended

    def _is_ready(self, stage: int, step: Step) -> bool:
        return self._starts(stage, step) or (stage, step) in self._arrivals

    def _starts(self, stage: int, step: Step) -> bool:
        """Return whether a step waits for no other stage."""
        number = step.chunk * self._order.stages + stage
        return number == (0 if step.phase == FORWARD else self._last)

    def _add_step(self, stage: int, step: Step) -> int:
        """Add the operations of a step and its message to the next stage; return the last one."""
        after = [*self._before]
        if not self._starts(stage, step):
            after = [self._arrivals.pop((stage, step))]
        is_last = step.phase == BACKWARD and step.microbatch == self._job.passes - 1
        if is_last and self._last_parts is not None:
            ended = self._add_reducing(stage, step, after, self._last_parts(stage, step.chunk))
        else:
            ended = self._add_work(stage, step, self._work[stage, step.chunk, step.phase], after)
        self._send(stage, step, ended)
        return ended

    def _add_work(self, stage: int, step: Step, own: StageWork, after: Sequence[int]) -> int:
        """Add the computation of a step and the calls in it; return the last operation."""
        stream, name = _stream_of(stage), f"{step.phase} {step.microbatch}"
        ended = self._timeline.add(name, stream, step.phase, own.compute, after)
        for call, count in own.calls:
            ended = add_call(self._timeline, self._job, stream, call, [], count)
        return ended

    def _add_reducing(
        self, stage: int, step: Step, after: Sequence[int], parts: Iterable[ReducedPart]
    ) -> int:
        """Add the last backward pass over a chunk, which reduces gradients as they are computed."""
        ended = 0
        for part in parts:
            ended = self._add_work(stage, step, part.work, after)
            self.reduced += part.add_reduction(ended)
        return ended

    def _send(self, stage: int, step: Step, after: int) -> None:
        """Add the message to the stage that goes on with the microbatch."""
        pipeline = self._order.stages
        number = step.chunk * pipeline + stage
        if number == (self._last if step.phase == FORWARD else 0):
            return
        chunk, to = divmod(number + (1 if step.phase == FORWARD else -1), pipeline)
        stream = f"stage {stage} {step.phase} messages"
        sent = add_call(self._timeline, self._job, stream, self._message, [after])
        self._arrivals[to, Step(step.phase, chunk, step.microbatch)] = sent


def _stream_of(stage: int) -> str:
    """Return the stream of a stage: that of the first one stands for all where one is asked for."""
    return f"stage {stage}" if stage else COMPUTE


def add_call(
    timeline: Timeline,
    job: TrainingJob,
    stream: str,
    call: Call,
    after: Sequence[int],
    count: int = 1,
) -> int:
    """Add `count` equal calls, one after another, as one operation; return it."""
    seconds = count * job.times.seconds(call)
    return timeline.add(call.operation, stream, CALL, seconds, after, call=call, count=count)
