"""How far predictions were off measured results of a kind of machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import parse_name, require_keys

SIMULATION, NCCL = PREDICTION_MODELS = ("simulation", "nccl")  # what predicts a time
MODEL_NAMES = {SIMULATION: "simulated times", NCCL: "times of NCCL"}
NOT_COMPARED = "not compared with measured collectives"
ACCURACY_KEYS = {"median", "worst", "results", "source"}


@dataclass(frozen=True)
class ModelAccuracy:
    """The error of a model's times against measured ones, as fractions.

    results     number of measured results
    source      what was measured
    """

    median: float
    worst: float
    results: int
    source: str

    def __str__(self) -> str:
        return (
            f"off by {self.median:.1%} (median), at worst {self.worst:.0%}, against"
            f" {self.results} measured results ({self.source})"
        )


def parse_accuracy(record: Any) -> dict[str, ModelAccuracy]:
    """Return the accuracy of models by name; raise InputError for an invalid record."""
    require_keys("accuracy", record, set(PREDICTION_MODELS), set())
    return {model: _parse_model(f"accuracy: {model}", entry) for model, entry in record.items()}


def _parse_model(what: str, entry: Any) -> ModelAccuracy:
    require_keys(what, entry, ACCURACY_KEYS, ACCURACY_KEYS)
    for key in ("median", "worst"):
        if type(entry[key]) not in (int, float) or not 0 <= entry[key] < 100:
            raise InputError(
                f"{what}: {key} must be a fraction such as 0.05, not {shortened_repr(entry[key])}"
            )
    if type(entry["results"]) is not int or entry["results"] < 1:
        raise InputError(
            f"{what}: results must be a positive integer, not {shortened_repr(entry['results'])}"
        )
    return ModelAccuracy(
        float(entry["median"]),
        float(entry["worst"]),
        entry["results"],
        parse_name(f"{what}: source", entry["source"]),
    )


def accuracy_sentence(
    name: str, accuracy: Mapping[str, ModelAccuracy], models: Collection[str]
) -> str:
    """Return how far the models that predicted some times were off on the machine `name`."""
    known = [
        f"{MODEL_NAMES[model]} were {accuracy.get(model, NOT_COMPARED)}"
        for model in PREDICTION_MODELS
        if model in models
    ]
    return f"Accuracy: on {name} {'; '.join(known)}."
