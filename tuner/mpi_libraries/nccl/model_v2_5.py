"""The estimates of NCCL 2.5.6 and 2.8.4: rings and trees, LL, LL128 and Simple.

Constants of `src/graph/tuning.cc` of these releases; the rules of 2.8.4 are those that this file
has throughout 2.8. 2.5.6 is taken to correct nothing for size.
"""

from __future__ import annotations

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl import constants as of
from tuner.mpi_libraries.nccl.constants import GB, Way
from tuner.mpi_libraries.nccl.model_v2_30 import Line, correction, hops
from tuner.mpi_libraries.nccl.system import Fleet

RELEASES = ("2.5.6", "2.8.4")


def ways(fleet: Fleet, collective: Collective, release: str) -> list[Way]:
    """What these releases choose between: trees are for allreduce alone."""
    algorithms = [of.RING, of.TREE] if collective is Collective.ALLREDUCE else [of.RING]
    known = (of.VOLTA,) if release == "2.5.6" else (of.VOLTA, of.AMPERE)
    has_ll128 = fleet.generation in known and fleet.nvlink and fleet.near_nics
    protocols = [p for p in of.PROTOCOLS if p != of.LL128 or has_ll128]
    return [Way(algorithm, protocol) for algorithm in algorithms for protocol in protocols]


def factors(
    fleet: Fleet, collective: Collective, way: Way, nbytes: int, release: str
) -> tuple[float, float]:
    """What the release multiplies latency and bandwidth by at a size."""
    if release == "2.8.4" and way.algorithm == of.TREE:
        return 1.0, correction(of.TREE_CORRECTION_284[way.protocol], nbytes)
    plateau = release == "2.8.4" and fleet.nodes > 1 and collective is Collective.ALLREDUCE
    if way == Way(of.RING, of.SIMPLE) and plateau and nbytes >= fleet.p * 4096:
        return 1.9, 1.0
    return 1.0, 1.0


def line(fleet: Fleet, collective: Collective, way: Way, release: str) -> Line:
    """Latency and bandwidth of one of the `ways`."""
    rule = _early if release == "2.5.6" else _late
    carried = rule(fleet, collective, way)
    share = fleet.p / hops(collective, fleet.p) if way.algorithm == of.RING else 0.5
    return Line(_latency(fleet, collective, way, release), carried * share)


def _carried(fleet: Fleet, way: Way) -> float:
    graph = fleet.ring if way.algorithm == of.RING else fleet.tree
    return graph.channels * (graph.intra if fleet.nodes <= 2 else graph.inter)


def _early(fleet: Fleet, collective: Collective, way: Way) -> float:
    """Bytes per second on the links in 2.5.6."""
    carried = _carried(fleet, way)
    if way.algorithm == of.RING:
        if way.protocol == of.LL:
            return carried / 4
        if way.protocol == of.LL128:
            return min(carried * 120 / 128, of.RING_LL128_256[collective] * GB)
        return carried
    carried = min(0.9 * carried, (70 if fleet.nodes > 1 else 90) * GB)
    return carried * {of.LL: 1 / 3, of.LL128: 7 / 9, of.SIMPLE: 1.0}[way.protocol]


def _late(fleet: Fleet, collective: Collective, way: Way) -> float:
    """Bytes per second on the links in 2.8.4."""
    ampere = fleet.generation == of.AMPERE
    carried = min(_carried(fleet, way), 235 * GB) if ampere else _carried(fleet, way)
    cap = of.RING_LL128_284[collective] * GB
    if way.algorithm == of.RING:
        if way.protocol == of.LL:
            whole = collective in (Collective.ALLREDUCE, Collective.REDUCE)
            return carried / (4 if whole or fleet.nodes > 1 else 3)
        if way.protocol == of.LL128:
            share = 0.7 if fleet.ppn < 2 else 0.92
            return min(carried * share, cap * fleet.ring.channels)
        return carried
    quick = ampere and way.protocol == of.LL128
    most = (105 if quick else 80) if fleet.nodes > 2 else (130 if quick else 110)
    carried = min(0.9 * carried, most * GB)
    if way.protocol == of.LL:
        return carried / 3.8
    if way.protocol == of.LL128:
        share = 7 / 9 if fleet.nodes == 1 else 0.915
        return min(carried * share, cap * fleet.tree.channels * 7 / 9)
    return carried


def _latency(fleet: Fleet, collective: Collective, way: Way, release: str) -> float:
    table = of.TABLES[release]
    inside = (table.nvlink if fleet.nvlink else table.pci)[way]
    outside, several = table.net[way], fleet.nodes > 1
    if several and release == "2.8.4" and way.protocol == of.LL:
        inside *= 1.8
    if way.algorithm == of.TREE:
        levels = fleet.nodes.bit_length() - 1
        return table.base[way] + 2 * ((fleet.ppn - 1) * inside + levels * outside)
    number = hops(collective, fleet.p)
    if collective.rooted:
        chunked = way.protocol == of.SIMPLE and not fleet.same_channels
        hop = Way(of.TREE, way.protocol) if chunked else way
        one = (table.net if several else table.nvlink if fleet.nvlink else table.pci)[hop]
        return table.base[way] + (one if fleet.same_channels else number * one)
    if release == "2.5.6":
        return table.base[way] + number * (outside if several else inside)
    between = hops(collective, fleet.nodes) if several else 0
    return table.base[way] + (number - between) * inside + between * outside
