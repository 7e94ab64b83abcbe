"""Compute times of an iteration that accumulates the gradients of several passes."""

from __future__ import annotations

import pytest

from tuner.training.compute import ComputeRate, divide_over_layers
from tuner.training.models import build_model

MODEL = build_model("vgg16")


@pytest.mark.parametrize("memory_rate", [1e12, 1e9])  # the second: update of a tenth, at most
@pytest.mark.parametrize("passes", [1, 4, 512])
def test_an_iteration_takes_as_long_as_the_rate_says(passes: int, memory_rate: float) -> None:
    times = divide_over_layers(MODEL, 8, ComputeRate(100.0, "own", "given"), memory_rate, passes)
    computed = passes * float(times.forward.sum() + times.backward.sum()) + times.update
    assert computed == pytest.approx(passes * 8 / 100.0)


def test_the_update_is_made_once_for_all_passes() -> None:
    one, many = (
        divide_over_layers(MODEL, 8, ComputeRate(100.0, "own", "given"), 1e12, passes)
        for passes in (1, 100)
    )
    assert one.update == many.update == pytest.approx(5 * 4 * MODEL.elements / 1e12)
