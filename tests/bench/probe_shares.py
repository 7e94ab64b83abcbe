"""Replay designs of probes on measured grids: regret after shares of the grids' seconds.

    python -m tests.bench.probe_shares FILE... [--seeds N] [--shares 0.5,5,10] [--only WORD]

Each FILE has results that `tuner evaluate` reads; sets of comparable calls with fewer than 60 times
are left out. A design is asked for batches of 1 % of the seconds that all of a set takes, and what
it asks for is taken from the file, with noise: each time is off by 3 % (standard deviation), and
its repetitions by 5 % from one another. Nothing is simulated. Prints for each share the mean
regret of the table that would be made, the part of calls at which it is slower than the default by
more than 5 %, and how often the expected regret is between the truth and three times the truth plus
one percentage point.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.bench.active_design import grids
from tests.support.replays import Grid
from tuner.base.statistics import NORMAL_95
from tuner.cli.terminal.output import print_table
from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import MIN_GAIN, Observation, group_by_point
from tuner.select.experiment_design import REPETITIONS, ExperimentDesign, measurement_cost

BATCH = 0.01  # share of the grid's seconds
LEAST_ROWS = 60  # of a set
NOISE = 0.03  # of a measurement
SPREAD = 0.05  # of its repetitions
MEDIAN_FACTOR = 1.25  # deviation of a median over that of a mean


@dataclass(frozen=True)
class Stage:
    """The quality of the table that would be made after a share of the seconds.

    regret      its true mean regret
    slower      part of the calls at which it is slower than the default by over `MIN_GAIN`
    expected    mean regret that the design expects
    """

    regret: float
    slower: float
    expected: float

    @property
    def is_expected_well(self) -> bool:
        """Return whether expected is at least the truth, and at most three times it and a point."""
        return self.regret <= self.expected <= 3 * self.regret + 0.01


def noisy(row: Observation, random: np.random.Generator) -> Observation:
    """Return what a probe would have measured."""
    middle = row.seconds * math.exp(NOISE * random.standard_normal())
    samples = tuple(middle * np.exp(SPREAD * random.standard_normal(REPETITIONS)))
    half = NORMAL_95 * MEDIAN_FACTOR * SPREAD / math.sqrt(REPETITIONS)
    found = float(np.median(samples))
    known = row.simulated_seconds
    return Observation(
        row.point, row.choice, {0: samples}, found, found / (1 + half), found * (1 + half), known
    )


def stage(grid: Grid, design: ExperimentDesign) -> Stage:
    """Return what the table of a design would be like now."""
    slower = list[bool]()
    for point, own in group_by_point(grid.rows).items():
        times = {row.choice: row.seconds for row in own}
        slower.append(times[design.choose(point)] > (1 + MIN_GAIN) * times[AlgorithmChoice()])
    return Stage(grid.regret(design), float(np.mean(slower)), design.regret_bound().expected)


def replay(grid: Grid, shares: Sequence[float], seed: int) -> list[Stage]:
    """Return the stages before anything is measured and after each share of the seconds."""
    random, design = np.random.default_rng(seed), grid.design(seed)
    known = {(row.point, row.choice): row for row in grid.rows}
    found = dict[object, Observation]()
    spent, stages = 0.0, [stage(grid, design)]
    for share in shares:
        while (left := share * grid.seconds - spent) > 1e-9 and (
            batch := design.next_batch(min(BATCH * grid.seconds, left), left)
        ):
            asked = [(task.point, one) for task in batch for one in task.choices]
            for pair in (pair for pair in asked if pair in known):
                spent += measurement_cost(known[pair].seconds)
                found[pair] = noisy(known[pair], random)
            design.update(found.values())
        stages.append(stage(grid, design))
    return stages


def cells(runs: Sequence[Sequence[Stage]]) -> list[str]:
    """Return the mean over seeds of regret and slower calls at each stage, in percent."""
    return [
        f"{100 * np.mean([one.regret for one in own]):.1f}"
        f" / {100 * np.mean([one.slower for one in own]):.1f}"
        for own in zip(*runs, strict=True)
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Regret after shares of a grid's seconds.")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--shares", default="0.5,5,10")
    parser.add_argument("--only", default="", help="word in the names of the sets")
    options = parser.parse_args()
    parts = [float(one) / 100 for one in options.shares.split(",")]
    every = {
        f"{path.stem}: {name}": [replay(grid, parts, seed) for seed in range(1, options.seeds + 1)]
        for path in options.files
        for name, grid in grids(path, None, None)
        if options.only in name and len(grid.rows) >= LEAST_ROWS
    }
    rows = [(name, *cells(runs)) for name, runs in every.items()]
    rows.append(("mean", *cells([run for runs in every.values() for run in runs])))
    columns = ("set", "default", *(f"{100 * part:g} %" for part in parts))
    print_table("regret / calls slower than the default, %", columns, rows, right=columns[1:])
    later = [one for runs in every.values() for run in runs for one in run[1:]]
    well = np.mean([one.is_expected_well for one in later])
    print(f"expected regret between the truth and three times it: {100 * well:.0f} % of stages")
