"""RCCL's estimate of a call: NCCL's form, with tables by architecture and one more decision.

Source: as `rccl_constants`. RCCL's direct kernels (DDA) and copies by copy engines, which may run a
call of one node in place of rings, are not in this model.

Shares of the bandwidth and factors for sizes serve the choice alone: LL128 has a twelfth of what it
reaches, and a ring between nodes takes ten times as long. So predictions have RCCL's latencies, and
the rate of the links less what the protocol adds to the bytes.
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
    tuning = TUNINGS[system.architecture]
    carried = system.ring.channels * system.ring.bw_inter
    carried *= tuning.ratios[system.nodes > 2][algo_proto]
    if algo_proto == AlgoProto(RING, LL) and collective.is_rooted and system.nodes == 1:
        carried *= tuning.rooted_gain
    is_ring = algo_proto.algorithm == RING
    share = system.p / ring_hops(collective, system.p) if is_ring else 0.5
    return LatencyBandwidth(_latency(system, collective, algo_proto, tuning), carried * share)


def _latency(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, tuning: RcclTuning
) -> float:
    """Return the seconds of all hops, which follow one another."""
    base, protocol = US * BASE_LATENCY[algo_proto.protocol], algo_proto.protocol
    inside, across = tuning.inside[algo_proto], tuning.between[algo_proto]
    if system.ppn == 1:
        across = tuning.between[AlgoProto(TREE, protocol)]
    if algo_proto.algorithm == TREE:
        levels = system.nodes.bit_length() - 1
        return base + 2 * US * ((system.ppn - 1) * inside + levels * across)
    number = ring_hops(collective, system.p)
    if collective.is_rooted:
        hops = tuning.between if system.nodes > 1 else tuning.inside
        return base + US * number * hops[AlgoProto(TREE if protocol == SIMPLE else RING, protocol)]
    between = ring_hops(collective, system.nodes) if system.nodes > 1 else 0
    post = NET_OVERHEAD_S.get(system.cpu_vendor, US) * (3 if protocol == SIMPLE else 1)
    local = max(inside * US, post) if between else inside * US
    return base + (number - between) * local + US * between * across


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
    system: NcclSystem, _collective: Collective, algo_proto: AlgoProto, _nbytes: int
) -> tuple[float, float]:
    """Return the factors of predictions: what the links carry less what the protocol adds."""
    ratio = TUNINGS[system.architecture].ratios[system.nodes > 2][algo_proto]
    return 1.0, 1.0 / (WIRE_BYTES[algo_proto.protocol] * ratio)


def run_algo_proto(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, nbytes: int
) -> AlgoProto:
    """Return what RCCL runs where it expects this pair to be fastest: it sets the protocol by size.

    On several nodes these are its limits of LL and LL128, on one node that of reduce-scatter.
    """
    tuning, each = TUNINGS[system.architecture], nbytes
    if collective.has_blocks or collective is Collective.BCAST:
        each = nbytes // system.p
    protocol = algo_proto.protocol
    if system.nodes > 1 and collective in tuning.limits:
        protocol = _limited_protocol(system, collective, each, tuning)
    elif collective is Collective.REDUCE_SCATTER and each <= tuning.scatter_limit:
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
