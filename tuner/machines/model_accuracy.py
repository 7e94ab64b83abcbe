"""How far predictions were off measured results of a kind of machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import NAME, Kind, parse_mapping, read_record, whole

SIMULATION, NCCL = PREDICTION_MODELS = ("simulation", "nccl")  # what predicts a time
MODEL_NAMES = {SIMULATION: "simulated times", NCCL: "times of NCCL"}
NOT_COMPARED = "not compared with measured collectives"
MAX_ERROR = 100
MAX_RESULTS = 10**9


def _read_fraction(what: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < MAX_ERROR:
        raise InputError(f"{what} must be a fraction such as 0.05, not {shortened_repr(value)}")
    return float(value)


FRACTION = Kind("fraction", _read_fraction)


@dataclass(frozen=True)
class ModelAccuracy:
    """The error of a model's times against measured ones, as fractions.

    results     number of measured results
    source      what was measured
    """

    median: Annotated[float, FRACTION]
    worst: Annotated[float, FRACTION]
    results: Annotated[int, whole(MAX_RESULTS)]
    source: Annotated[str, NAME]

    def __str__(self) -> str:
        return (
            f"off by {self.median:.1%} (median), at worst {self.worst:.0%}, against"
            f" {self.results} measured results ({self.source})"
        )


def parse_accuracy(record: Any) -> dict[str, ModelAccuracy]:
    """Return the accuracy of models by name; raise InputError for an invalid record."""
    return {
        model: read_record(ModelAccuracy, entry, f"accuracy: {model}")
        for model, entry in parse_mapping("accuracy", record, PREDICTION_MODELS).items()
    }


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
