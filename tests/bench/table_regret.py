"""What following a table costs on a grid that was measured apart from it.

    python -m tests.bench.table_regret TABLE.json GRID.ndjson

GRID is of `tuner probe run` on the same cluster. Regret is against the best algorithm that the
library's rules can ask for; headroom is the part of what the default takes longer than the best
that the table saves. Calls are told apart by whether the table's evidence has their size, their
number of hosts, or both at once. Prints the calls that lose more than a tenth, too.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.bench.predictions import LEAST
from tuner import mpi_libraries
from tuner.base.errors import InputError
from tuner.base.units import format_size
from tuner.cli.terminal.output import print_table
from tuner.core.measurement import Measurements, read_measurements
from tuner.core.table import MEASURED, AlgorithmChoice, TuningTable, read_table
from tuner.select.dataset import CallPoint, build_observations, group_by_point
from tuner.select.evaluate import summarise_regret
from tuner.select.lookup import lookup_rule

NOISE = 0.02  # relative; medians of one call differ by so much from run to run
MUCH = 0.1  # regret of calls that are listed
COLUMNS = ("calls", "regret", "p95", "worst", "default's", "headroom", "slower than it", "by")


@dataclass(frozen=True)
class Outcome:
    """Of one call: seconds with the table, with the default, and of the best."""

    point: CallPoint
    choice: AlgorithmChoice
    tuned: float
    default: float
    best: float

    @property
    def regret(self) -> float:
        return self.tuned / self.best - 1

    @property
    def slower(self) -> float:
        """Than the default, relative."""
        return self.tuned / self.default - 1


def follow(table: TuningTable, point: CallPoint) -> AlgorithmChoice:
    """What is run there; without rules for so many ranks the library decides."""
    try:
        return lookup_rule(table, point.key("commutative"), point.nbytes).choice
    except InputError:
        return AlgorithmChoice()


def outcomes(table: TuningTable, grid: Measurements) -> tuple[list[Outcome], list[CallPoint]]:
    """Of every call of the grid, and the calls whose choice was not measured there."""
    library = mpi_libraries.library_module(grid.library)
    rows = [
        row
        for row in build_observations(grid, lambda point, choice: math.nan)
        if row.point.nbytes >= LEAST
        and library.is_expressible(row.point.key().collective, row.choice)
    ]
    found, unknown = list[Outcome](), list[CallPoint]()
    for point, own in group_by_point(rows).items():
        times, choice = {row.choice: row.seconds for row in own}, follow(table, point)
        if choice in times and AlgorithmChoice() in times:
            best = min(times.values())
            found.append(Outcome(point, choice, times[choice], times[AlgorithmChoice()], best))
        else:
            unknown.append(point)
    return found, unknown


def grouped(table: TuningTable, own: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """All, then those of each collective, number of hosts, and by what the evidence has."""
    evidence = {
        (rule.key.collective, rule.key.nodes, rule.key.ppn, nbytes)
        for rule in table.rules
        if rule.evidence.basis == MEASURED
        for nbytes in rule.evidence.nbytes
    }
    nodes, sizes = {e[1] for e in evidence}, {e[3] for e in evidence}
    names: Sequence[Callable[[CallPoint], str]] = (
        lambda _: "all",
        lambda p: p.collective,
        lambda p: f"{p.nodes} hosts",
        lambda p: f"call{_unless((p.collective, p.nodes, p.ppn, p.nbytes) in evidence)}",
        lambda p: f"size{_unless(p.nbytes in sizes)}",
        lambda p: f"hosts{_unless(p.nodes in nodes)}",
    )
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for name in names:
        for one in own:
            groups[name(one.point)].append(one)
    return groups


def _unless(known: bool) -> str:
    return " in the evidence" if known else " not in the evidence"


def cells(own: Sequence[Outcome]) -> tuple[str, ...]:
    """A line of the table."""
    found = summarise_regret([one.regret for one in own])
    default = summarise_regret([one.default / one.best - 1 for one in own])
    slower = [one.slower for one in own]
    saved = 1 - found.mean / default.mean if default.mean > 0 else 1.0
    return (
        str(found.points),
        f"{found.mean:.2%}",
        f"{found.p95:.1%}",
        f"{found.worst:.1%}",
        f"{default.mean:.1%}",
        f"{saved:.1%}",
        f"{np.mean(np.array(slower) > NOISE):.1%}",
        f"{max(slower):+.1%}",
    )


def main(table_file: str, grid_file: str) -> None:
    """Follow the table and print."""
    table, grid = read_table(Path(table_file)), read_measurements(Path(grid_file))
    own, unknown = outcomes(table, grid)
    rows = [(name, *cells(group)) for name, group in grouped(table, own).items()]
    print_table("following the table", ("", *COLUMNS), rows, right=COLUMNS)
    lost = sorted((one for one in own if one.regret > MUCH), key=lambda one: -one.regret)
    losses = [
        (
            f"{one.point.collective} {one.point.nodes}x{one.point.ppn}",
            format_size(one.point.nbytes),
            str(one.choice),
            f"{one.regret:.0%}",
            f"{one.default / one.best - 1:.0%}",
        )
        for one in lost
    ]
    columns = ("size", "regret", "default's")
    print_table(
        f"losing more than {MUCH:.0%}",
        ("call", "size", "choice", "regret", "default's"),
        losses,
        right=columns,
    )
    for point in unknown:
        print(f"left out: {point}: what the table chooses was not measured in {grid_file}")


if __name__ == "__main__":
    main(*sys.argv[1:])
