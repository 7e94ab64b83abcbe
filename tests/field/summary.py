"""Print what a check found, within 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import exp, log
from statistics import median
from textwrap import fill

from tests.field.launches import PATTERNS, cores
from tests.field.ratios import Estimate, by_chance, half_width
from tests.field.record import FAR, Pair
from tests.field.results import ALL, COLUMNS, AtDistance, Result, Row
from tests.field.tables import Library

WIDTH = 80
FEW_LAUNCHES = 10
COLUMN_NAMES = f" {'bytes':>8} {'algorithm':19}" + "".join(
    f"{name:<7}" for name in ("same", "fresh", "same", "fresh", "all")
)


def format_result(libraries: list[Library], result: Result) -> str:
    """Return cautions, a table per library, and the lines that say how it ended."""
    lines = [fill(f"Caution: {text}", WIDTH) for text in cautions(result)]
    lines += ["", fill(LEGEND, WIDTH)]
    for library in libraries:
        lines += ["", *_table(library, [r for r in result.rows if r.library == library.name])]
    return "\n".join([*lines, "", *summary(result)])


LEGEND = (
    "Ratios are times of the default over times with the tuning: above 1 the tuning is faster. "
    "+ or -: faster or slower by the 95 % interval of this ratio alone; ++ or --: also after "
    "Holm's correction over all calls. same, fresh: the buffers of each call."
)


def cautions(result: Result) -> Iterator[str]:
    """Say what makes the figures less certain or less general than they look."""
    launches = min(sum(1 for _ in group) for _, group in groupby(result.pairs, _setting))
    if launches < FEW_LAUNCHES:
        yield f"{launches} launches of each arm; 10 or more are better."
    crowded = sorted({pair.ranks for pair in result.pairs if pair.ranks > cores()})
    if crowded:
        ranks = ", ".join(map(str, crowded))
        yield (
            f"{ranks} ranks ran on {cores()} cores: such times say little about a cluster, and "
            "vary much."
        )
    yield from _distances(result)
    check = result.self_check
    if check.tests and check.significant > 2 * check.expected + 3:
        yield (
            f"launches of the default differ from launches of the default in {check.significant} "
            f"of {check.tests} comparisons, chance alone gives {check.expected:.0f}: something "
            "else used the machine, run again when it is quiet."
        )


def _setting(pair: Pair) -> tuple[str, int]:
    return pair.library, pair.ranks


def _distances(result: Result) -> Iterator[str]:
    times = [time for pair in result.pairs for time in pair.distances]
    if times and max(times) > FAR * min(times):
        yield (
            f"a cache line took {min(times):.0f} to {max(times):.0f} ns from core to core and "
            f"back, typically {median(times):.0f}: the cores were not always the same distance "
            "apart, and which algorithm is best may depend on it."
        )
    unsteady = sum(not pair.steady for pair in result.pairs)
    if unsteady:
        yield (
            f"in {unsteady} of {len(result.pairs)} pairs of launches this distance changed from "
            "one to the other, also when repeated: intervals are wider than need be."
        )


def _table(library: Library, rows: list[Row]) -> Iterator[str]:
    yield f"{library.version}: calls that the tuning changes, and others that differ"
    yield ""
    shown = [row for row in rows if row.call.changed or _differs(row)]
    if not shown:
        yield " none"
    for (collective, ranks), group in groupby(
        sorted(shown, key=lambda row: (row.call.collective, row.call.ranks, row.call.nbytes)),
        lambda row: (row.call.collective, row.call.ranks),
    ):
        yield f"{f' {collective}, {ranks} ranks':29}{'barrier':<14}{'in a row':<14}"
        yield f"{COLUMN_NAMES}{'95 %':<9} report"
        yield from map(_line, group)
        yield ""
    yield from _kept(rows)


def _differs(row: Row) -> bool:
    return bool(row.wrong) or any(row.certain.values())


def _line(row: Row) -> str:
    ratios = "".join(f"{_marked(row, column):<7}" for column in COLUMNS)
    whole = row.estimates[ALL]
    reported = f" {row.comparison.ratio:.2f}" if row.comparison else ""
    interval = f"{_short(whole.low)}-{_short(whole.high)}"
    wrong = "  WRONG RESULTS" if row.wrong else ""
    line = f" {row.call.nbytes:>8} {row.call.algorithm[:18]:19}{ratios}{interval:<9}{reported}"
    return f"{line.rstrip()}{wrong}"


def _short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.1f}" if ratio < 99.95 else f"{ratio:.0f}"


def _marked(row: Row, column: str) -> str:
    found = row.estimates[column]
    sign = {"faster": "+", "slower": "-", "same": ""}[found.verdict]
    return _short(found.ratio) + sign * (2 if row.certain[column] else 1)


def _kept(rows: list[Row]) -> Iterator[str]:
    """Summarise the calls that the tuning leaves to the default."""
    kept = sorted((row for row in rows if not row.call.changed), key=lambda row: row.call.ranks)
    for ranks, group in groupby(kept, lambda row: row.call.ranks):
        ratios = [row.estimates[ALL].ratio for row in group]
        mean = exp(sum(map(log, ratios)) / len(ratios))
        yield fill(
            f"{len(ratios)} calls on {ranks} ranks are left to the default: {min(ratios):.2f} to "
            f"{max(ratios):.2f}, geometric mean {mean:.3f}.",
            WIDTH,
        )


def summary(result: Result) -> list[str]:
    """Return one line for each thing that is wanted of a tuning."""
    lines: list[str] = []
    for verdict in ("slower", "faster"):
        lines += _counts(result.rows, verdict)
    wrong = sum(row.wrong > 0 for row in result.rows)
    lines.append(f"wrong results: {wrong} of {len(result.rows)} calls")
    changed = [row for row in result.rows if row.call.changed]
    lines += _means("changed calls", result.changed, changed, result.by_distance)
    kept = [row for row in result.rows if not row.call.changed]
    lines += _means("other calls", result.kept, kept, ())
    lines += _agreement(result.rows)
    check = result.self_check
    lines.append(
        f"default against default: {check.significant} of {check.tests} differ at 95 % "
        f"(chance alone: {check.expected:.0f})"
    )
    width = half_width([row.estimates[ALL] for row in result.rows])
    single = half_width([row.estimates[p] for row in result.rows for p in PATTERNS])
    lines.append(
        f"intervals: +-{width:.1%} for a call, +-{single:.1%} for a call and pattern (median)"
    )
    return lines


def _means(
    what: str,
    means: dict[str, dict[str, Estimate]],
    rows: list[Row],
    by_distance: tuple[AtDistance, ...],
) -> Iterator[str]:
    for name, found in means.items():
        number = sum(row.library == name for row in rows)
        yield f"{what} of {name} ({number}): geometric mean {_interval(found[ALL])}"
        yield "  " + ", ".join(f"{pattern} {found[pattern].ratio:.3f}" for pattern in PATTERNS)
        for one in by_distance:
            if one.library == name:
                near, far = one.distances
                where = f"{one.ranks} ranks, {one.pairs} pairs with cores at"
                yield f"  {where} {near:.0f} to {far:.0f} ns: {_interval(one.estimate)}"


def _interval(found: Estimate) -> str:
    return f"{found.ratio:.3f} ({found.low:.3f} to {found.high:.3f})"


def _counts(rows: tuple[Row, ...], verdict: str) -> Iterator[str]:
    for columns, what in (((ALL,), "calls"), (PATTERNS, "calls and patterns")):
        tests = [(row, column) for row in rows for column in columns]
        plain = [(row, column) for row, column in tests if row.estimates[column].verdict == verdict]
        certain = [row for row, column in plain if row.certain[column]]
        yield (
            f"{verdict}: {len(certain)} of {len(tests)} {what} "
            f"({len(plain)} at plain 95 %; chance alone: {by_chance(len(tests)):.0f})"
        )
        if len({row.library for row in rows}) > 1:
            parts = [
                f"{name} {sum(row.library == name for row in certain)} of "
                f"{sum(row.library == name for row, _ in tests)}"
                for name in dict.fromkeys(row.library for row in rows)
            ]
            yield f"  {', '.join(parts)}"


def _agreement(rows: tuple[Row, ...]) -> Iterator[str]:
    compared = [row for row in rows if row.comparison]
    for what, part in (
        ("report.json", compared),
        ("  of these, changed calls", [row for row in compared if row.call.changed]),
    ):
        inside = sum(row.within() for row in part)
        yield f"{what} within the checker's interval: {inside} of {len(part)}"
