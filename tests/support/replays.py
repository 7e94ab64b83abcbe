"""The loop of active design on a grid whose times are all known already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.core.table import Choice
from tuner.select.dataset import NOISE, Point, Row, Simulate, by_point
from tuner.select.experiment_design import Bound, Design, price


@dataclass(frozen=True)
class Stage:
    """After a round: what was spent, in seconds, and how good the table would be."""

    spent: float
    regret: float
    bound: Bound


@dataclass(frozen=True)
class Grid:
    """Everything that was measured, and what measuring all of it costs in seconds.

    ran     what the default runs itself at a point, as far as it is known
    """

    rows: Sequence[Row]
    simulate: Simulate
    ran: Mapping[Point, Choice | None] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Of the whole grid."""
        return sum(price(row.typical) for row in self.rows)

    @property
    def choices(self) -> Mapping[Point, list[Choice]]:
        """The candidates at every point: not what the default runs itself."""
        return {
            point: [row.choice for row in own if row.choice != self.ran.get(point)]
            for point, own in by_point(self.rows).items()
        }

    def design(self, seed: int = 1, noise: float = NOISE) -> Design:
        """One that knows nothing of the grid yet but its simulated times."""
        return Design(self.choices, self.simulate, noise=noise, seed=seed)

    def regret(self, design: Design) -> float:
        """The true mean regret of the table that would be made."""
        losses = []
        for point, own in by_point(self.rows).items():
            times = {row.choice: row.typical for row in own}
            candidates = (times[choice] for choice in self.choices[point])
            losses.append(times[design.choose(point)] / min(candidates) - 1)
        return float(np.mean(losses))


def replay(grid: Grid, seconds: float, rounds: int, seed: int = 1) -> list[Stage]:
    """Of batches of so many seconds, until nothing is worth measuring; the first knows nothing."""
    known = {(row.point, row.choice): row for row in grid.rows}
    design, got, spent = grid.design(seed), dict[tuple[Point, Choice], Row](), 0.0
    stages = [Stage(0.0, grid.regret(design), design.bound())]
    for _ in range(rounds):
        batch = design.next(seconds)
        if not batch:
            break
        for task in batch:
            asked = {(task.point, choice) for choice in task.choices} & known.keys()
            spent += sum(price(known[pair].typical) for pair in asked)
            got |= {pair: known[pair] for pair in asked}
        design.learn(got.values())
        stages.append(Stage(spent, grid.regret(design), design.bound()))
    return stages
