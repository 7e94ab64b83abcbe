"""Models by name against published counts and against the gradient tensors of reference data."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.training.models import MODEL_NAMES, build_model

# torchvision's and timm's documentation; model cards of Llama and Mixtral
PARAMETERS = {
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "inception_v3_aux": 27_161_264,
    "inception_v3": 23_834_568,
    "inception_v4": 42_679_816,
    "mobilenet": 4_231_976,
    "densenet121": 7_978_856,
    "vgg16": 138_357_544,
    "alexnet": 61_100_840,
    "llama2_7b": 6_738_415_616,
    "llama3_8b": 8_030_261_248,
    "llama3_405b": 405_853_388_800,
    "mixtral_8x7b": 46_702_792_704,
}
KEYS = {"alexnet": "alexnet_torchvision", "googlenet": "googlenet_noaux"}
LISTED = (
    *("alexnet", "alexnet_caffe", "vgg16", "googlenet", "googlenet_aux", "resnet50"),
    *("bert_base", "bert_large", "gpt2_small", "gpt2_medium", "gpt2_large", "gpt2_xl"),
)


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_models_have_the_published_number_of_parameters(name: str) -> None:
    assert build_model(name).elements == PARAMETERS[name]


@pytest.fixture(scope="module")
def listed(shared: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(
        (shared / "data" / "layers.json").read_text()
    )
    return found


@pytest.mark.parametrize("name", LISTED)
def test_tensors_are_those_of_the_reference(
    listed: dict[str, list[dict[str, Any]]], name: str
) -> None:
    reference = listed[KEYS.get(name, name)]
    model = build_model(name)
    assert Counter(tensor.elements for tensor in model.tensors) == Counter(
        entry["elements"] for entry in reference
    )
    assert model.elements == sum(entry["elements"] for entry in reference)


@pytest.mark.parametrize("name", ["alexnet_caffe", "vgg16", "googlenet", "resnet50"])
def test_work_counts_the_multiply_adds_of_the_reference(
    listed: dict[str, list[dict[str, Any]]], name: str
) -> None:
    entries = listed[KEYS.get(name, name)]
    reference = sum(entry.get("fwd_macs_per_image", 0) for entry in entries)
    assert build_model(name).forward / 2 == pytest.approx(reference, rel=0.01)


@pytest.mark.parametrize("name", ["alexnet", "alexnet_caffe", "vgg16", "gpt2_small"])
def test_tensors_of_chains_are_in_the_order_of_the_forward_pass(
    listed: dict[str, list[dict[str, Any]]], name: str
) -> None:
    reference = [entry["elements"] for entry in listed[KEYS.get(name, name)]]
    assert [tensor.elements for tensor in build_model(name).tensors] == reference


@pytest.mark.parametrize("name", sorted(set(MODEL_NAMES) - {"mixtral_8x7b", "gpt3_175b"}))
def test_names_of_layers_and_tensors_are_unique(name: str) -> None:
    model = build_model(name)
    assert len({layer.name for layer in model.layers}) == len(model.layers)
    assert len({tensor.name for tensor in model.tensors}) == len(model.tensors)


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown model 'resnet5' .*: choose one of .*resnet50"):
        build_model("resnet5")
