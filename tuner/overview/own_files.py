"""Overviews of the files that tuner writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tuner.base.errors import InputError
from tuner.base.spelling import unknown_name
from tuner.base.units import format_size, plural
from tuner.core.call_profile import read_call_profile
from tuner.core.measurement import Measurement, Measurements, read_measurements
from tuner.core.table import DEFAULT, read_table
from tuner.importers import BenchmarkResult, RankCounts
from tuner.importers.reading import COLLECTIVE, Benchmark
from tuner.machines.topology_files import KIND_NAMES
from tuner.overview.overview import Overview, command
from tuner.overview.slow_calls import slow_calls

MAX_CALLS = 3  # calls of a profile that are shown


def own_overview(path: Path, kind: str) -> Overview:
    """Return the overview of a file that tuner wrote; raise InputError for a damaged one."""
    if kind in KINDS:
        return KINDS[kind](path)
    if kind not in KIND_NAMES:
        raise InputError(f"{path}: {unknown_name('kind of files', kind, KIND_NAMES)}")
    return Overview(str(path), KIND_NAMES[kind], ["its contents are not checked here"])


def _table_overview(path: Path) -> Overview:
    table = read_table(path)
    departing = sum(not rule.choice.is_default for rule in table.rules)
    name = table.library.partition(" ")[0]
    return Overview(
        str(path),
        "a tuning table",
        [
            f"{table.library} on {table.cluster}: {departing} of"
            f" {plural(len(table.rules), 'rule')} depart from the library's default"
        ],
        commands=[
            command("its rules:", "tuner", "table", "show", path),
            command("follow it:", "tuner", "run", "--table", path, "--", "COMMAND"),
            command(
                "the library's file:",
                "tuner",
                "table",
                "export",
                path,
                "--format",
                name,
                "--out",
                "RULES",
            ),
        ],
    )


def _measurements_overview(path: Path) -> Overview:
    found = read_measurements(path)
    kinds = Counter(one.kind for one in found.series)
    results = [_as_result(one, found, str(path)) for one in found.series if one.kind == COLLECTIVE]
    return Overview(
        str(path),
        "measurements",
        [
            f"{found.library} on {found.cluster}{_date_of(found)}: "
            + ", ".join(f"{count} of {kind}" for kind, count in kinds.items())
        ],
        slow_calls(results),
        [
            command("fit costs:", "tuner", "calibrate", path, "--out", "calibration.json"),
            command(
                "then a table:",
                "tuner",
                "tune",
                "--measurements",
                path,
                "--calibration",
                "calibration.json",
                "--out",
                "table.json",
            ),
        ],
        results,
    )


def _date_of(found: Measurements) -> str:
    """Return the day on which measurements began, with the words before it; "" if none is told."""
    day = str(found.provenance.get("when", "")).partition("T")[0]
    return f", measured on {day}" if day else ""


def _as_result(one: Measurement, probe: Measurements, source: str) -> BenchmarkResult:
    """Return a series of a probe as a result."""
    return BenchmarkResult(
        source,
        0,
        Benchmark(one.subject, COLLECTIVE, one.subject),
        one.nbytes,
        one.samples,
        rank_counts=RankCounts(one.p, one.nodes, one.ppn),
        algorithm=one.algorithm or DEFAULT,
        params=one.params,
        memory=one.memory,
        library=probe.library,
        run=str(one.launch),
    )


def _profile_overview(path: Path) -> Overview:
    calls = read_call_profile(path).calls
    moved = sorted(calls, key=lambda one: -one.calls * one.nbytes)
    return Overview(
        str(path),
        "a profile of calls",
        [
            f"{one.calls:,} x {one.collective} of {format_size(one.nbytes)} on"
            f" {plural(one.nodes, 'node')} of {plural(one.ppn, 'rank')}"
            for one in moved[:MAX_CALLS]
        ],
        commands=[
            command(
                "tune these calls:",
                "tuner",
                "tune",
                "--profile",
                path,
                "--hosts",
                "HOSTS",
                "--measurements",
                "measurements.ndjson",
                "--out",
                "table.json",
            )
        ],
    )


KINDS: dict[str, Callable[[Path], Overview]] = {
    "probe": _measurements_overview,
    "profile": _profile_overview,
    "table": _table_overview,
}
