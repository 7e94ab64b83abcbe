"""Random topologies whose links differ, and calls on them; the same seed gives the same ones.

All latency is in the links into the nodes, so that flows that share a link have the same latency:
SimGrid weights flows by theirs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import pairwise

from tuner import algorithms
from tuner.base.errors import InputError, ScheduleError
from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule
from tuner.topology import Link, Node, Placement, Topology
from tuner.topology.readers.probed_topology import nominal_calibration

KINDS = ("switch", "trunks", "tree", "dragonfly")
LATENCY = 2e-6  # seconds of each path
PORT_RATES = (3e9, 6e9, 12.5e9, 25e9, 50e9)  # bytes per second of nodes
TRUNK_RATES = (1e9, 2.5e9, 12.5e9, 40e9, 100e9)  # and between switches
ALGORITHMS = {  # written out, so that a seed keeps its case when an algorithm is added
    Collective.BCAST: (
        *("linear", "chain", "pipeline", "binary", "split_binary", "binomial", "knomial"),
        *("scatter_allgather", "scatter_allgather_ring", "bine", "bine_scatter_allgather"),
        *("double_tree", "hierarchical"),
    ),
    Collective.ALLREDUCE: (
        *("linear", "nonoverlapping", "recursive_doubling", "ring", "segmented_ring"),
        *("rabenseifner", "binary_blocks", "bine", "double_tree", "hierarchical", "k_ring"),
        *("recursive_multiplying", "chain_binomial", "chain_of_chains", "shared_memory", "swing"),
        *("swing_latency", "two_level_ring", "two_level_recursive_doubling"),
        *("two_level_rabenseifner", "multi_leader"),
    ),
}


@dataclass(frozen=True)
class Case:
    """A call on a topology with unequal links."""

    seed: int
    kind: str
    ppn: int
    schedule: Schedule
    placement: Placement
    nbytes: int

    @property
    def name(self) -> str:
        """Name of the case, such as `trunks-7-allreduce-ring`."""
        schedule = self.schedule
        return f"{self.kind}-{self.seed}-{schedule.collective}-{schedule.algorithm}"


def case_of(seed: int) -> Case:
    """Return the case of a seed."""
    draw = random.Random(seed)
    kind, ppn = KINDS[seed % len(KINDS)], draw.choice((1, 1, 2, 4))
    nodes = draw.randint(4, 12)
    placement = Placement.block(_topology(draw, kind, nodes), ppn)
    nbytes = draw.choice((1 << 16, 1 << 20, 1 << 24)) * placement.p
    return Case(seed, kind, ppn, _schedule(draw, placement.p, nbytes), placement, nbytes)


def shared_ports(case: Case) -> Calibration:
    """Return the costs of the topology, with ports that messages share as in SimGrid."""
    return replace(
        nominal_calibration(case.placement.topology),
        port_sharing_threshold=0.0,
        separate_network_port=True,
    )


def _schedule(draw: random.Random, p: int, nbytes: int) -> Schedule:
    while True:
        collective = draw.choice(tuple(ALGORITHMS))
        name = draw.choice(ALGORITHMS[collective])
        entry = algorithms.describe(collective, name)
        params = {"segment": nbytes // 8} if "segment" in entry.params else {}
        try:
            made = algorithms.build(collective, name, p, nbytes=nbytes, params=params)
        except (InputError, ScheduleError):
            continue
        if not entry.requires and not made.staged and not made.fire_and_forget:
            return made


def _topology(draw: random.Random, kind: str, nodes: int) -> Topology:
    links, switches = list[Link](), ["s0"]
    if kind != "switch":
        switches = [f"s{number}" for number in range(draw.randint(2, 4))]
    for number in range(nodes):
        _join(links, f"n{number}", switches[number % len(switches)], draw.choice(PORT_RATES))
    if kind == "trunks":  # all switches in a row
        for one, other in pairwise(switches):
            _join(links, one, other, draw.choice(TRUNK_RATES))
    elif kind == "tree":
        for one in switches:
            _join(links, one, "root", draw.choice(TRUNK_RATES))
        switches.append("root")
    elif kind == "dragonfly":  # every switch is joined with every other one
        for at, one in enumerate(switches):
            for other in switches[at + 1 :]:
                _join(links, one, other, draw.choice(TRUNK_RATES))
    made = tuple(Node(f"n{number}", cores=4) for number in range(nodes))
    return Topology(kind, made, tuple(switches), tuple(links), LATENCY, 8e9)


def _join(links: list[Link], one: str, other: str, rate: float) -> None:
    """Add a link in both directions; only the one into a node has a latency."""
    links.append(Link(one, other, rate, 0.0))
    links.append(Link(other, one, rate, LATENCY if one.startswith("n") else 0.0))
