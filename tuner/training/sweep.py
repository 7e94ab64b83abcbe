"""The predictions of a sweep, what each step along an axis gains, and what is best."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError, TunerError
from tuner.base.processes import available_cores
from tuner.base.units import format_time
from tuner.training.iteration import PredictedIteration, predict_iteration
from tuner.training.memory_need import require_memory
from tuner.training.sweep_spec import (
    FORMATTERS,
    FRAMEWORK,
    SECONDS_PER_HOUR,
    Sweep,
    sweep_from_record,
)
from tuner.training.training_limits import limiting_factor, training_limits
from tuner.whatif.axes import AXES, AxisValue, GridPoint

MAX_SERIAL_S = 2.0  # time spent in this process before others are started for the rest
MINUTE = 60.0  # seconds
HOUR = 3600.0  # seconds
MIN_GAIN = 1.005  # times as fast that are worth a word


@dataclass(frozen=True)
class SweepPoint:
    """One configuration of a sweep.

    rate        samples per second of all ranks
    epoch       seconds of an epoch; 0 if the sweep has none
    cost        price of an epoch, in the user's currency; None without prices or epoch
    limit       what limits an iteration, in words
    """

    axis_values: GridPoint
    ranks: int
    nodes: int
    seconds: float
    exposed: float
    rate: float
    efficiency: float
    limit: str
    epoch: float
    cost: float | None


@dataclass(frozen=True)
class SweepStep:
    """How many times as fast training is after a step along an axis, at least and at most.

    max_at      values of the other axes at the largest speedup
    then        what limits training there after the step
    """

    axis: str
    lower: AxisValue
    upper: AxisValue
    min_speedup: float
    max_speedup: float
    max_at: GridPoint
    then: str


@dataclass(frozen=True)
class SweepResult:
    """The points of a sweep in the order of its grid, and the steps along its axes."""

    sweep: Sweep
    points: tuple[SweepPoint, ...]
    steps: tuple[SweepStep, ...]

    @property
    def fastest(self) -> SweepPoint:
        return max(self.points, key=lambda point: point.rate)

    @property
    def hardly_slower(self) -> SweepPoint:
        """The first configuration that is the fastest or hardly slower."""
        most = self.fastest.rate
        return next(point for point in self.points if point.rate * MIN_GAIN >= most)

    @property
    def cheapest(self) -> SweepPoint | None:
        """The configuration with the least cost of an epoch; None without costs."""
        priced = [point for point in self.points if point.cost is not None]
        return min(priced, key=lambda point: point.cost or 0.0) if priced else None


def format_epoch(seconds: float) -> str:
    """Return the time of an epoch, such as `42.3s`, `12.5min` or `3.21h`."""
    for unit, length in (("h", HOUR), ("min", MINUTE)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g}{unit}"
    return format_time(seconds)


def run_sweep(
    record: Any,
    directory: Path,
    on_progress: Callable[[float, str], None] = lambda *_: None,
    processes: int | None = None,
) -> SweepResult:
    """Return the predictions of all configurations; raises InputError.

    record      parsed YAML or JSON of the sweep
    directory   what the names of files in it are relative to
    processes   most processes to start; by default as many as cores this process may use
    """
    sweep = sweep_from_record(record, directory)
    found: dict[int, SweepPoint] = {}
    number = len(sweep.grid)
    for at, point in _predict_all(sweep, record, directory, processes or available_cores()):
        found[at] = point
        on_progress(len(found) / number, f"{len(found)} of {number} configurations")
    points = tuple(found[at] for at in range(number))
    return SweepResult(sweep, points, tuple(_steps(sweep, points)))


def _predict_all(
    sweep: Sweep, record: Any, directory: Path, processes: int
) -> Iterator[tuple[int, SweepPoint]]:
    """Yield the number of each configuration with its prediction, in any order."""
    begun, left = time.monotonic(), [list(some) for some in sweep.alike]
    while left and (processes == 1 or time.monotonic() - begun < MAX_SERIAL_S):
        number = left[0].pop(0)
        left = left if left[0] else left[1:]
        yield number, predict_point(sweep, sweep.grid[number])
    if not left:
        return
    from concurrent.futures.process import BrokenProcessPool  # small sweeps start no process

    from tuner.sim.process_pool import map_unordered

    largest_first = [some[::-1] for some in left]
    if len(left) < processes:  # rather one by one, although they share simulations
        largest_first = [[number] for some in largest_first for number in some]
    answers = map_unordered(_prepare, (record, directory), largest_first, processes)
    with closing(answers):
        try:
            for some in answers:
                yield from chain.from_iterable(some)
        except BrokenProcessPool:
            raise TunerError(
                "a process of the sweep was killed, often for want of memory: --jobs with a"
                " smaller number needs less"
            ) from None


def _prepare(
    record: Any, directory: Path
) -> Callable[[Sequence[int]], list[tuple[int, SweepPoint]]]:
    sweep = sweep_from_record(record, directory)
    return lambda numbers: [(one, predict_point(sweep, sweep.grid[one])) for one in numbers]


def predict_point(sweep: Sweep, at: GridPoint) -> SweepPoint:
    """Return the prediction of one configuration; raises InputError that says which it is."""
    try:
        workload, ranks = sweep.configuration(at)
        require_memory(workload, ranks)
        times = workload.call_times(ranks)
        found = predict_iteration(workload, ranks, times)
        limit = limiting_factor(training_limits(workload, found, times), found)
    except InputError as reason:
        raise InputError(f"{describe_point(at, tuple(at))}: {reason}") from None
    return _point(sweep, at, found, limit)


def _point(sweep: Sweep, at: GridPoint, found: PredictedIteration, limit: str) -> SweepPoint:
    epoch = sweep.epoch / found.rate
    hourly = sweep.hourly_cost(at) if epoch else None
    return SweepPoint(
        at,
        found.ranks,
        found.nodes,
        found.seconds,
        found.exposed,
        found.rate,
        found.efficiency,
        limit,
        epoch,
        None if hourly is None else hourly * epoch / SECONDS_PER_HOUR,
    )


def _steps(sweep: Sweep, points: Sequence[SweepPoint]) -> Iterator[SweepStep]:
    by_place = {tuple(point.axis_values.items()): point for point in points}
    for axis, values in sweep.axes.items():
        if axis == FRAMEWORK:  # whose values have no order
            continue
        for lower, upper in pairwise(values):
            gains = []
            for point in points:
                if point.axis_values[axis] != lower:
                    continue
                after = by_place[tuple({**point.axis_values, axis: upper}.items())]
                gains.append((after.rate / point.rate, after))
            most, after = max(gains, key=lambda pair: pair[0])
            others = {name: at for name, at in after.axis_values.items() if name != axis}
            least = min(gain for gain, _ in gains)
            yield SweepStep(axis, lower, upper, least, most, others, after.limit)


def describe_point(at: GridPoint, axes: Sequence[str]) -> str:
    """Return the values of some axes, such as `ranks 64, bandwidth 25GB/s`."""
    return ", ".join(f"{name.replace('_', ' ')} {FORMATTERS[name](at[name])}" for name in axes)


def summarise_sweep(result: SweepResult) -> str:
    """Return a paragraph: what each step gains, the fastest and the cheapest configuration."""
    sentences = [
        sentence
        for _, steps in groupby(result.steps, key=lambda step: step.axis)
        for sentence in _about_axis(list(steps))
    ]
    axes = [axis for axis, values in result.sweep.axes.items() if len(values) > 1]
    if axes:
        sentences.append(_about_fastest(result, axes))
        if result.cheapest is not None:
            cheapest = describe_point(result.cheapest.axis_values, axes)
            sentences.append(f"An epoch costs least with {cheapest}.")
    return " ".join(sentences)


def _about_fastest(result: SweepResult, axes: Sequence[str]) -> str:
    """Return a sentence that names the fastest configuration, if one is faster than another."""
    slowest = min(point.rate for point in result.points)
    if result.fastest.rate < slowest * MIN_GAIN:
        return f"All configurations are equally fast, within {MIN_GAIN - 1:.1%}."
    fastest, like = (
        describe_point(point.axis_values, axes) for point in (result.fastest, result.hardly_slower)
    )
    beside = "" if like == fastest else f"; {like} is within {MIN_GAIN - 1:.1%} of it"
    return f"The fastest is {fastest}{beside}."


def _about_axis(steps: Sequence[SweepStep]) -> Iterator[str]:
    """Yield a sentence for each step along an axis, or one if none of them changes anything."""
    first, last, shown = steps[0], steps[-1], FORMATTERS[steps[0].axis]
    if all(max(step.max_speedup, 1 / step.min_speedup) < MIN_GAIN for step in steps):
        name = first.axis.replace("_", " ").capitalize()
        yield f"{name} {shown(first.lower)} to {shown(last.upper)} changes nothing."
    else:
        yield from map(_about_step, steps)


def _about_step(step: SweepStep) -> str:
    shown = FORMATTERS[step.axis]
    low, high = f"{step.min_speedup:.2f}", f"{step.max_speedup:.2f}"
    gain = low if low == high else f"{low} to {high}"
    return (
        f"{step.axis.replace('_', ' ').capitalize()} {shown(step.upper)} against"
        f" {shown(step.lower)}: {gain} times as fast; the limit is then {step.then}."
    )


def sweep_record(result: SweepResult) -> dict[str, Any]:
    """Return everything as JSON has it: seconds, samples per second, the user's currency."""
    return {
        "name": result.sweep.workload.name,
        "epoch": result.sweep.epoch,
        "points": [_point_record(point) for point in result.points],
        "steps": [
            {
                "axis": step.axis,
                "lower": _encoded(step.axis, step.lower),
                "upper": _encoded(step.axis, step.upper),
                "min_speedup": step.min_speedup,
                "max_speedup": step.max_speedup,
                "max_at": _encoded_point(step.max_at),
                "then": step.then,
            }
            for step in result.steps
        ],
        "summary": summarise_sweep(result),
    }


def _point_record(point: SweepPoint) -> dict[str, Any]:
    return {
        **_encoded_point(point.axis_values),
        "ranks": point.ranks,
        "nodes": point.nodes,
        "seconds": point.seconds,
        "exposed": point.exposed,
        "rate": point.rate,
        "efficiency": point.efficiency,
        "limit": point.limit,
        "epoch_seconds": point.epoch or None,
        "epoch_cost": point.cost,
    }


def _encoded_point(at: Mapping[str, AxisValue]) -> dict[str, Any]:
    return {name: _encoded(name, value) for name, value in at.items()}


def _encoded(axis: str, value: AxisValue) -> AxisValue:
    return AXES[axis].encode(value) if axis in AXES else value
