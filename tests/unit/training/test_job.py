"""Jobs against the recursion of the MG-WFBP study, which is independent of the timeline."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tuner.core.collective import Collective
from tuner.training.call_times import CallTimes
from tuner.training.groups import Call, Group
from tuner.training.job import TrainingJob
from tuner.training.model import SECONDS, Model, ModelLayer, Tensor
from tuner.training.recorded import COMPUTE
from tuner.training.timeline import Timeline

MOMENT = st.integers(0, 1 << 20).map(float)  # sums of integers are exact


class GivenTimes:
    """Times of calls by their bytes."""

    world = Group(4)

    def __init__(self, seconds: dict[int, float]) -> None:
        self.by_bytes = seconds

    def seconds_after(self, _before: Call | None, call: Call) -> float:
        return self.by_bytes[call.nbytes]


def job_of(forward: list[float], backward: list[float], communication: list[float]) -> TrainingJob:
    layers = tuple(
        ModelLayer(f"l{i}", forward[i] + 1, backward[i], (Tensor(f"l{i}", i + 1),))
        for i in range(len(forward))
    )
    times = GivenTimes({4 * (i + 1): seconds for i, seconds in enumerate(communication)})
    return TrainingJob(
        Model("made up", layers, SECONDS),
        np.array(forward) + 1,
        np.array(backward),
        3.0,
        cast(CallTimes, times),
    )


def exposed(backward: list[float], communication: list[float]) -> float:
    """The recursion: seconds of communication after the end of the backward pass.

    Source: S. Shi et al., MG-WFBP (INFOCOM 2019), equations of its optimiser
    """
    last = len(backward) - 1
    computed = [0.0] * len(backward)
    for layer in reversed(range(last)):
        computed[layer] = computed[layer + 1] + backward[layer + 1]
    begins = [0.0] * len(backward)
    begins[last] = computed[last] + backward[last]
    for layer in reversed(range(last)):
        begins[layer] = max(
            begins[layer + 1] + communication[layer + 1], computed[layer] + backward[layer]
        )
    return begins[0] + communication[0] - (computed[0] + backward[0])


@given(st.lists(st.tuples(MOMENT, MOMENT, MOMENT), min_size=1, max_size=12))
@settings(max_examples=examples(200))
def test_a_call_for_each_layer_takes_the_time_of_the_recursion(
    rows: list[tuple[float, float, float]],
) -> None:
    forward, backward, communication = (list(column) for column in zip(*rows, strict=True))
    job, timeline = job_of(forward, backward, communication), Timeline()
    gradients = job.add_passes(timeline, [None] * len(rows), job.slowdown(timeline))
    calls = [
        job.add_call(timeline, Collective.ALLREDUCE, one.nbytes, [one.made_by]) for one in gradients
    ]
    job.add_update(timeline, calls)
    passes = sum(forward) + len(rows) + sum(backward)
    assert timeline.end_of(COMPUTE) == passes + exposed(backward, communication) + 3.0


def test_gradients_are_computed_from_the_last_layer_on() -> None:
    job, timeline = job_of([1.0, 1.0], [2.0, 5.0], [0.0, 0.0]), Timeline()
    gradients = job.add_passes(timeline, [None, None], job.slowdown(timeline))
    assert [(one.name, one.layer, one.nbytes) for one in gradients] == [("l1", 1, 8), ("l0", 0, 4)]
    assert [timeline.ready([one.made_by]) for one in gradients] == [9.0, 11.0]


def test_noise_keeps_the_mean_of_the_compute_time() -> None:
    job = job_of([1.0], [1.0], [0.0])
    noisy = TrainingJob(job.model, job.forward, job.backward, 0.0, job.times, noise=0.1)
    drawn = noisy.slowdown(Timeline(100_000))
    assert drawn.mean() == pytest.approx(1.0, abs=2e-3)
    assert drawn.std() == pytest.approx(0.1, abs=2e-3)
