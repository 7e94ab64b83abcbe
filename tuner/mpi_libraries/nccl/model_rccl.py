"""RCCL's estimate of a call: NCCL's form, with tables by architecture and one more decision.

Source: as `rccl_constants`. RCCL's direct kernels (DDA) and copies by copy engines, which may run a
call of one node in place of rings, are not in this model.

Shares of the bandwidth, factors for sizes and 320 us for a hop of a ring between nodes serve the
choice alone: LL128 has a twelfth of what it reaches, and such rings take ten times as long. So
predictions have RCCL's latencies with a hop that takes no longer than a tree's, 25 us, and the rate
of the links less what the protocol adds to the bytes. Lines through the times of rings of 4 and
16 GiB on 2, 4 and 8 nodes of MI325X begin at 265, 224 and 628 us, those of predictions at 235, 503
and 1,039 us (times in tests/unit/mpi_libraries/test_rccl.py).
"""

from __future__ import annotations

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl.constants import (
    LL,
    LL128,
    NET_OVERHEAD_S,
    PROTOCOLS,
    RING,
    SIMPLE,
    TREE,
    US,
    AlgoProto,
)
from tuner.mpi_libraries.nccl.fabric import WIRE_BYTES
from tuner.mpi_libraries.nccl.model_v2_30 import LatencyBandwidth, ring_hops
from tuner.mpi_libraries.nccl.rccl_constants import (
    BASE_LATENCY,
    LARGE_JOB_GAIN,
    TUNINGS,
    RcclTuning,
)
from tuner.mpi_libraries.nccl.system import NcclSystem


def available_algo_protos(system: NcclSystem, collective: Collective) -> list[AlgoProto]:
    """Return the pairs that RCCL chooses between on this machine for this collective."""
    tuning = TUNINGS[system.architecture]
    algorithms = (TREE, RING) if collective is Collective.ALLREDUCE else (RING,)
    found = [AlgoProto(algorithm, protocol) for algorithm in algorithms for protocol in PROTOCOLS]
    lacking = set() if tuning.has_ll128 and system.nics_are_local else {LL128}
    no_simple_tree = system.nodes == 1 and not tuning.direct_trees
    return [
        way
        for way in found
        if way.protocol not in lacking and not (way == AlgoProto(TREE, SIMPLE) and no_simple_tree)
    ]


def cost_model(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto
) -> LatencyBandwidth:
    """Return latency and bandwidth of one of the available pairs."""
    carried = system.ring.channels * system.ring.bw_inter
    carried *= _ratio(system, collective, algo_proto)
    is_ring = algo_proto.algorithm == RING
    share = system.p / ring_hops(collective, system.p) if is_ring else 0.5
    return LatencyBandwidth(_latency(system, collective, algo_proto), carried * share)


def _ratio(system: NcclSystem, collective: Collective, algo_proto: AlgoProto) -> float:
    """Return the share of the rings' bandwidth that RCCL gives a pair for its choice."""
    tuning = TUNINGS[system.architecture]
    ratio = tuning.ratios[system.nodes > 2][algo_proto]
    gains = algo_proto == AlgoProto(RING, LL) and collective.is_rooted and system.nodes == 1
    return ratio * (tuning.rooted_gain if gains else 1.0)


def _latency(system: NcclSystem, collective: Collective, algo_proto: AlgoProto) -> float:
    """Return the seconds that RCCL counts for all hops, which follow one another."""
    tuning = TUNINGS[system.architecture]
    base, protocol = US * BASE_LATENCY[algo_proto.protocol], algo_proto.protocol
    across = US * _hop_between(system, algo_proto)
    if algo_proto.algorithm == TREE:
        levels = system.nodes.bit_length() - 1
        inside = US * tuning.inside[algo_proto]
        return base + 2 * ((system.ppn - 1) * inside + levels * across)
    if collective.is_rooted:
        hops = tuning.between if system.nodes > 1 else tuning.inside
        hop = hops[AlgoProto(TREE if protocol == SIMPLE else RING, protocol)]
        return base + US * ring_hops(collective, system.p) * hop
    return base + _ring_hops_seconds(system, collective, protocol, across)


def _hop_between(system: NcclSystem, algo_proto: AlgoProto) -> float:
    """Return the microseconds that RCCL counts for a hop between nodes."""
    alone = system.ppn == 1
    way = AlgoProto(TREE, algo_proto.protocol) if alone else algo_proto
    return TUNINGS[system.architecture].between[way]


def _ring_hops_seconds(
    system: NcclSystem, collective: Collective, protocol: str, across: float
) -> float:
    """Return the seconds of all hops of a ring.

    across  seconds of a hop between nodes
    """
    inside = US * TUNINGS[system.architecture].inside[AlgoProto(RING, protocol)]
    number, between = ring_hops(collective, system.p), 0
    if system.nodes > 1:
        post = NET_OVERHEAD_S.get(system.cpu_vendor, US) * (3 if protocol == SIMPLE else 1)
        inside = max(inside, post)
        between = ring_hops(collective, system.nodes)
    return (number - between) * inside + between * across


def sustained_latency(system: NcclSystem, collective: Collective, algo_proto: AlgoProto) -> float:
    """Return the latency of predictions, in which a ring's hop between nodes is a tree's at most.

    Broadcasts and reductions also pass hops inside nodes, which RCCL counts as hops between nodes.
    """
    protocol = algo_proto.protocol
    if algo_proto.algorithm == TREE or system.nodes == 1:
        return cost_model(system, collective, algo_proto).latency
    ways = algo_proto, AlgoProto(TREE, protocol)
    across = US * min(_hop_between(system, way) for way in ways)
    hops = _ring_hops_seconds(system, collective, protocol, across)
    return US * BASE_LATENCY[protocol] + hops


def size_factors(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, nbytes: int
) -> tuple[float, float]:
    """Return RCCL's factors of latency and bandwidth at a size."""
    tuning = TUNINGS[system.architecture]
    if algo_proto.algorithm == RING and system.nodes == 1:
        return 1.0, 1.0
    rows = tuning.tree_factors if algo_proto.algorithm == TREE else tuning.ring_factors
    row = rows[algo_proto.protocol]
    place = max(0, (nbytes >> 6).bit_length() - 1)
    return 1.0, row[min(place, len(row) - 1)]


def sustained_factors(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, _nbytes: int
) -> tuple[float, float]:
    """Return the factors of predictions: what the links carry less what the protocol adds."""
    ratio = _ratio(system, collective, algo_proto)
    return 1.0, 1.0 / (WIRE_BYTES[algo_proto.protocol] * ratio)


def run_algo_proto(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, nbytes: int
) -> AlgoProto:
    """Return what RCCL runs where it expects this pair to be fastest: it sets the protocol by size.

    On several nodes these are its limits of LL and LL128, on one node its own of LL. A size is that
    of the buffer in allreduces, of one rank's part of it in all others.
    """
    tuning = TUNINGS[system.architecture]
    each = nbytes if collective is Collective.ALLREDUCE else nbytes // system.p
    protocol = algo_proto.protocol
    if system.nodes > 1 and collective in tuning.limits:
        protocol = _limited_protocol(system, collective, each, tuning)
    elif system.nodes == 1 and each <= tuning.limits_inside.get(collective, -1):
        protocol = LL
    return AlgoProto(algo_proto.algorithm, protocol)


def _limited_protocol(
    system: NcclSystem, collective: Collective, nbytes: int, tuning: RcclTuning
) -> str:
    """Return the protocol of so many bytes on several nodes."""
    (low, high), (low128, high128) = tuning.limits[collective]
    if collective is Collective.ALLREDUCE and system.nodes > 2:
        high128 = int(high128 * LARGE_JOB_GAIN)
    if system.nics_are_local and low128 < nbytes <= high128:
        return LL128
    return LL if low < nbytes <= high else SIMPLE
