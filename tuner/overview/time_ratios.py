"""Comparisons of the results in files: of two runs, or of a run with what a machine should give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tuner.base.errors import InputError, UsageError
from tuner.core.collective import Collective
from tuner.core.table import DEFAULT
from tuner.importers import BenchmarkResult
from tuner.importers.reading import option_of
from tuner.machines import Machine
from tuner.overview.overview import Overview
from tuner.overview.slow_calls import Series, TimesBySize, times_of
from tuner.prediction.ordering import rounded_seconds
from tuner.topology import Placement

MAX_PREDICTED_SIZES = 5  # of a series


@dataclass(frozen=True)
class ComparedCall:
    """A call with a time and another one that it is compared with.

    reference   seconds of the earlier results, or as predicted
    seconds     seconds of the later results, or as measured
    algorithm   algorithm of the prediction; "" for results
    """

    call: str
    reference: float
    seconds: float
    algorithm: str = ""

    @property
    def ratio(self) -> float:
        """Return how many times as long as the reference the call takes."""
        return self.seconds / self.reference


@dataclass(frozen=True)
class TimeComparison:
    """Times of the same calls, of two files of results or predicted and measured.

    columns     names of the reference and of the time that is compared with it
    """

    title: str
    columns: tuple[str, str]
    calls: Sequence[ComparedCall]

    def record(self) -> dict[str, Any]:
        calls = [{**asdict(one), "ratio": one.ratio} for one in self.calls]
        return {"title": self.title, "columns": [*self.columns], "calls": calls}


def compare_overviews(found: Sequence[Overview]) -> list[TimeComparison]:
    """Return comparisons of each file of results with the one before it, and with each machine.

    Raises UsageError for results to compare with a machine that do not say where they were
    measured, and InputError where a machine is too small for them.
    """
    measured = [one for one in found if one.results]
    runs = [
        TimeComparison(
            f"{after.source} against {before.source}",
            ("before", "after"),
            compare_results(before, after),
        )
        for before, after in pairwise(measured)
    ]
    return runs + [
        TimeComparison(
            f"{one.source} against the fastest algorithms on {place.machine.name}, as predicted",
            ("predicted", "measured"),
            _compare_with_machine(one, place.machine),
        )
        for place in found
        for one in measured
        if place.machine
    ]


def _compare_with_machine(one: Overview, machine: Machine) -> list[ComparedCall]:
    if one.unknown:
        options = " and ".join(map(option_of, one.unknown))
        raise UsageError(f"{one.source} does not say where it was measured: add {options}")
    return compare_with_machine(one.results, machine)


def compare_results(before: Overview, after: Overview) -> list[ComparedCall]:
    """Return the calls that both files have, in the order of the first one."""
    is_placed = not (before.unknown or after.unknown)
    old = times_of(before.results, is_placed=is_placed)
    new = times_of(after.results, is_placed=is_placed)
    return [
        ComparedCall(series.call(size), sizes[size], new[series][size])
        for series, sizes in old.items()
        if series in new
        for size in sizes
        if size in new[series]
    ]


def compare_with_machine(
    results: Sequence[BenchmarkResult], machine: Machine
) -> list[ComparedCall]:
    """Return what collective calls take at best on a machine, as simulated or by NCCL's model.

    Raises InputError where the machine has fewer nodes or ranks, or none of the calls is simulated.
    """
    found = [
        one
        for series, sizes in times_of(results).items()
        if series.algorithm == DEFAULT and series.name in list(Collective)
        for one in _expected(series, sizes, machine)
    ]
    if not found:
        raise InputError("no call of a collective has a time that can be predicted")
    return found


def _expected(series: Series, sizes: TimesBySize, machine: Machine) -> Iterator[ComparedCall]:
    # Loads numba and SciPy, which results alone do not need.
    from tuner.prediction.call_predictor import CallPredictor, NoPrediction

    collective = Collective(series.name)
    placement = Placement.block(machine.topology, series.p // series.nodes, series.p)
    predictor = CallPredictor.of_machine(placement, machine.calibration, series.memory)
    names = predictor.algorithms(collective)
    step = max(1, -(-len(sizes) // MAX_PREDICTED_SIZES))
    for nbytes in [*sizes][::-step][::-1]:
        times = [
            (rounded_seconds(seconds), candidate.choice.algorithm)
            for candidate in predictor.candidates(collective, names, nbytes)
            for seconds in [predictor.predict(collective, candidate.choice, nbytes)]
            if not isinstance(seconds, NoPrediction)
        ]
        if times:
            best, name = min(times)
            yield ComparedCall(series.call(nbytes), best, sizes[nbytes], name)
