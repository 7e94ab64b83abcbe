"""The loop of active design on a grid whose times are all known already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint, Observation, SimulateFunction, group_by_point
from tuner.select.experiment_design import ExperimentDesign, RegretBound, measurement_cost


@dataclass(frozen=True)
class Stage:
    """After a round: what was spent, in seconds, and how good the table would be."""

    spent: float
    regret: float
    bound: RegretBound


@dataclass(frozen=True)
class Grid:
    """Everything that was measured, and what measuring all of it costs in seconds.

    ran     what the default runs itself at a point, as far as it is known
    """

    rows: Sequence[Observation]
    simulate: SimulateFunction
    ran: Mapping[CallPoint, AlgorithmChoice | None] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Of the whole grid."""
        return sum(measurement_cost(row.seconds) for row in self.rows)

    @property
    def choices(self) -> Mapping[CallPoint, list[AlgorithmChoice]]:
        """The candidates at every point: not what the default runs itself."""
        return {
            point: [row.choice for row in own if row.choice != self.ran.get(point)]
            for point, own in group_by_point(self.rows).items()
        }

    def design(self, seed: int = 1) -> ExperimentDesign:
        """One that knows nothing of the grid yet but its simulated times."""
        return ExperimentDesign(self.choices, self.simulate, seed=seed)

    def regret(self, design: ExperimentDesign) -> float:
        """The true mean regret of the table that would be made."""
        losses = []
        for point, own in group_by_point(self.rows).items():
            times = {row.choice: row.seconds for row in own}
            candidates = (times[choice] for choice in self.choices[point])
            losses.append(times[design.choose(point)] / min(candidates) - 1)
        return float(np.mean(losses))


def replay(grid: Grid, seconds: float, rounds: int, seed: int = 1) -> list[Stage]:
    """Of batches of so many seconds, until nothing is worth measuring; the first knows nothing."""
    known = {(row.point, row.choice): row for row in grid.rows}
    design = grid.design(seed)
    got = dict[tuple[CallPoint, AlgorithmChoice], Observation]()
    spent = 0.0
    stages = [Stage(0.0, grid.regret(design), design.regret_bound())]
    for _ in range(rounds):
        batch = design.next_batch(seconds)
        if not batch:
            break
        for task in batch:
            asked = {(task.point, choice) for choice in task.choices} & known.keys()
            spent += sum(measurement_cost(known[pair].seconds) for pair in asked)
            got |= {pair: known[pair] for pair in asked}
        design.update(got.values())
        stages.append(Stage(spent, grid.regret(design), design.regret_bound()))
    return stages
