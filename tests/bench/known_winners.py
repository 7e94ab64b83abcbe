"""Tell what probes cannot save: the regret of tables for which the winners alone are measured.

    python -m tests.bench.known_winners [--shares 0.5,5,10] FILE...

FILE holds results that `tuner evaluate` reads. It is taken to be known which choice wins at each
call; the default and that winner are measured, first where this saves most regret per second, until
a share of the seconds is spent that measuring everything takes. Calls beyond it keep the default.
Tables that leave the default only where both were measured can hardly do better, whatever their
design; `tuner evaluate --probes` prints what ours does, which also predicts calls.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.cli.terminal.output import print_table
from tuner.importers import AUTO, UserMetadata, read_results
from tuner.select.cases import cases_from_readings, compared_rows, group_cases, with_alternatives
from tuner.select.dataset import Observation, group_by_point
from tuner.select.experiment_design import measurement_cost
from tuner.select.significance import DEFAULT_CHOICE


def sets(files: Sequence[Path]) -> Iterator[tuple[str, Sequence[Observation]]]:
    """Yield the sets that `tuner evaluate --probes` replays."""
    readings = (read_results(path, AUTO, UserMetadata()) for path in files)
    cases = [*chain.from_iterable(map(cases_from_readings, readings))]
    for name, own in group_cases(cases).items():
        rows = compared_rows(own) if with_alternatives(own) else []
        if rows:
            yield name, rows


def regret_left(rows: Sequence[Observation], shares: FloatArray) -> FloatArray:
    """Return the mean regret after each share of the seconds of measuring everything, (shares,)."""
    saved, seconds = [], []
    for own in group_by_point(rows).values():
        times = {row.choice: row.seconds for row in own}
        least = min(times.values())
        saved.append(times[DEFAULT_CHOICE] / least - 1)
        seconds.append(measurement_cost(times[DEFAULT_CHOICE]) + measurement_cost(least))
    gains, costs = np.array(saved), np.array(seconds)
    whole = sum(measurement_cost(row.seconds) for row in rows)
    left = []
    for budget in shares * whole:
        kept = gains.sum()
        for n in np.argsort(-gains / costs):
            if gains[n] > 0 and costs[n] <= budget:
                budget, kept = budget - costs[n], kept - gains[n]
        left.append(max(kept, 0.0) / len(gains))
    return np.array(left)


def main() -> None:
    """Print a line for each set, and one for their mean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--shares", default="0.5,5,10", help="percent, separated by commas")
    args = parser.parse_args()
    percent = [float(one) for one in args.shares.split(",")]
    shares = np.array([0.0, *percent]) / 100
    found = {name: regret_left(rows, shares) for name, rows in sets(args.files)}
    found["mean"] = np.mean([*found.values()], axis=0)
    columns = ["set", "nothing", *(f"{one:g} %" for one in percent)]
    rows = [[name, *(f"{100 * one:.1f}" for one in left)] for name, left in found.items()]
    print_table("regret in %, after shares of the seconds", columns, rows, right=columns[1:])


if __name__ == "__main__":
    main()
