"""Comparisons of the results in files: of two runs, or of a run with what a machine should give."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import geometric_mean
from typing import Any

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import DEFAULT
from tuner.formats.registry import LIBRARIES
from tuner.importers.reading import option_of
from tuner.machines import Machine
from tuner.overview.overview import Command, Overview, command
from tuner.overview.slow_calls import NOISE, Series, TimesBySize, times_of
from tuner.prediction.ordering import rounded_seconds
from tuner.topology import Placement

MAX_PREDICTED_SIZES = 5  # of a series
MAX_PREDICTED_SERIES = 6
NOTHING_PREDICTED = "not compared: it has no call of a collective whose time can be predicted"
MAX_TUNED_SIZES = 8  # that a command names


@dataclass(frozen=True)
class ComparedCall:
    """A call with a time and another one that it is compared with.

    reference   seconds of the earlier results, or as predicted
    seconds     seconds of the later results, or as measured
    algorithm   algorithm of the prediction; "" for results
    """

    call: str
    collective: str
    nbytes: int
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
    note        what to know of it, or why nothing is compared
    commands    commands that take the calls that became slower
    """

    title: str
    columns: tuple[str, str]
    calls: Sequence[ComparedCall] = ()
    note: str = ""
    commands: Sequence[Command] = ()

    @property
    def summary(self) -> str:
        """A sentence on all ratios; "" where nothing is compared."""
        if not self.calls:
            return ""
        mean = geometric_mean(one.ratio for one in self.calls)
        slower = sum(one.ratio > NOISE for one in self.calls)
        faster = sum(one.ratio < 1 / NOISE for one in self.calls)
        return (
            f"calls take {mean:.2f} times as long as {self.columns[0]} (geometric mean of"
            f" {len(self.calls)}): {slower} over 5 % slower, {faster} over 5 % faster"
        )

    def record(self) -> dict[str, Any]:
        """Return the comparison as JSON data."""
        calls = [{**asdict(one), "ratio": one.ratio} for one in self.calls]
        about = {"title": self.title, "columns": [*self.columns], "summary": self.summary}
        commands = [asdict(one) for one in self.commands]
        return {**about, "note": self.note, "calls": calls, "commands": commands}


def compare_overviews(
    found: Sequence[Overview], max_ranks: float = math.inf
) -> list[TimeComparison]:
    """Return comparisons of each file of results with the one before it, and with each machine.

    max_ranks   ranks up to which times are predicted, as many take long
    """
    measured = [one for one in found if one.results]
    rules = [one for one in found if one.libraries]
    runs = [_compare_runs(one, other, rules) for one, other in pairwise(measured)]
    machines = [one.machine for one in found if one.machine]
    return runs + [
        _compare_with(one, machine, max_ranks) for machine in machines for one in measured
    ]


def _compare_runs(first: Overview, second: Overview, rules: Sequence[Overview]) -> TimeComparison:
    """Return the comparison of the calls that both files have, in the order of the earlier one.

    rules   overviews of rules files
    """
    before, after, order = _in_order(first, second)
    title = f"{after.source} against {before.source}"
    if set(before.unknown) != set(after.unknown):
        note = _lacking_note(before if before.unknown else after)
        return TimeComparison(title, ("before", "after"), (), note)
    is_placed = not before.unknown
    old = times_of(before.results, is_placed=is_placed)
    new = times_of(after.results, is_placed=is_placed)
    compared = [
        (series, ComparedCall(series.call(size), series.name, size, sizes[size], new[series][size]))
        for series, sizes in old.items()
        if series in new
        for size in sizes
        if size in new[series]
    ]
    calls = [call for _, call in compared]
    statistics = [{series.statistic for series in times} for times in (old, new)]
    note = order if calls else "they have no call in common"
    if not calls and statistics[0] != statistics[1]:
        told = [" and ".join(sorted(filter(None, one))) or "unknown" for one in statistics]
        note = f"not compared: the times before are {told[0]}, those after {told[1]}"
    slower = [
        (series, call.nbytes)
        for series, call in compared
        if call.ratio > NOISE and series.name in list(Collective)
    ]
    commands = [*_tune_commands(slower, after), *_explain_commands(slower, after, rules)]
    return TimeComparison(title, ("before", "after"), calls, note, commands)


def _in_order(first: Overview, second: Overview) -> tuple[Overview, Overview, str]:
    """Return two files of results as before and after, and a sentence on how that is known."""
    if not (first.measured and second.measured) or first.measured == second.measured:
        names = f"before is {first.source} and after is {second.source}"
        return first, second, f"{names}: the order in which they are named"
    before, after = sorted((first, second), key=lambda one: str(one.measured))
    told = (f"{one.source}, measured on {one.measured:%Y-%m-%d %H:%M}" for one in (before, after))
    return before, after, f"before is {next(told)}; after is {next(told)}"


def _tune_commands(slower: Sequence[tuple[Series, int]], after: Overview) -> Iterator[Command]:
    """Yield the command that tunes calls that became slower."""
    if slower:
        names = ",".join(dict.fromkeys(series.name for series, _ in slower))
        sizes = [_size_word(*one, after) for one in sorted(slower, key=lambda one: one[1])]
        shown = ",".join([*dict.fromkeys(sizes)][:MAX_TUNED_SIZES])
        words = ["tuner", "tune", "--hosts", "HOSTS", "--collectives", names, "--sizes", shown]
        words += ["--measurements", "measurements.ndjson", "--out", "table.json"]
        yield command("tune the slower calls:", *words)


def _explain_commands(
    slower: Sequence[tuple[Series, int]], after: Overview, rules: Sequence[Overview]
) -> Iterator[Command]:
    """Yield the commands that say which line of a rules file decides the first slower call.

    rules   overviews of rules files; without any the command has a place for one
    """
    series, nbytes = next((one for one in slower if one[0].algorithm == DEFAULT), (None, 0))
    named = {one.library for one in after.results}
    library = "@".join(named.pop().split()[:2]) if len(named) == 1 else ""
    name = library.partition("@")[0]
    if series is None or name not in ("", *LIBRARIES):
        return
    call = ["--collective", series.name, "--ranks", _unless("p", after, str(series.p), "RANKS")]
    call += ["--nodes", str(series.nodes)] if series.is_placed else []
    if Collective(series.name).has_data:
        call += ["--size", _size_word(series, nbytes, after)]
    for one in rules:
        if name in ("", *one.libraries):
            words = [one.source, "--library", library or one.libraries[0], *call]
            purpose = "which line decides the first of them:"
            yield command(purpose, "tuner", "table", "explain", *words)
    if not rules:
        words = ["RULES", *(["--library", library] if library else []), *call]
        purpose = "which line of a rules file decides the first of them, if you use one:"
        yield command(purpose, "tuner", "table", "explain", *words)


def _size_word(series: Series, nbytes: int, one: Overview) -> str:
    """Return the bytes of a call for a command; those of blocks need the number of ranks."""
    return _unless("p", one, str(nbytes), "SIZE") if series.per_rank else str(nbytes)


def _unless(name: str, one: Overview, known: str, unknown: str) -> str:
    return unknown if name in one.unknown else known


def _lacking_note(one: Overview) -> str:
    options = " and ".join(map(option_of, one.unknown))
    return f"not compared: {one.source} does not say where it was measured: add {options}"


def _compare_with(one: Overview, machine: Machine, max_ranks: float) -> TimeComparison:
    title = f"{one.source} against the fastest algorithms on {machine.name}, as predicted"
    columns = ("predicted", "measured")
    if one.unknown:
        return TimeComparison(title, columns, (), _lacking_note(one))
    # Load numba and SciPy, which results alone do not need.
    from tuner.machines.loader import assumed_costs_warning
    from tuner.machines.model_accuracy import SIMULATION

    asked = [
        (series, sizes)
        for series, sizes in times_of(one.results).items()
        if series.algorithm == DEFAULT and series.name in list(Collective)
    ]
    few = [(series, sizes) for series, sizes in asked if series.p <= max_ranks]
    few = few[:MAX_PREDICTED_SERIES]
    try:
        calls = [call for series, sizes in few for call in _predicted(series, sizes, machine)]
    except InputError as reason:
        return TimeComparison(title, columns, (), f"not compared: {reason}")
    note = assumed_costs_warning(machine) or machine.accuracy_sentence({SIMULATION: ()})
    if len(few) < len(asked):
        note = f"{len(few)} of {len(asked)} collectives and numbers of ranks are predicted. {note}"
    return TimeComparison(title, columns, calls, note if calls else NOTHING_PREDICTED)


def _predicted(series: Series, sizes: TimesBySize, machine: Machine) -> Iterator[ComparedCall]:
    """Yield a few sizes of a series with the fastest prediction, of a simulation or NCCL's model.

    Raises InputError where the machine has fewer nodes or ranks, or lacks costs.
    """
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
            call = series.call(nbytes)
            yield ComparedCall(call, series.name, nbytes, best, sizes[nbytes], name)
