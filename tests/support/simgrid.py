"""SimGrid's exact times for a flat cluster, as calls of ours.

Model behind them: one switch, 2 us end to end, 12.5e9 B/s full duplex, 16 bytes of envelope per
message, rendezvous, no reduction cost. Messages posted together share a port.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from tuner import algorithms
from tuner.algorithms import allgather, bcast, reduce
from tuner.collective import Collective
from tuner.cost import Calibration
from tuner.schedule import Round, Schedule, concat, schedule
from tuner.sim import simulate
from tuner.topologies.short import topology_from
from tuner.topology import Placement

ALLREDUCE, BCAST = Collective.ALLREDUCE, Collective.BCAST
ITEM = 4  # bytes per element in SimGrid's runs
SAME = {  # SimGrid's names for what we call otherwise
    "rdb": (ALLREDUCE, "recursive_doubling"), "rab_rdb": (ALLREDUCE, "rabenseifner"),
    "binomial_tree": (BCAST, "binomial"), "flattree": (BCAST, "linear"),
    "scatter_LR_allgather": (BCAST, "scatter_allgather_ring"),
    "scatter_rdb_allgather": (BCAST, "scatter_allgather"),
}  # fmt: skip


@lru_cache
def flat(p: int) -> Placement:
    """One rank on each of p nodes round one switch."""
    record = {"name": f"flat{p}", "nodes": p, "latency": "2us", "bandwidth": "12.5GB/s"}
    return Placement.consecutive(topology_from(record), 1)


def price(made: Schedule, nbytes: int, engine: str, *, shared: bool = False) -> float:
    """Seconds under the oracle's model."""
    shared_from = 0.0 if shared else math.inf
    given = Calibration("oracle", "none", {}, given=True, envelope=16.0, shared_from=shared_from)
    itemsize = ITEM if nbytes % ITEM == 0 and made.collective is ALLREDUCE else 1
    return simulate(made, flat(made.p), given, nbytes, itemsize, engine)


def seconds(algorithm: str, p: int, nbytes: int, engine: str) -> float:
    """Our time for one row of the oracle."""
    if algorithm == "lr":
        return _lr(p, nbytes, engine)
    if algorithm == "redbcast":
        return price(_redbcast(p), nbytes, engine)
    if algorithm == "ompi_pipeline":
        params = {"segment": min(nbytes, _pipeline_segment(p, nbytes))}
        made = algorithms.build(BCAST, "pipeline", p, nbytes=nbytes, params=params)
        return price(made, nbytes, engine)
    if algorithm.startswith("NTSL"):
        return price(_ntsl(p, nbytes), nbytes, engine, shared=True)
    if algorithm == "rab1":
        return price(_rab1(p), nbytes, engine, shared=True)
    return price(algorithms.build(*SAME[algorithm], p), nbytes, engine)


def _lr(p: int, nbytes: int, engine: str) -> float:
    """A ring over the largest multiple of p elements, then redbcast of the rest."""
    share, rest = divmod(nbytes // ITEM, p)
    ring = algorithms.build(ALLREDUCE, "ring", p)
    first = price(ring, share * p * ITEM, engine) if share else 0.0
    return first + (price(_redbcast(p), rest * ITEM, engine) if rest else 0.0)


def _redbcast(p: int) -> Schedule:
    return concat(ALLREDUCE, reduce.linear(p, 0), bcast.binomial(p, 0, 0))


def _pipeline_segment(p: int, nbytes: int) -> int:
    """Open MPI's old fixed decision, as SimGrid has it."""
    for slope, base, segment in (
        (1.6134e-6, 2.1102, 128), (2.3679e-6, 1.1787, 64), (3.2118e-6, 8.7936, 16),
    ):  # fmt: skip
        if p < slope * nbytes + base:
            return segment * 1024
    return 128 * 1024


def _ntsl(p: int, nbytes: int) -> Schedule:
    """A chain whose 8 KiB segments are all posted at once, hop by hop."""
    segments = -(-nbytes // 8192)
    hops = [Round.of(rank, rank + 1, np.arange(segments)) for rank in range(p - 1)]
    return schedule(BCAST, p, segments, hops)


def _rab1(p: int) -> Schedule:
    """Everybody sends everybody its chunk at once, then allgather by recursive doubling."""
    src, dst = np.nonzero(~np.eye(p, dtype=bool))
    direct = schedule(Collective.REDUCE_SCATTER, p, p, [Round.of(src, dst, dst, reduce=1)])
    return concat(ALLREDUCE, direct, allgather.recursive_doubling(p))
