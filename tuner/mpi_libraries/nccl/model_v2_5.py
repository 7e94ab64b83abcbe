"""The estimates of NCCL 2.5.6 and 2.8.4: rings and trees, LL, LL128 and Simple.

Constants of `src/graph/tuning.cc` of these releases; the rules of 2.8.4 are those that this file
has throughout 2.8. 2.5.6 is assumed not to correct for size.
"""

from __future__ import annotations

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl import constants as of
from tuner.mpi_libraries.nccl.constants import GB, AlgoProto
from tuner.mpi_libraries.nccl.model_v2_30 import LatencyBandwidth, correction_factor, ring_hops
from tuner.mpi_libraries.nccl.system import NcclSystem

RELEASES = ("2.5.6", "2.8.4")


def available_algo_protos(
    system: NcclSystem, collective: Collective, release: str
) -> list[AlgoProto]:
    """Return the pairs that these releases choose between; trees are for allreduce only."""
    algorithms = [of.RING, of.TREE] if collective is Collective.ALLREDUCE else [of.RING]
    known = (of.VOLTA,) if release == "2.5.6" else (of.VOLTA, of.AMPERE)
    has_ll128 = (
        system.compute_capability in known and system.rings_on_nvlink and system.nics_are_local
    )
    protocols = [p for p in of.PROTOCOLS if p != of.LL128 or has_ll128]
    return [AlgoProto(algorithm, protocol) for algorithm in algorithms for protocol in protocols]


def size_factors(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, nbytes: int, release: str
) -> tuple[float, float]:
    """Return the release's factors of latency and bandwidth at a size."""
    if release == "2.8.4" and algo_proto.algorithm == of.TREE:
        return 1.0, correction_factor(of.TREE_CORRECTION_284[algo_proto.protocol], nbytes)
    plateau = release == "2.8.4" and system.nodes > 1 and collective is Collective.ALLREDUCE
    if algo_proto == AlgoProto(of.RING, of.SIMPLE) and plateau and nbytes >= system.p * 4096:
        return 1.9, 1.0
    return 1.0, 1.0


def cost_model(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, release: str
) -> LatencyBandwidth:
    """Return latency and bandwidth of one of the available pairs."""
    rule = _bandwidth_2_5_6 if release == "2.5.6" else _bandwidth_2_8_4
    carried = rule(system, collective, algo_proto)
    share = system.p / ring_hops(collective, system.p) if algo_proto.algorithm == of.RING else 0.5
    return LatencyBandwidth(_latency(system, collective, algo_proto, release), carried * share)


def _channel_bandwidth(system: NcclSystem, algo_proto: AlgoProto) -> float:
    graph = system.ring if algo_proto.algorithm == of.RING else system.tree
    return graph.channels * (graph.bw_intra if system.nodes <= 2 else graph.bw_inter)


def _bandwidth_2_5_6(system: NcclSystem, collective: Collective, algo_proto: AlgoProto) -> float:
    """Return the bandwidth on the links (B/s) in 2.5.6."""
    carried = _channel_bandwidth(system, algo_proto)
    if algo_proto.algorithm == of.RING:
        if algo_proto.protocol == of.LL:
            return carried / 4
        if algo_proto.protocol == of.LL128:
            return min(carried * 120 / 128, of.RING_LL128_256[collective] * GB)
        return carried
    carried = min(0.9 * carried, (70 if system.nodes > 1 else 90) * GB)
    return carried * {of.LL: 1 / 3, of.LL128: 7 / 9, of.SIMPLE: 1.0}[algo_proto.protocol]


def _bandwidth_2_8_4(system: NcclSystem, collective: Collective, algo_proto: AlgoProto) -> float:
    """Return the bandwidth on the links (B/s) in 2.8.4."""
    ampere = system.compute_capability == of.AMPERE
    carried = (
        min(_channel_bandwidth(system, algo_proto), 235 * GB)
        if ampere
        else _channel_bandwidth(system, algo_proto)
    )
    cap = of.RING_LL128_284[collective] * GB
    if algo_proto.algorithm == of.RING:
        if algo_proto.protocol == of.LL:
            whole = collective in (Collective.ALLREDUCE, Collective.REDUCE)
            return carried / (4 if whole or system.nodes > 1 else 3)
        if algo_proto.protocol == of.LL128:
            share = 0.7 if system.ppn < 2 else 0.92
            return min(carried * share, cap * system.ring.channels)
        return carried
    quick = ampere and algo_proto.protocol == of.LL128
    most = (105 if quick else 80) if system.nodes > 2 else (130 if quick else 110)
    carried = min(0.9 * carried, most * GB)
    if algo_proto.protocol == of.LL:
        return carried / 3.8
    if algo_proto.protocol == of.LL128:
        share = 7 / 9 if system.nodes == 1 else 0.915
        return min(carried * share, cap * system.tree.channels * 7 / 9)
    return carried


def _latency(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, release: str
) -> float:
    table = of.LATENCY_TABLES[release]
    inside = (table.nvlink if system.rings_on_nvlink else table.pci)[algo_proto]
    outside, several = table.net[algo_proto], system.nodes > 1
    if several and release == "2.8.4" and algo_proto.protocol == of.LL:
        inside *= 1.8
    if algo_proto.algorithm == of.TREE:
        levels = system.nodes.bit_length() - 1
        return table.base[algo_proto] + 2 * ((system.ppn - 1) * inside + levels * outside)
    number = ring_hops(collective, system.p)
    if collective.is_rooted:
        chunked = algo_proto.protocol == of.SIMPLE and not system.same_ring_order
        hop = AlgoProto(of.TREE, algo_proto.protocol) if chunked else algo_proto
        one = (table.net if several else table.nvlink if system.rings_on_nvlink else table.pci)[hop]
        return table.base[algo_proto] + (one if system.same_ring_order else number * one)
    if release == "2.5.6":
        return table.base[algo_proto] + number * (outside if several else inside)
    between = ring_hops(collective, system.nodes) if several else 0
    return table.base[algo_proto] + (number - between) * inside + between * outside
