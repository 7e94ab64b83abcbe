"""Predictions over numbers of ranks with what explains them: shares of the time, and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tuner.base.units import plural
from tuner.training.iteration import (
    PredictedIteration,
    calls_by_model,
    predict_iteration,
    predict_recorded,
)
from tuner.training.memory_need import require_memory
from tuner.training.published import PublishedResult
from tuner.training.recorded_training import RecordedTraining
from tuner.training.server_load import ServerLoad, server_load
from tuner.training.time_shares import time_shares
from tuner.training.training_limits import limiting_factor, training_limits
from tuner.training.workload import Training, Workload

TOKENS, IMAGES, SAMPLES = "tokens", "images", "samples"


@dataclass(frozen=True)
class ExplainedIteration:
    """A prediction, where its time goes, and what limits it.

    shares      seconds of an iteration by phase; see `time_shares`
    limits      see `training_limits`; empty if they were not asked for
    servers     the parameter servers, None without any
    """

    found: PredictedIteration
    shares: dict[str, float]
    limits: dict[str, float]
    servers: ServerLoad | None = None

    @property
    def limit(self) -> str:
        """What limits the iteration in words, "" if that was not asked for."""
        return limiting_factor(self.limits, self.found) if self.limits else ""


def predict_scaling(
    training: Training,
    on_progress: Callable[[float, str], None] = lambda *_: None,
    *,
    explains_limits: bool = True,
) -> tuple[ExplainedIteration, ...]:
    """Return the explained predictions for all numbers of ranks; raises InputError.

    explains_limits     whether to find what limits each of them, which takes longer; of a
                        recorded iteration nothing is said
    """
    if isinstance(training, Workload):
        for ranks in training.ranks:
            require_memory(training, ranks)
    points = []
    for number, ranks in enumerate(training.ranks):
        on_progress(number / len(training.ranks), plural(ranks, "rank"))
        points.append(_explained(training, ranks, explains_limits))
    return tuple(points)


def _explained(training: Training, ranks: int, explains_limits: bool) -> ExplainedIteration:
    if isinstance(training, RecordedTraining):
        recorded = predict_recorded(training, ranks)
        return ExplainedIteration(recorded, time_shares(recorded), {})
    times = training.call_times(ranks)
    found = predict_iteration(training, ranks, times)
    limits = training_limits(training, found, times) if explains_limits else {}
    load = server_load(training, found, times)
    return ExplainedIteration(found, time_shares(found), limits, load)


def counted_unit(training: Training) -> tuple[str, int]:
    """Return what rates count, and how many of it a sample has.

    These are images, tokens of a transformer, or the samples of a recorded iteration.
    """
    if isinstance(training, RecordedTraining):
        return SAMPLES, 1
    shape = training.model.transformer
    if shape:
        return TOKENS, shape.sequence
    return (IMAGES if training.model.sample == "image" else SAMPLES), 1


def published_at(training: Training, ranks: int) -> PublishedResult | None:
    """Return the published result for a number of ranks, if any."""
    return next((one for one in training.published if one.ranks == ranks), None)


def scaling_accuracy(training: Training, points: Iterable[ExplainedIteration]) -> str:
    """Return how far predictions of the calls were off on the machine; "" without any calls."""
    predicted = calls_by_model(one.found for one in points)
    return training.machine.accuracy_sentence(predicted) if predicted else ""


def scaling_record(training: Training, points: tuple[ExplainedIteration, ...]) -> dict[str, Any]:
    """Return predictions as JSON has them, in seconds, bytes and samples per second."""
    unit, per_sample = counted_unit(training)
    return {
        "name": training.name,
        **(model_record(training) if isinstance(training, Workload) else {}),
        "batch": training.batch,
        "unit": unit,
        "per_sample": per_sample,
        "points": [point_record(training, one) for one in points],
        "accuracy": scaling_accuracy(training, points),
    }


def model_record(workload: Workload) -> dict[str, Any]:
    """Return model, precision and rate of one rank alone as JSON has them."""
    return {
        "model": workload.model.name,
        "parameters": workload.model.elements,
        "precision": workload.precision,
        "rate_alone": {
            "samples_per_second": workload.rate.rate,
            "source": workload.rate.source,
            "certainty": workload.rate.certainty,
        },
    }


def point_record(training: Training, one: ExplainedIteration) -> dict[str, Any]:
    """Return the prediction for one number of ranks as JSON has it."""
    found, known = one.found, published_at(training, one.found.ranks)
    return {
        "ranks": found.ranks,
        "nodes": found.nodes,
        "seconds": found.seconds,
        "compute": found.compute,
        "exposed": found.exposed,
        "communication": found.communication,
        "samples_per_second": found.rate,
        "efficiency": found.efficiency,
        "speedup": found.rate / found.alone,
        "limit": one.limit,
        "limits": one.limits,
        "shares": one.shares,
        "servers": None if one.servers is None else asdict(one.servers),
        "published": None
        if known is None
        else {"efficiency": known.efficiency(found.alone), "source": known.source},
        "calls": [
            {
                "operation": call.call.operation,
                "nbytes": call.call.nbytes,
                "group": call.call.group._asdict(),
                "count": call.count,
                "algorithm": call.algorithm,
                "seconds": call.seconds,
            }
            for call in found.calls
        ],
    }
