"""Simulated times against the formulas of the docstrings, on the machine of the formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import ceil, floor, log2

import pytest

from tuner import algorithms
from tuner.algorithms.binary_blocks import BinaryBlocks
from tuner.core.calibration import Estimate, ReductionCost
from tuner.core.collective import Collective
from tuner.sim import simulate
from tuner.topology import Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

BCAST, REDUCE, ALLREDUCE = Collective.BCAST, Collective.REDUCE, Collective.ALLREDUCE
GATHER, SCATTER, BARRIER = Collective.GATHER, Collective.SCATTER, Collective.BARRIER
ALLGATHER, REDUCE_SCATTER = Collective.ALLGATHER, Collective.REDUCE_SCATTER
ALLTOALL = Collective.ALLTOALL
ALPHA = 1e-6
BETA = 1e-9
GAMMA = 0.5e-9

Formula = Callable[[int, float, float, float], float]
POWERS = (2, 4, 8, 16, 64)
EVEN = (2, 4, 6, 10, 14, 32)
ANY = (2, 3, 5, 7, 8, 11, 24)
FULL = (*ANY, 33, 34, 64, 66)
FOURS = (8, 12, 20, 44)  # groups of four
LARGE = (8, 16, 32, 64)  # powers of two for which chunks end away from home


def seconds(collective: Collective, name: str, p: int, m: int, **params: int) -> float:
    """On p nodes and one switch: alpha 1 us, 1 GB/s, gamma 0.5 ns/B."""
    record = {"name": "flat", "nodes": p, "latency": "1us", "bandwidth": "1GB/s"}
    placement = Placement.block(topology_from_yaml(record), 1)
    reduction = {"host": ReductionCost(Estimate.exact(0.0), Estimate.exact(GAMMA))}
    costs = replace(nominal_calibration(placement.topology), reduction=reduction)
    made = algorithms.build(collective, name, p, nbytes=m, params=params)
    return simulate(made, placement, costs, m)


def there_and_back(p: int, a: float, b: float, g: float) -> float:
    """A reduce and a bcast over a binomial tree of 2^L ranks."""
    levels = log2(p)
    return 2 * levels * (a + b) + levels * (levels + 1) / 2 * g


EXACT: list[tuple[Collective, str, tuple[int, ...], Formula]] = [  # a, b, g: of the whole buffer
    (BCAST, "binomial_distance_halving", ANY, lambda p, a, b, g: ceil(log2(p)) * (a + b)),
    (BCAST, "bine", ANY, lambda p, a, b, g: ceil(log2(p)) * (a + b)),
    (
        BCAST,
        "bine_scatter_allgather",
        POWERS,
        lambda p, a, b, g: 2 * log2(p) * a + 2 * (p - 1) / p * b,
    ),
    (REDUCE, "bine", ANY, lambda p, a, b, g: ceil(log2(p)) * (a + b + g)),
    (
        REDUCE,
        "rabenseifner",
        POWERS,
        lambda p, a, b, g: 2 * log2(p) * a + (p - 1) / p * (2 * b + g),
    ),
    (ALLREDUCE, "bine", POWERS, lambda p, a, b, g: 2 * log2(p) * a + (p - 1) / p * (2 * b + g)),
    (ALLREDUCE, "swing", POWERS, lambda p, a, b, g: 2 * log2(p) * a + (p - 1) / p * (2 * b + g)),
    (ALLREDUCE, "swing_latency", POWERS, lambda p, a, b, g: log2(p) * (a + b + g)),
    (
        ALLREDUCE,
        "binary_blocks",
        POWERS,
        lambda p, a, b, g: 2 * log2(p) * a + (p - 1) / p * (2 * b + g),
    ),
    (ALLREDUCE, "k_ring", ANY, lambda p, a, b, g: 2 * (p - 1) * a + (p - 1) / p * (2 * b + g)),
    (
        ALLREDUCE,
        "recursive_multiplying",
        (4, 16, 64),
        lambda p, a, b, g: log2(p) / 2 * (a + 3 * (b + g)),
    ),
    (REDUCE_SCATTER, "pairwise", ANY, lambda p, a, b, g: (p - 1) * a + (p - 1) / p * (b + g)),
    (REDUCE_SCATTER, "k_ring", ANY, lambda p, a, b, g: (p - 1) * a + (p - 1) / p * (b + g)),
    (REDUCE_SCATTER, "bine", LARGE, lambda p, a, b, g: (log2(p) + 1) * a + b + (p - 1) / p * g),
    (ALLGATHER, "bruck", ANY, lambda p, a, b, g: ceil(log2(p)) * a + (p - 1) / p * b),
    (ALLGATHER, "neighbor_exchange", EVEN, lambda p, a, b, g: p / 2 * a + (p - 1) / p * b),
    (ALLGATHER, "k_ring", ANY, lambda p, a, b, g: (p - 1) * a + (p - 1) / p * b),
    (
        ALLGATHER,
        "recursive_multiplying",
        (4, 16, 64),
        lambda p, a, b, g: log2(p) / 2 * a + (p - 1) / p * b,
    ),
    (ALLGATHER, "bine", LARGE, lambda p, a, b, g: (log2(p) + 1) * a + b),
    (GATHER, "bine", POWERS, lambda p, a, b, g: log2(p) * a + (p - 1) / p * b),
    (SCATTER, "bine", POWERS, lambda p, a, b, g: log2(p) * a + (p - 1) / p * b),
    (ALLTOALL, "linear", ANY, lambda p, a, b, g: a + (p - 1) / p * b),
    (ALLTOALL, "spread_out", FULL, lambda p, a, b, g: ceil((p - 1) / 32) * a + (p - 1) / p * b),
    (ALLTOALL, "pairwise", ANY, lambda p, a, b, g: (p - 1) * a + (p - 1) / p * b),
    (ALLTOALL, "pairwise_exchange", ANY, lambda p, a, b, g: (p - 1) * a + (p - 1) / p * b),
    (ALLTOALL, "bruck", POWERS, lambda p, a, b, g: log2(p) * (a + b / 2)),
    (ALLTOALL, "hypercube", POWERS, lambda p, a, b, g: log2(p) * (a + b / 2)),
    (ALLTOALL, "node_aware", FOURS, lambda p, a, b, g: p / 4 * a + (1.75 - 4 / p) * b),
    (
        ALLTOALL,
        "node_aware_bruck",
        LARGE,
        lambda p, a, b, g: (1 + log2(p / 4)) * a + (0.75 + log2(p / 4) / 2) * b,
    ),
    (ALLTOALL, "two_level", FOURS, lambda p, a, b, g: (p / 4 + 1) * a + (10 - 16 / p) * b),
    (
        ALLTOALL,
        "two_level_bruck",
        LARGE,
        lambda p, a, b, g: (2 + log2(p / 4)) * a + (6 + 2 * log2(p / 4)) * b,
    ),
    (BARRIER, "linear", POWERS, lambda p, a, b, g: 2 * a + (p - 1) * (2 * b + g)),
    (BARRIER, "binomial", POWERS, lambda p, a, b, g: there_and_back(p, a, b, g)),
    (BARRIER, "recursive_doubling", POWERS, lambda p, a, b, g: log2(p) * (a + b + g)),
    (BARRIER, "dissemination", ANY, lambda p, a, b, g: ceil(log2(p)) * (a + b + g)),
    (BARRIER, "double_ring", ANY, lambda p, a, b, g: 2 * p * (a + b + g)),
    (
        BARRIER,
        "two_level",
        (4, 8, 12, 20, 64),
        lambda p, a, b, g: there_and_back(4, a, b, g) + ceil(log2(p / 4)) * (a + b + g),
    ),
]


@pytest.mark.parametrize(("collective", "name", "ranks", "formula"), EXACT)
def test_closed_forms(
    collective: Collective, name: str, ranks: tuple[int, ...], formula: Formula
) -> None:
    for p in ranks:
        m = 5040 * p * 2
        expected = formula(p, ALPHA, m * BETA, m * GAMMA)
        assert seconds(collective, name, p, m) == pytest.approx(expected), p


@pytest.mark.parametrize("radix", [2, 3, 5])
def test_any_radix(radix: int) -> None:
    for hops in (1, 2, 3):
        p, m = radix**hops, 1000 * radix**hops
        whole = seconds(ALLREDUCE, "recursive_multiplying", p, m, radix=radix)
        assert whole == pytest.approx(hops * (ALPHA + (radix - 1) * m * (BETA + GAMMA)))
        parts = seconds(ALLGATHER, "recursive_multiplying", p, m, radix=radix)
        assert parts == pytest.approx(hops * ALPHA + (p - 1) / p * m * BETA)
        blocks = seconds(ALLTOALL, "bruck", p, m, radix=radix)
        assert blocks == pytest.approx(hops * (ALPHA + (radix - 1) / radix * m * BETA))


def between_runs(p: int, m: int, both_ways: bool) -> float:
    """What successive runs of ranks cost on top, at most."""
    sizes = [len(part.ranks) for part in BinaryBlocks.of(p).blocks]
    ways = 2 if both_ways else 1
    return sum(
        ways * ALPHA + m * (ways * BETA / small + GAMMA / large) for large, small in pairwise(sizes)
    )


@pytest.mark.parametrize("p", [3, 5, 6, 7, 13, 17, 24, 31, 33, 63])
@pytest.mark.parametrize("m", [63 * 64 * 32, 63 * 64 * 3200])
def test_bounds_of_binary_blocks(p: int, m: int) -> None:
    bits = floor(log2(p))
    largest = 1 << bits
    whole = 2 * bits * ALPHA + (largest - 1) / largest * m * (2 * BETA + GAMMA)
    assert seconds(ALLREDUCE, "binary_blocks", p, m) <= whole + between_runs(p, m, True)
    half = (bits + 1) * ALPHA + m * (BETA + GAMMA) + 2 / largest * m * BETA
    assert seconds(REDUCE_SCATTER, "binary_blocks", p, m) <= half + between_runs(p, m, False)


@pytest.mark.parametrize("p", [2, 3, 4, 7, 8, 9, 16, 21, 32, 33, 64])
@pytest.mark.parametrize("number", [2, 8, 64])
def test_bounds_of_the_double_tree(p: int, number: int) -> None:
    part = 4000
    rounds, a, b, g = 2 * ceil(log2(p)) + number, ALPHA, part * BETA, part * GAMMA
    call = {"p": p, "m": number * part, "segment": part}
    assert seconds(BCAST, "double_tree", **call) <= rounds * (a + b)
    assert seconds(REDUCE, "double_tree", **call) <= rounds * (a + b + g)
    assert seconds(ALLREDUCE, "double_tree", **call) <= rounds * (2 * a + 2 * b + g)


def test_the_double_tree_uses_all_of_the_bandwidth() -> None:
    """Where latencies are forgotten it takes half as long as a binary tree."""
    call = {"p": 16, "m": 64 << 20, "segment": 1 << 18}
    both, one = (seconds(BCAST, name, **call) for name in ("double_tree", "binary"))
    assert both < 0.55 * one
