"""Candidates of a grid of calls, and their simulated times."""

import math
from collections.abc import Sequence

import numpy as np

from tests.support.replays import Grid
from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint, Observation, SimulateFunction

DEFAULT = AlgorithmChoice()
TREE = AlgorithmChoice("tree")
RING = AlgorithmChoice("ring")
SLOW = AlgorithmChoice("slow")


CHOICES = (DEFAULT, TREE, RING, SLOW)


NODES = (2, 4, 8, 16)
SIZES = tuple(4**k for k in range(2, 11))


def truth(point: CallPoint, choice: AlgorithmChoice) -> float:
    """The default takes the tree up to 1 KiB, then something bad; ring and tree cross."""
    n, p = point.nbytes, point.p
    if choice == TREE:
        return 1e-5 * math.log2(p) + 1e-9 * n * math.log2(p)
    if choice == RING:
        return 1e-5 * p + 2e-10 * n
    if choice == SLOW:
        return 1e-4 * p + 5e-9 * n
    return truth(point, TREE) * (1.0 if n <= 1024 else 1.8)


def simulated(point: CallPoint, choice: AlgorithmChoice) -> float:
    """Right but for a factor of each algorithm."""
    factors = {"tree": 1.1, "ring": 0.9, "slow": 0.8}
    return factors.get(choice.algorithm, math.nan) * truth(point, choice)


def grid(simulate: SimulateFunction = simulated, noise: float = 0.01, seed: int = 1) -> Grid:
    draw = np.random.default_rng(seed)
    rows = []
    for point in points():
        for choice in CHOICES:
            median = truth(point, choice) * math.exp(noise * draw.standard_normal())
            rows.append(
                Observation(
                    point,
                    choice,
                    {},
                    median,
                    median * (1 - noise),
                    median * (1 + noise),
                    simulate(point, choice),
                )
            )
    return Grid(rows, simulate)


def points() -> Sequence[CallPoint]:
    return [CallPoint("bcast", nodes, 1, "host", n) for nodes in NODES for n in SIZES]


def candidates() -> dict[CallPoint, tuple[AlgorithmChoice, ...]]:
    return dict.fromkeys(points(), CHOICES)
