"""Predictions of training, made step by step in workers and streamed as lines of JSON.

A worker keeps the last questions with what was predicted for them, so that the steps of an answer
may be carried out by different workers.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tuner.api.live_answers import MAX_ANSWER_SECONDS, STEP_SECONDS, run_long, run_step
from tuner.api.service import Service

if TYPE_CHECKING:
    from tuner.training.live_training import LiveTraining

MAX_CACHED_QUESTIONS = 16  # per worker, each with one iteration
SMALL_TRAINING = {
    "topology": "preset:dgx-a100",
    "model": "resnet50",
    "batch": 64,
    "framework": "horovod",
    "ranks": [16],
    "detail": 16,
    "vary": {},
}
Line = dict[str, Any]


async def begin_prediction(service: Service, key: str, question: str) -> TrainingAnswer:
    """Predict what is shown first; raise InputError for what cannot be predicted.

    key         under which the answer is kept once it is whole
    question    the JSON of the record that `LiveTraining` takes
    """
    first = await run_step(service, _first_lines, question)
    return TrainingAnswer(service, key, question, first)


async def training_trace(service: Service, question: str) -> str:
    """Return the trace of the iteration that a question shows in detail."""
    return await run_long(service, _trace, question)


class TrainingAnswer:
    """An answer of which the first lines are known and the rest is still to be computed."""

    def __init__(self, service: Service, key: str, question: str, first: list[Line]) -> None:
        self._service, self._key, self._question, self._first = service, key, question, first

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of the answer, and keep it once it is whole."""
        sent = []
        async for line in self._lines():
            sent.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            yield sent[-1]
        if not line["skipped"]:
            self._service.answers.add(self._key, b"".join(sent))

    async def _lines(self) -> AsyncIterator[Line]:
        for line in self._first:
            yield line
        begun, step, left = time.monotonic(), 1, True
        while left and time.monotonic() - begun < MAX_ANSWER_SECONDS:
            step, left, lines = await run_step(self._service, _lines, self._question, step)
            for line in lines:
                yield line
        skipped = await run_step(self._service, _names, self._question, step) if left else []
        yield {"kind": "end", "skipped": skipped}


def predict_small_training() -> None:
    """Answer a small question, which loads all that others need."""
    _first_lines(json.dumps(SMALL_TRAINING))


@lru_cache(MAX_CACHED_QUESTIONS)
def _live_training(question: str) -> LiveTraining:
    from tuner.training.live_training import LiveTraining

    return LiveTraining(json.loads(question))


def _first_lines(question: str) -> list[Line]:
    training = _live_training(question)
    return [training.outline(), training.first_line()]


def _lines(question: str, step: int) -> tuple[int, bool, list[Line]]:
    """Return the number of the next step, whether there is one, and the lines of some steps."""
    training = _live_training(question)
    following, lines = training.lines(step, STEP_SECONDS)
    return following, following < len(training.steps), lines


def _names(question: str, step: int) -> list[str]:
    return _live_training(question).names(step)


def _trace(question: str) -> str:
    return _live_training(question).trace()
