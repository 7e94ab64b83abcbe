"""The report of a program's run under a table, as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tuner.base.units import format_range, format_time, humanize, plural
from tuner.core.table import DEFAULT
from tuner.preload.report import Interval
from tuner.preload.run_record import RecordedCalls, RunRecord
from tuner.report.page import arrange, standalone_page
from tuner.report.page_sections import PageSection, table, tiles

COLUMNS = (
    *("sizes", "algorithm", "calls", "part of the time", "shortest", "median", "longest"),
    *("saved", "95 % interval"),
)
NO_SAVING = (0.0, 0.0, 0.0)  # of calls for which none is shown
UNKNOWN_SAVING = (
    "What the table saved is unknown: by its evidence more than the whole run took, so that these"
    " calls are shorter than the measured ones."
)


@dataclass(frozen=True)
class FollowedRun:
    """A run of a program under a table.

    command     as the user typed it
    table       name of the table
    record      its calls
    saved       for each kind of calls the seconds that the table saved by its evidence on each
                rank, and their interval; None where they are unknown
    """

    command: str
    table: str
    record: RunRecord
    saved: Sequence[Interval] | None


def render_run_page(run: FollowedRun) -> str:
    """Return the report as HTML with its style and its script inside."""
    kinds = run.record.kinds
    saved = [NO_SAVING] * len(kinds) if run.saved is None else run.saved
    ordered = sorted(zip(kinds, saved, strict=True), key=lambda item: _place(item[0]))
    groups = [[*same] for _, same in groupby(ordered, key=lambda item: _place(item[0])[:4])]
    groups.sort(key=lambda group: -sum(kind.seconds for kind, _ in group))
    sections = [
        PageSection("run", "The run", 1, _summary(run)),
        *(_section(number, run, group) for number, group in enumerate(groups)),
    ]
    title = "Collective calls of a run"
    return standalone_page(title, arrange(title, f"{run.command}, under {run.table}", sections))


def _place(kind: RecordedCalls) -> tuple[object, ...]:
    """Return what sorts calls: collective and layout, then size class and algorithm."""
    layout = kind.collective.value, kind.nodes, kind.ppn, kind.is_cyclic
    return (*layout, kind.nbytes.bit_length(), kind.choice)


def _summary(run: FollowedRun) -> str:
    record, kinds = run.record, run.record.kinds
    followed = sum(kind.rank_calls for kind in kinds if kind.choice != DEFAULT) / record.ranks
    made = (sum(kind.rank_calls for kind in kinds) + record.unrecorded) / record.ranks
    shown = [
        (format_time(record.run_seconds), f"from MPI_Init to MPI_Finalize, {record.ranks} ranks"),
        (f"{record.share:.0%}", "of it in collective calls"),
        (f"{followed / max(made, 1):.0%}", f"of {made:.0f} calls of each rank followed the table"),
    ]
    saved, low, high = (sum(one[n] for one in run.saved or ()) for n in range(3))
    if saved:
        name = f"saved by the table's evidence ({format_time(low)} to {format_time(high)})"
        shown.append((format_time(saved), name))
    parts = [
        tiles(shown),
        "<p>Times include waiting for ranks that arrive late. In the tables a call of all ranks of"
        " a communicator counts once. Medians are those of the last 64 calls on the slowest rank,"
        " at the size of the row that takes most time.</p>",
    ]
    if run.saved is None:
        parts.append(f"<p>{UNKNOWN_SAVING}</p>")
    if record.unrecorded:
        parts.append(f"<p>{record.unrecorded} calls of single ranks are not listed.</p>")
    return "".join(parts)


def _section(
    number: int, run: FollowedRun, group: Sequence[tuple[RecordedCalls, Interval]]
) -> PageSection:
    """Return the section on calls of one collective and layout."""
    first = group[0][0]
    share = sum(kind.seconds for kind, _ in group) / max(run.record.seconds, 1e-9)
    ranks = (
        f"{plural(first.nodes * first.ppn, 'rank')} on {plural(first.nodes, 'node')}"
        f"{' (cyclic)' if first.is_cyclic else ''}"
        if first.ppn
        else f"an irregular placement on {plural(first.nodes, 'node')}"
    )
    title = f"{first.collective} on {ranks}: {share:.1%} of the time"
    content = table(COLUMNS, ((first.key, row) for row in _rows(run, group)), range(2, 9))
    regular = (first.collective.value, first.nodes * first.ppn) if first.ppn else ("", 0)
    return PageSection(f"calls-{number}", title, 2, content, *regular)


def _rows(
    run: FollowedRun, group: Sequence[tuple[RecordedCalls, Interval]]
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each size class, whose sizes differ by less than a factor of 2."""
    for _, same in groupby(group, key=lambda item: _place(item[0])[4:]):
        kinds, intervals = zip(*same, strict=True)
        saved, low, high = map(sum, zip(*intervals, strict=True))
        bits = kinds[0].nbytes.bit_length()
        longest = max(kinds, key=lambda kind: kind.seconds)
        yield (
            format_range(1 << bits >> 1, 1 << bits) if kinds[0].collective.has_data else "",
            humanize(kinds[0].choice),
            f"{sum(kind.calls for kind in kinds)}" if kinds[0].ppn else "",
            f"{sum(kind.seconds for kind in kinds) / max(run.record.seconds, 1e-9):.1%}",
            format_time(min(kind.least_s for kind in kinds)),
            format_time(longest.median_s),
            format_time(max(kind.most_s for kind in kinds)),
            format_time(saved) if saved else "",
            f"{format_time(low)} to {format_time(high)}" if saved else "",
        )
