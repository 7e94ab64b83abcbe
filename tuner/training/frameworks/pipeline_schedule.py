"""The order in which the stages of a pipeline work on microbatches.

Source: D. Narayanan et al. (arXiv 2104.04473): the schedules 1F1B and interleaved 1F1B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tuner.training.timeline import BACKWARD, FORWARD

ONE_F_ONE_B, GPIPE = SCHEDULES = ("1f1b", "gpipe")


class Step(NamedTuple):
    """A pass of a stage over one of its chunks of layers, for one microbatch."""

    phase: str
    chunk: int
    microbatch: int


@dataclass(frozen=True)
class PipelineSchedule:
    """The schedule of a pipeline.

    stages      number of stages
    chunks      chunks of layers of each stage
    name        one of SCHEDULES
    """

    stages: int
    chunks: int
    name: str

    def steps(self, stage: int, microbatches: int) -> list[Step]:
        count = microbatches * self.chunks
        forward = [self._step(FORWARD, number) for number in range(count)]
        backward = [self._step(BACKWARD, number) for number in range(count)]
        ahead = min(count, self._warm_up(stage)) if self.name == ONE_F_ONE_B else count
        steps = forward[:ahead]
        for one, other in zip(forward[ahead:], backward, strict=False):
            steps += [one, other]
        return steps + backward[count - ahead :]

    def kept_passes(self, stage: int, microbatches: int) -> int:
        """Return how many forward passes over a chunk a stage keeps activations of."""
        count = microbatches * self.chunks
        return min(count, self._warm_up(stage) + 1) if self.name == ONE_F_ONE_B else count

    def _warm_up(self, stage: int) -> int:
        """Return the number of forward passes before the first backward pass."""
        behind = self.stages - stage - 1
        if self.chunks == 1:
            return behind
        return 2 * behind + (self.chunks - 1) * self.stages

    def _step(self, phase: str, number: int) -> Step:
        """Return the step of a number: the chunks take turns after each `stages` microbatches."""
        if self.chunks == 1:
            return Step(phase, 0, number)
        turn, within = divmod(number, self.stages * self.chunks)
        chunk, offset = divmod(within, self.stages)
        if phase == BACKWARD:
            chunk = self.chunks - 1 - chunk
        return Step(phase, chunk, turn * self.stages + offset)
