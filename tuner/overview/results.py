"""Overviews of benchmark results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.base.units import plural
from tuner.importers import BenchmarkResult, MissingCountsError, UserMetadata, read_all
from tuner.importers.reading import option_of
from tuner.overview.overview import Overview, command
from tuner.overview.slow_calls import Series, TimesBySize, is_usable, slow_calls, times_of
from tuner.topology import HOST

# Counts that stand in for those that a file does not state; its times do not depend on them.
STAND_INS: dict[str, Any] = {"p": 2, "nodes": 1, "ppn": 1}


def results_overview(path: Path, form: str, told: UserMetadata) -> Overview:
    """Return the overview of a file or folder of benchmark results.

    form    name of its format

    Raises InputError where the results cannot be read.
    """
    results, notes, unknown = _read(path, form, told)
    counts = [word for name in unknown for word in (option_of(name), option_of(name)[2:].upper())]
    given = {name: getattr(told, name) for name in STAND_INS}
    counts += [str(word) for name, n in given.items() if n for word in (option_of(name), n)]
    library = [] if all(one.library for one in results) else ["--library", "NAME VERSION"]
    out = [*counts, *library, "--out", "measurements.ndjson"]
    return Overview(
        str(path),
        f"benchmark results ({form})",
        [*_facts(results, unknown), *(note.removeprefix(f"{path}: ") for note in notes)],
        slow_calls(results, is_placed=not unknown),
        [
            command("import:", "tuner", "import-results", path, *out),
            command("compare with a later run:", "tuner", "open", path, "LATER_RESULTS"),
            command("compare with a machine:", "tuner", "open", path, "MACHINE", *counts),
        ],
        results,
        unknown,
    )


def _read(
    path: Path, form: str, told: UserMetadata
) -> tuple[list[BenchmarkResult], list[str], Sequence[str]]:
    """Return the results, notes, and the counts that neither the file nor the user states."""
    unknown: tuple[str, ...] = ()
    while True:
        try:
            return *read_all([path], form, told), unknown
        except MissingCountsError as reason:
            first = reason.names[0]  # from which the others follow, or are missing next
            if getattr(told, first) is not None:
                raise
            unknown = tuple(dict.fromkeys((*unknown, *reason.names)))
            told = replace(told, **{first: STAND_INS[first]})


def _facts(results: Sequence[BenchmarkResult], unknown: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each collective, and sentences on what is unknown or left out."""
    together: dict[tuple[str, str], list[tuple[Series, TimesBySize]]] = {}
    for series, sizes in times_of(results).items():
        together.setdefault((series.name, series.memory), []).append((series, sizes))
    for found in together.values():
        yield _measured_calls(found, is_placed=not unknown)
    if unknown:
        yield f"it does not say where it was measured: add {' and '.join(map(option_of, unknown))}"
    left_out = Counter(
        one.exclusion_reason or "without a size or a positive time"
        for one in results
        if not is_usable(one)
    )
    for reason, count in left_out.items():
        yield f"left out: {plural(count, 'row')} ({reason})"


def _measured_calls(found: Sequence[tuple[Series, TimesBySize]], *, is_placed: bool) -> str:
    """Return a sentence on the calls of one collective: their sizes, ranks and algorithms."""
    first = found[0][0]
    least = min((min(sizes), series) for series, sizes in found)
    most = max((max(sizes), series) for series, sizes in found)
    ends = dict.fromkeys(series.shown_size(size) for size, series in (least, most))
    ranks = sorted({series.p for series, _ in found})
    nodes = {series.nodes for series, _ in found}
    where = f" on {' to '.join(str(p) for p in dict.fromkeys((ranks[0], ranks[-1])))} ranks"
    where += f" of {plural(first.nodes, 'node')}" if len(nodes) == 1 else ""
    algorithms = len({series.algorithm for series, _ in found})
    sizes = f" of {' to '.join(ends)}" if all(ends) else ""
    return (
        f"{first.name}{sizes}"
        + ("" if first.memory == HOST else f" in {first.memory} memory")
        + (where if is_placed else "")
        + (f", {algorithms} algorithms" if algorithms > 1 else "")
        + (f"; times: {first.statistic}" if first.statistic else "")
    )
