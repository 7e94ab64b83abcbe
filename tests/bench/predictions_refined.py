"""Predictions after a small part of a grid was measured, for the rest of it.

    python -m tests.bench.predictions_refined GRID.ndjson TOPOLOGY [MESSAGES.ndjson]
        [--share 10%] [--seed 1]

The files are those of `predictions`. What may be learned from is chosen by chance and costs no more
than its share of the seconds of the whole grid: points with all their algorithms, or single
algorithms at points. Prints the errors, and the ranking, of everything else.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np

from tests.bench.predictions import LEAST, arguments, grouped, predicted, print_figures
from tuner.calibrate import calibrate
from tuner.calibrate.accuracy import CollectivePrediction
from tuner.cli.options import argument_types
from tuner.core.collective import Collective
from tuner.core.measurement import Measurements, read_measurements
from tuner.machines.topology_files import load_topology
from tuner.select.dataset import Observation, SimulateFunction, build_observations, group_by_point
from tuner.select.experiment_design import measurement_cost
from tuner.select.posterior import PosteriorModel
from tuner.select.simulated_times import Simulator

Unit = Callable[[Observation], Hashable]  # rows of one unit are learned from together
UNITS: dict[str, Unit] = {
    "whole points": lambda row: row.point,
    "single algorithms": lambda row: (row.point, row.choice),
}


def rows_of(grid: Measurements, simulate: SimulateFunction) -> list[Observation]:
    """Those that `predictions` is about."""
    return [
        row
        for row in build_observations(grid, simulate)
        if row.point.nbytes >= LEAST and not np.isnan(row.simulated_seconds)
    ]


def draw(rows: Sequence[Observation], unit: Unit, share: float, seed: int) -> set[Hashable]:
    """Units whose rows together take at most this share of the seconds of all rows."""
    seconds: dict[Hashable, float] = {}
    for row in rows:
        seconds[unit(row)] = seconds.get(unit(row), 0.0) + measurement_cost(row.seconds)
    left, chosen, order = share * sum(seconds.values()), set[Hashable](), list(seconds)
    random.Random(seed).shuffle(order)
    for one in order:
        if seconds[one] <= left:
            chosen.add(one)
            left -= seconds[one]
    return chosen


def believed(
    known: Sequence[Observation], asked: Iterable[Observation], simulate: SimulateFunction
) -> Iterator[CollectivePrediction]:
    """What is expected of rows after learning from others."""
    beliefs = {
        name: PosteriorModel([row for row in known if row.point.collective == name], simulate)
        for name in Collective
    }
    for point, own in group_by_point(asked).items():
        belief = beliefs[Collective(point.collective)].posterior(point, [row.choice for row in own])
        called = (
            Collective(point.collective),
            point.nodes,
            point.ppn,
            point.placement,
            point.memory,
            point.nbytes,
        )
        for row, expected in zip(own, np.exp(belief.mean), strict=True):
            yield CollectivePrediction(called, row.choice, row.seconds, float(expected))


def learned(
    rows: Sequence[Observation], unit: Unit, share: float, seed: int, simulate: SimulateFunction
) -> list[CollectivePrediction]:
    """The rest, after learning from a share."""
    chosen = draw(rows, unit, share, seed)
    known = [row for row in rows if unit(row) in chosen]
    return list(believed(known, (row for row in rows if unit(row) not in chosen), simulate))


def main(options: argparse.Namespace) -> None:
    """Learn, predict and print."""
    grid, where = read_measurements(options.grid), load_topology(options.topology)
    messages = read_measurements(options.messages) if options.messages else grid
    print_figures("from messages alone", grouped(predicted(grid, messages, options.topology)))
    simulate = Simulator(calibrate(messages, where), where)
    rows = rows_of(grid, simulate)
    for name, unit in UNITS.items():
        cases = learned(rows, unit, options.share, options.seed, simulate)
        print_figures(f"after {options.share:.0%} of the seconds, {name}", grouped(cases))


if __name__ == "__main__":
    asked = arguments("Predictions after a small part of a grid was measured, for the rest.")
    asked.add_argument("--share", type=argument_types.fraction, default=0.1, metavar="PERCENT")
    asked.add_argument("--seed", type=int, default=1)
    main(asked.parse_args())
