"""SimGrid's exact times for a flat cluster and for fat trees, as calls of ours.

Behind them: one switch, or 16 hosts on each leaf and `uplinks` from each leaf, as
many spines; links of 1 us and 12.5e9 B/s full duplex, 16 bytes of envelope per message,
rendezvous, no reduction cost. Messages posted together share a port.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tuner import algorithms
from tuner.algorithms import allgather, bcast, reduce, scatter
from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, concat, make_schedule
from tuner.sim import simulate
from tuner.topology import Placement
from tuner.topology.readers.fabrics import FatTree, NetworkCable, OneSwitch, fabric_topology

ALLREDUCE, BCAST = Collective.ALLREDUCE, Collective.BCAST
ITEM = 4  # bytes per element in SimGrid's runs
SAME = {  # SimGrid's names for what we call otherwise
    "rdb": (ALLREDUCE, "recursive_doubling"),
    "rab_rdb": (ALLREDUCE, "rabenseifner"),
    "flattree": (BCAST, "linear"),
    "scatter_LR_allgather": (BCAST, "scatter_allgather_ring"),
    "scatter_rdb_allgather": (BCAST, "scatter_allgather"),
}


@lru_cache
def cluster(p: int, uplinks: int) -> Placement:
    """One rank on each of p hosts round one switch (no uplinks) or in a fat tree."""
    wire = NetworkCable(12.5e9, 1e-6)
    fabric = FatTree(wire, down=(16,), up=(uplinks,)) if uplinks else OneSwitch(wire)
    return Placement.block(fabric_topology("oracle", p, fabric), 1)


Price = Callable[[Schedule, int], float]


def price(made: Schedule, nbytes: int, engine: str, uplinks: int, *, shared: bool) -> float:
    """Seconds under the oracle's model."""
    shared_from = 0.0 if shared else math.inf
    given = Calibration(
        "oracle", "none", {}, nominal=True, header_bytes=16.0, port_sharing_threshold=shared_from
    )
    itemsize = ITEM if nbytes % ITEM == 0 and made.collective is ALLREDUCE else 1
    return simulate(made, cluster(made.p, uplinks), given, nbytes, itemsize, engine)


def seconds(algorithm: str, p: int, nbytes: int, engine: str, uplinks: int = 0) -> float:
    """Our time for one row of the oracle."""
    shared = algorithm == "rab1" or algorithm.startswith("NTSL")

    def priced(made: Schedule, nbytes: int) -> float:
        return price(made, nbytes, engine, uplinks, shared=shared)

    if algorithm == "lr":
        return _lr(p, nbytes, priced)
    return priced(_schedule(algorithm, p, nbytes), nbytes)


def _schedule(algorithm: str, p: int, nbytes: int) -> Schedule:
    if algorithm == "redbcast":
        return _redbcast(p)
    if algorithm == "ompi_pipeline":
        params = {"segment": min(nbytes, _pipeline_segment(p, nbytes))}
        return algorithms.build(BCAST, "pipeline", p, nbytes=nbytes, params=params)
    if algorithm == "binomial_tree":
        return _binomial(p)
    if algorithm.startswith("NTSL"):
        return _ntsl(p, nbytes)
    return _rab1(p) if algorithm == "rab1" else algorithms.build(*SAME[algorithm], p)


def _lr(p: int, nbytes: int, priced: Price) -> float:
    """A ring over the largest multiple of p elements, then redbcast of the rest."""
    share, rest = divmod(nbytes // ITEM, p)
    first = priced(algorithms.build(ALLREDUCE, "ring", p), share * p * ITEM) if share else 0.0
    return first + (priced(_redbcast(p), rest * ITEM) if rest else 0.0)


def _binomial(p: int) -> Schedule:
    """Far ranks first, as in a binomial scatter; ours serves near ones first, as Open MPI does."""
    rounds = [
        replace(r, src_chunk=r.src_chunk * 0, dst_chunk=r.dst_chunk * 0, count=r.count * 0 + 1)
        for r in scatter.binomial(p, 0).rounds()
    ]
    return make_schedule(BCAST, p, 1, rounds)


def _redbcast(p: int) -> Schedule:
    return concat(ALLREDUCE, reduce.linear(p, 0), bcast.binomial(p, 0, 0))


def _pipeline_segment(p: int, nbytes: int) -> int:
    """Open MPI's old fixed decision, as SimGrid has it."""
    for slope, base, segment in (
        (1.6134e-6, 2.1102, 128),
        (2.3679e-6, 1.1787, 64),
        (3.2118e-6, 8.7936, 16),
    ):
        if p < slope * nbytes + base:
            return segment * 1024
    return 128 * 1024


def _ntsl(p: int, nbytes: int) -> Schedule:
    """A chain whose 8 KiB segments are all posted at once, hop by hop."""
    segments = -(-nbytes // 8192)
    hops = [Round.of(rank, rank + 1, np.arange(segments)) for rank in range(p - 1)]
    return make_schedule(BCAST, p, segments, hops)


def _rab1(p: int) -> Schedule:
    """Everybody sends everybody its chunk at once, then allgather by recursive doubling."""
    src, dst = np.nonzero(~np.eye(p, dtype=bool))
    direct = make_schedule(Collective.REDUCE_SCATTER, p, p, [Round.of(src, dst, dst, reduce=1)])
    return concat(ALLREDUCE, direct, allgather.recursive_doubling(p))
