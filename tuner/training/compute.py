"""The compute time of a model on one GPU: published rates, or estimates from them.

A rate in samples per second covers the forward and the backward pass and the update. It is divided
over the layers in proportion to their work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import yaml

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError
from tuner.training.model import FLOPS, Model

FP32, AMP = PRECISIONS = ("fp32", "amp")
ESTIMATED = "estimated"
UPDATE_ACCESSES = 5  # of momentum SGD: weight, gradient and momentum read, two of them written


@dataclass(frozen=True)
class ComputeRate:
    """How fast one GPU trains a model, in samples per second, and where that is from.

    has_update      whether the rate includes the update of the parameters, which measured times of
                    layers do not
    """

    rate: float
    source: str
    certainty: str
    has_update: bool = True


@dataclass(frozen=True)
class _KnownRate:
    model: str
    gpu: str
    precision: str
    rate: ComputeRate


@dataclass(frozen=True)
class LayerTimes:
    """Seconds of each layer for the samples of one rank, shape (layers,), and of the update."""

    forward: FloatArray
    backward: FloatArray
    update: float


@cache
def _record() -> dict[str, Any]:
    text = files("tuner.training").joinpath("rates.yaml").read_text(encoding="utf-8")
    record: dict[str, Any] = yaml.safe_load(text)
    return record


@cache
def _known_rates() -> tuple[_KnownRate, ...]:
    return tuple(
        _KnownRate(
            name,
            entry["gpu"],
            entry["precision"],
            ComputeRate(float(own["rate"]), entry["source"], entry["certainty"]),
        )
        for entry in _record()["rates"]
        for name, own in entry["models"].items()
    )


def find_rate(model: Model, gpu: str, precision: str, build: Callable[[str], Model]) -> ComputeRate:
    """Return the rate of a model on a GPU product.

    It is a published one where there is one. Otherwise the rate of the image model with the nearest
    work on the same GPU is scaled by the work; of a transformer it is the share of the GPU's peak
    that its computation alone reaches, as waiting is predicted.

    build   returns the model of a name, for the work of models with published rates

    Raises InputError for a GPU without any published number and for a model without work in FLOPS.
    """
    here = [one for one in _known_rates() if (one.gpu, one.precision) == (gpu, precision)]
    own = next((one.rate for one in here if one.model == model.name), None)
    if own is not None:
        return own
    if model.unit != FLOPS:
        raise InputError(
            f"model {model.name} has measured times: its rate on {gpu} is not known; give `rate`"
        )
    if model.sample == "image":
        if not here or not model.forward:
            raise _unknown_rate(model, gpu, precision)
        return _scaled_rate(model, here, build)
    return _rate_of_peak(model, gpu, precision)


def _scaled_rate(
    model: Model, here: list[_KnownRate], build: Callable[[str], Model]
) -> ComputeRate:
    others = [(one, build(one.model)) for one in here]
    one, like = min(others, key=lambda pair: abs(np.log(pair[1].forward / model.forward)))
    return ComputeRate(
        one.rate.rate * like.forward / model.forward,
        f"rate of {like.name} times the ratio of their work; {one.rate.source}",
        ESTIMATED,
    )


def _rate_of_peak(model: Model, gpu: str, precision: str) -> ComputeRate:
    for entry in _record()["peaks"]:
        if (entry["gpu"], entry["precision"]) == (gpu, precision):
            rate = float(entry["peak"]) * entry["share"] / (model.forward + model.backward)
            return ComputeRate(
                rate,
                f"{entry['share']:.0%} of the peak while it computes; {entry['source']}",
                ESTIMATED,
            )
    raise _unknown_rate(model, gpu, precision)


def _unknown_rate(model: Model, gpu: str, precision: str) -> InputError:
    return InputError(
        f"how fast {gpu or 'a node without GPUs'} trains {model.name} in {precision} is not known:"
        " give `rate`, in samples per second of one rank"
    )


def divide_over_layers(
    model: Model, samples: int, rate: ComputeRate, memory_rate: float, passes: int = 1
) -> LayerTimes:
    """Return the times of all layers for the `samples` samples of a pass.

    rate            rate of one rank, with one update for all passes
    memory_rate     bytes per second of the memory of the rank, for the update of the parameters
    passes          passes of an iteration
    """
    update = UPDATE_ACCESSES * 4 * model.elements / memory_rate
    forward = np.array([layer.forward for layer in model.layers]) * samples
    backward = np.array([layer.backward for layer in model.layers]) * samples
    whole = passes * samples / rate.rate
    update = min(update, 0.1 * whole)  # a GPU that is faster than its memory, if assumed
    layers = whole - update if rate.has_update else whole
    factor = layers / (passes * float(forward.sum() + backward.sum()))
    return LayerTimes(forward * factor, backward * factor, update)
