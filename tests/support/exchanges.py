"""All-to-alls at one switch with equal links; the same seed gives the same ones."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from tests.support.unequal_topologies import LATENCY, Case
from tuner.algorithms import algorithm_names, build
from tuner.core.collective import Collective
from tuner.core.ragged import with_block_sizes
from tuner.topology import Link, Node, Placement, Topology

RATE = 12.5e9  # bytes per second


def case_of(seed: int) -> Case:
    """Return the case of a seed: every second one ragged, with some blocks of no bytes."""
    draw = random.Random(seed)
    collective = (Collective.ALLTOALL, Collective.ALLTOALLV)[seed % 2]
    names = algorithm_names(collective)
    p, block = draw.randint(2, 20), draw.choice((64, 4096, 1 << 18))
    made = build(collective, names[seed // 2 % len(names)], p)
    if collective.is_ragged:
        sizes = np.random.default_rng(seed).integers(-block, 3 * block, (p, p)).clip(0)
        made = replace(with_block_sizes(made, sizes, p * block), algorithm=made.algorithm)
    return Case(seed, "switch", 1, made, one_switch(p), p * block)


def one_switch(p: int) -> Placement:
    """Return one rank on each of p nodes."""
    nodes = tuple(Node(f"n{number}") for number in range(p))
    links = []
    for node in nodes:
        links += [Link(node.name, "s0", RATE, 0.0), Link("s0", node.name, RATE, LATENCY)]
    return Placement.block(Topology("switch", nodes, ("s0",), tuple(links), LATENCY, 8e9), 1)
