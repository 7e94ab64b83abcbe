"""Models, the division of their time over the layers, and rates."""

from __future__ import annotations

import pytest

from tuner.base.errors import InputError
from tuner.training.compute import ComputeRate, divide_over_layers, find_rate
from tuner.training.model import SECONDS, Model, ModelLayer, Tensor
from tuner.training.models import build_model

LAYERS = (ModelLayer("a", 1.0, 2.0, (Tensor("a", 1000),)), ModelLayer("b", 3.0, 6.0))


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ((), "needs a layer with a trained tensor"),
        ((ModelLayer("a", 1.0, 1.0),), "needs a layer with a trained tensor"),
        ((ModelLayer("a", -1.0, 1.0, (Tensor("a", 1),)),), "layer a has a negative work or time"),
        ((ModelLayer("a", float("nan"), 1.0, (Tensor("a", 1),)),), "layer a has a negative work"),
        (
            (ModelLayer("a", 1.0, 1.0, (Tensor("a", 2), Tensor("b", -1))),),
            "tensor b has -1 elements",
        ),
        ((ModelLayer("a", 0.0, 0.0, (Tensor("a", 1),)),), "needs a layer with work"),
    ],
)
def test_models_that_cannot_be_trained_are_refused(
    layers: tuple[ModelLayer, ...], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        Model("own", layers)


def test_a_rate_is_divided_in_proportion_to_the_work() -> None:
    times = divide_over_layers(Model("own", LAYERS), 10, ComputeRate(100.0, "own", "given"), 1e9)
    assert times.forward.sum() + times.backward.sum() + times.update == pytest.approx(0.1)
    assert times.update == pytest.approx(5 * 4 * 1000 / 1e9)
    assert times.forward[1] / times.forward[0] == pytest.approx(3)
    assert times.backward[0] / times.forward[0] == pytest.approx(2)


def test_measured_times_count_as_they_are() -> None:
    model = Model("own", LAYERS, SECONDS)
    alone = ComputeRate(1 / (model.forward + model.backward), "times", "given", has_update=False)
    times = divide_over_layers(model, 10, alone, 1e9)
    assert times.forward.tolist() == pytest.approx([10.0, 30.0])
    assert times.update == pytest.approx(5 * 4 * 1000 / 1e9)


def test_rates_are_published_or_scaled_by_the_work() -> None:
    known = find_rate(build_model("resnet50"), "P100", "fp32", build_model)
    assert known.rate == 219
    scaled = find_rate(build_model("resnet101"), "P100", "fp32", build_model)
    ratio = build_model("resnet50").forward / build_model("resnet101").forward
    assert scaled.rate == pytest.approx(219 * ratio, rel=0.35)
    assert scaled.certainty == "estimated"
    with pytest.raises(InputError, match="how fast an unknown GPU trains"):
        find_rate(build_model("resnet50"), "an unknown GPU", "fp32", build_model)
    with pytest.raises(InputError, match="its rate on P100 is not known; give `rate`"):
        find_rate(Model("own", LAYERS, SECONDS), "P100", "fp32", build_model)
