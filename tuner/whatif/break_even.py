"""Find the rate above which a faster network gains nothing for a call of NCCL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tuner.prediction.call_predictor import CallPredictor
from tuner.whatif.axes import BANDWIDTH_AXES, place_ranks
from tuner.whatif.checked_study import Study
from tuner.whatif.study_result import AxisStep, StudyPoint

STEPS = 13  # of the bisection between two rates: less than SAME_TIME where one is twice the other
SAME_TIME = 1e-4  # relative difference of times that are not told apart
CLEARLY = 1 - 100 * SAME_TIME  # times a rate, which changes a time that depends on it


def with_break_even(study: Study, step: AxisStep, points: Sequence[StudyPoint]) -> AxisStep:
    """Return a step between two rates with the one above which its fastest call gains nothing.

    That is the lowest rate at which the algorithm that is the fastest at the upper value takes as
    long as there. There is none where faster links still gain, and where the call is simulated: it
    gains something from any rate.
    """
    after = next(one for one in points if _is_after(one, step))
    if step.axis not in BANDWIDTH_AXES or not after.rates:
        return step
    longest = after.best.seconds * (1 + SAME_TIME)

    def is_slower(rate: float) -> bool:
        return _seconds(study, after, step.axis, rate) > longest

    low, high, bound = float(step.lower_value), float(step.upper_value), min(after.rates.values())
    if is_slower(high * CLEARLY):
        return step
    if low < bound < high and is_slower(bound * CLEARLY) and not is_slower(bound):
        return replace(step, break_even=bound)  # of NICs, as rates are per NIC
    for _ in range(STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_slower(middle) else (low, middle)
    return replace(step, break_even=high)


def _is_after(point: StudyPoint, step: AxisStep) -> bool:
    return point.collective is step.collective and point.coordinates == step.upper_at


def _seconds(study: Study, point: StudyPoint, axis: str, rate: float) -> float:
    """Return the time of a point's fastest call with another rate of some links."""
    at = study.with_shape({**point.axis_values, axis: rate})
    machine, memory = study.machine_at(at), str(at["memory"])
    predictor = CallPredictor.of_machine(place_ranks(machine, at), machine.calibration, memory)
    return predictor.seconds(point.collective, point.best.choice, point.nbytes)
