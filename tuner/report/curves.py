"""Curves over the message size, taken from measurements and predictions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tuner.core.measurement import Measurement
from tuner.core.speedup import mean_over_launches, paired_speedup
from tuner.core.table import LIBRARY, RUNNER_OF_KIND, AlgorithmChoice, RuleKey

Launches = dict[int, tuple[float, ...]]  # samples by launch


@dataclass(frozen=True)
class CallTime:
    """The measured time of one choice at one size.

    relative    time over that of the default, and its 95 % interval; None where the default was
                not measured
    """

    nbytes: int
    choice: AlgorithmChoice
    seconds: float
    relative: tuple[float, float, float] | None


Curve = Sequence[CallTime]  # ascending sizes


def measured_curves(series: Iterable[Measurement]) -> dict[RuleKey, dict[str, Curve]]:
    """Return, by call and algorithm, the time at each size with the best parameters.

    Series with samples of 0 s are left out. Raises InputError for one of no collective.
    """
    samples: dict[tuple[RuleKey, int], dict[AlgorithmChoice, Launches]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for one in series:
        if one.kind in RUNNER_OF_KIND and min(one.samples) > 0:
            choice = AlgorithmChoice(one.algorithm, one.params, RUNNER_OF_KIND[one.kind])
            samples[_key(one), one.nbytes][choice][one.launch] = one.samples
    found: dict[RuleKey, dict[str, list[CallTime]]] = defaultdict(lambda: defaultdict(list))
    for (key, nbytes), by_choice in sorted(samples.items(), key=lambda item: item[0][1]):
        for name, best in _fastest_choices(by_choice).items():
            found[key][name].append(_call_time(nbytes, best, by_choice))
    return {key: dict(sorted(curves.items())) for key, curves in found.items()}


def _key(one: Measurement) -> RuleKey:
    return RuleKey(one.collective, one.nodes, one.ppn, one.memory, placement=one.placement)


def curve_name(choice: AlgorithmChoice) -> str:
    """Return the name of the curve that a choice belongs to: the algorithm and what runs it."""
    return (
        choice.algorithm if choice.runner == LIBRARY else f"{choice.algorithm} via {choice.runner}"
    )


def _fastest_choices(by_choice: Mapping[AlgorithmChoice, Launches]) -> dict[str, AlgorithmChoice]:
    typical = {choice: _typical_time(launches) for choice, launches in by_choice.items()}
    return {curve_name(choice): choice for choice in sorted(typical, key=lambda c: -typical[c])}


def _typical_time(launches: Launches) -> float:
    return mean_over_launches(list(launches.values()))[0]


def _call_time(
    nbytes: int, choice: AlgorithmChoice, by_choice: Mapping[AlgorithmChoice, Launches]
) -> CallTime:
    default = by_choice.get(AlgorithmChoice())
    relative = None if default is None else _relative_time(by_choice[choice], default)
    return CallTime(nbytes, choice, _typical_time(by_choice[choice]), relative)


def _relative_time(chosen: Launches, default: Launches) -> tuple[float, float, float] | None:
    """Return the time over that of the default with its interval, from the launches of both."""
    if chosen is default:
        return 1.0, 1.0, 1.0
    paired = [
        list(zip(default[launch], chosen[launch], strict=False))
        for launch in sorted(default.keys() & chosen.keys())
    ]
    if not paired:
        return None
    base, own = ([[both[side] for both in launch] for launch in paired] for side in (0, 1))
    speedup, low, high = paired_speedup(base, own)
    return 1 / speedup, 1 / high, 1 / low


def predicted_curves(
    predictions: Sequence[Mapping[str, Any]], collective: str, p: int
) -> dict[str, dict[int, float]]:
    """Return, per algorithm, the predicted time by size with the best parameters.

    predictions     records as `tuner simulate` prints them
    """
    found: dict[str, dict[int, float]] = {}
    for record in predictions:
        if (record["collective"], record["p"]) == (collective, p):
            curve = found.setdefault(record["algorithm"], {})
            seconds = record["seconds"]
            curve[record["nbytes"]] = min(seconds, curve.get(record["nbytes"], seconds))
    return found


def prediction_error(
    measured: Mapping[str, Curve], predicted: Mapping[str, Mapping[int, float]]
) -> float | None:
    """Return the median factor by which a prediction is off, upwards or downwards.

    Return None without a prediction for any measured size.
    """
    errors = [
        abs(math.log(predicted[name][call.nbytes] / call.seconds))
        for name, curve in measured.items()
        for call in curve
        if predicted.get(name, {}).get(call.nbytes) and call.seconds > 0
    ]
    return math.exp(median(errors)) if errors else None
