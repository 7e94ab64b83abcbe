"""What a probe would measure on a simulated cluster whose truth is known, with noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from tuner.core.calibration import Calibration, CostSegment, Estimate, PathCost, ReductionCost
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster, Measurement, Measurements
from tuner.core.schedule import Round, Schedule
from tuner.probe.pointtopoint import exchange_partners
from tuner.sim import simulate
from tuner.topology import Link, Node, Placement, Topology

SIZES = (8, 64, 512, 1024, 4096, 8192, 16384, 32768, 65536, 2**17, 2**18, 2**19, 2**20)
LIMIT = 60_000.0
OVERHEAD = 4e-6
# Latency and seconds per byte of messages up to LIMIT, and of longer ones.
SHORT = (9e-5, 1 / 12.41e6)
LONG = (7e-4, 1 / 12.41e6)
RATE = 12.5e6  # bytes per second of a host's link
UPLINK = 6.25e6  # bytes per second
DELAY = 50e-6  # seconds of a link


def racks(each: int, uplink: float = UPLINK) -> Topology:
    """Two racks of so many nodes, with one slower link each to a switch above."""
    nodes = tuple(Node(f"n{i}", 2) for i in range(2 * each))
    up = [("leaf0", "spine", uplink), ("leaf1", "spine", uplink)]
    down = [(node.name, f"leaf{i // each}", RATE) for i, node in enumerate(nodes)]
    links = tuple(
        Link(*ends, rate, DELAY) for a, b, rate in (*down, *up) for ends in ((a, b), (b, a))
    )
    return Topology("racks", nodes, ("leaf0", "leaf1", "spine"), links)


def truth() -> Calibration:
    """Eager and rendezvous messages, an overhead, a local sum."""
    exact = Estimate.exact
    segments = tuple(
        CostSegment(lo, hi, exact(alpha), exact(beta))
        for lo, hi, (alpha, beta) in ((0.0, LIMIT, SHORT), (LIMIT, math.inf, LONG))
    )
    network = PathCost(segments, LIMIT, exact(OVERHEAD))
    local = PathCost.from_alpha_beta(2e-6, 1 / 2e9)
    return Calibration(
        "racks",
        "openmpi 5.0.11",
        {("network", "host"): network, ("node", "host"): local},
        {"host": ReductionCost(exact(1e-7), exact(2e-10))},
    )


@dataclass(frozen=True)
class Machine:
    """A cluster to be probed.

    noise       relative standard deviation of a sample; one in twenty takes up to ten times longer
    drift       relative standard deviation of everything, launch by launch
    """

    topology: Topology
    calibration: Calibration
    noise: float = 0.01
    drift: float = 0.0
    seed: int = 0
    samples: int = 25
    launches: int = 1

    def one_way(self, hosts: Sequence[int], nbytes: int) -> float:
        """Seconds until messages from hosts[2i] to hosts[2i + 1], all at once, are there."""
        ranks = np.arange(len(hosts))
        schedule = Schedule(
            Collective.BCAST,
            len(hosts),
            1,
            lambda: [Round.of(ranks[::2], ranks[1::2], 0)],
            fire_and_forget=True,
        )
        placement = Placement(self.topology, np.array(hosts))
        return simulate(schedule, placement, self.calibration, nbytes)

    def burst(self, hosts: Sequence[int], nbytes: int, messages: int) -> float:
        """Seconds of messages posted together from the first to the second host."""
        schedule = Schedule(
            Collective.BCAST, 2, messages, lambda: [Round.of(0, 1, np.arange(messages))]
        )
        placement = Placement(self.topology, np.array(hosts))
        return simulate(schedule, placement, self.calibration, nbytes * messages)

    def rows(self, nbytes: int, count: int, ring: int, nodes: int = 0) -> float:
        """Seconds of `count` exchanges in a row, in pairs or round a ring.

        Of the first `nodes` nodes, or of all.
        """
        ranks = np.arange(nodes or len(self.topology.nodes))
        p = len(ranks)
        peers = [
            [exchange_partners(r, p, bool(ring), row)[0] for r in range(p)] for row in range(count)
        ]
        schedule = Schedule(
            Collective.BCAST,
            len(ranks),
            2 * len(ranks),
            lambda: [Round.of(ranks, to, ranks, dst_chunk=len(ranks) + ranks) for to in peers],
        )
        placement = Placement(self.topology, ranks)
        return simulate(schedule, placement, self.calibration, nbytes * 2 * len(ranks))

    def series(
        self, kind: str, subject: str, p: int, nbytes: int, seconds: float, **params: int
    ) -> Iterator[Measurement]:
        """One for each launch."""
        for launch in range(self.launches):
            name = crc32(repr((kind, subject, p, nbytes, sorted(params.items()), launch)).encode())
            rng = np.random.default_rng([self.seed, name])
            slow = math.exp(self.drift * np.random.default_rng([self.seed, launch]).normal())
            taken = seconds * slow * np.exp(self.noise * rng.standard_normal(self.samples))
            late = rng.random(self.samples) < 0.05
            taken = np.where(late, taken * rng.uniform(1, 10, self.samples), taken)
            yield Measurement(
                kind, subject, 2, 1, p, nbytes, tuple(taken.tolist()), params=params, launch=launch
            )

    def messages(self) -> Iterator[Measurement]:
        """Between the first two hosts alone."""
        for nbytes in SIZES:
            seconds = self.one_way([0, 1], nbytes)
            yield from self.series("pingpong", "network", 2, nbytes, seconds)
        for count in (1, 33):
            seconds = self.burst([0, 1], 8, count)
            yield from self.series("burst", "network", 2, 8, seconds, messages=count)
        yield from self.series("eager", "network", 2, int(LIMIT), 2e-3)

    def crowds(self, subject: str, pairs: Sequence[tuple[int, int]]) -> Iterator[Measurement]:
        """Through something shared, more and more pairs at once."""
        for k in (1, 2, 4):
            if k <= len(pairs):
                hosts = [host for pair in pairs[:k] for host in pair]
                for nbytes in (8, 2**16, 2**18, 2**20):
                    seconds = self.one_way(hosts, nbytes)
                    yield from self.series("pairs", subject, 2 * k, nbytes, seconds)

    def sweep(self) -> Iterator[Measurement]:
        """Every host with every other, at two sizes."""
        count = len(self.topology.nodes)
        for first in range(count):
            for second in range(first + 1, count):
                for nbytes in (1024, 2**18):
                    seconds = self.one_way([first, second], nbytes)
                    yield from self.series(
                        "sweep", "network", 2, nbytes, seconds, first=first, second=second
                    )

    def measured(self, *parts: Iterator[Measurement]) -> Measurements:
        """As a probe writes them down."""
        nodes = len(self.topology.nodes)
        return Measurements(
            Cluster("racks", nodes, 2, "cpu", 2**33),
            "openmpi 5.0.11",
            {"hosts": [node.name for node in self.topology.nodes]},
            tuple(one for part in parts for one in part),
        )
