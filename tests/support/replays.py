"""The loop of active design on a grid whose times are all known already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint, Observation, SimulateFunction, group_by_point
from tuner.select.experiment_design import ExperimentDesign, RegretBound, measurement_cost
from tuner.select.replay import Replay
from tuner.select.value_of_information import MAX_REGRET


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
        """The true mean regret of the table that would be made; `MAX_REGRET` of a call at most."""
        losses = []
        for point, own in group_by_point(self.rows).items():
            times = {row.choice: row.seconds for row in own}
            candidates = (times[choice] for choice in self.choices[point])
            losses.append(min(times[design.choose(point)] / min(candidates) - 1, MAX_REGRET))
        return float(np.mean(losses))


def replay(grid: Grid, seconds: float, rounds: int, seed: int = 1) -> list[Stage]:
    """Of batches of so many seconds, until nothing is worth measuring; the first knows nothing."""
    design = grid.design(seed)
    known = Replay(design, grid.rows)
    stages = [Stage(0.0, grid.regret(design), design.regret_bound())]
    for _ in range(rounds):
        if not known.measure_batch(seconds):
            break
        stages.append(Stage(known.spent, grid.regret(design), design.regret_bound()))
    return stages
