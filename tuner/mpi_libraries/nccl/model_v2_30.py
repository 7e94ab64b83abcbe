"""NCCL 2.30.7's estimate of a call: latency + bytes / bandwidth, and what it corrects for size.

Source: `src/tuning/` of NCCL 2.30.7, before that `src/graph/tuning.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl import constants as of
from tuner.mpi_libraries.nccl.constants import GB, US, Way
from tuner.mpi_libraries.nccl.system import Fleet, Graph

TABLE = of.TABLES["2.30.7"]
DIVIDED = (Collective.ALLGATHER, Collective.REDUCE_SCATTER)


@dataclass(frozen=True)
class Line:
    """Seconds of a call: latency + bytes / bandwidth; bytes of the whole buffer, as in NCCL."""

    latency: float
    bandwidth: float

    def seconds(self, nbytes: float, factors: tuple[float, float] = (1.0, 1.0)) -> float:
        """With what latency and bandwidth are multiplied by at this size."""
        return self.latency * factors[0] + nbytes / (self.bandwidth * factors[1])


def hops(collective: Collective, p: int) -> int:
    """Hops of a ring, one after another."""
    if collective is Collective.ALLREDUCE:
        return 2 * (p - 1)
    return p - 1 if collective in DIVIDED else p


def ways(fleet: Fleet, collective: Collective) -> list[Way]:
    """What NCCL chooses between on this machine for this collective."""
    several, reduces = fleet.nodes > 1, collective is Collective.ALLREDUCE
    found = [of.RING]
    if reduces:
        found.append(of.TREE)
    if fleet.nvswitch_reduction and fleet.heads is not None:
        if not several and (reduces or (collective in DIVIDED and fleet.ppn <= of.MOST_NVLS_RANKS)):
            found.append(of.NVLS)
        if several and reduces:
            found += [of.NVLS, of.NVLS_TREE] if fleet.switch_reduction else [of.NVLS_TREE]
    if several and reduces and fleet.switch_reduction:
        found += [of.COLLNET_DIRECT] * (fleet.heads is not None) + [of.COLLNET_CHAIN]
    if several and collective in DIVIDED and fleet.ppn == 1:
        found.append(of.PAT)
    made = [Way(a, p) for a in found for p in of.PROTOCOLS if Way(a, p) in TABLE.base]
    return [way for way in made if way.protocol != of.LL128 or _has_ll128(fleet)]


def _has_ll128(fleet: Fleet) -> bool:
    """LL128 relies on stores of 128 bytes arriving whole: Volta on, NVLink, NICs near the GPU."""
    return fleet.generation >= of.VOLTA and fleet.nvlink and (fleet.nodes == 1 or fleet.near_nics)


def line(fleet: Fleet, collective: Collective, way: Way) -> Line:
    """Latency and bandwidth of one of the `ways`."""
    return Line(_latency(fleet, collective, way), _bandwidth(fleet, collective, way))


def factors(fleet: Fleet, collective: Collective, way: Way, nbytes: int) -> tuple[float, float]:
    """What NCCL multiplies latency and bandwidth by at a size."""
    if way.algorithm == of.TREE:
        return 1.0, correction(of.TREE_CORRECTION_2307[way.protocol], nbytes)
    filled = nbytes // (fleet.ring.channels * fleet.p) >= 64
    if way == Way(of.RING, of.SIMPLE) and filled and _has_plateau(fleet, collective):
        return (1.9 if fleet.generation < of.AMPERE else 1.4), 1.0
    return 1.0, 1.0


def correction(factors: tuple[float, ...], nbytes: int) -> float:
    """The factor for a size: one per power of two from 64 bytes on, 1 outside."""
    place = (nbytes >> 6).bit_length() - 1
    return factors[place] if 0 <= place < len(factors) else 1.0


def _has_plateau(fleet: Fleet, collective: Collective) -> bool:
    """Where rings in Simple take longer than their latency says once messages fill the channels."""
    if fleet.nodes > 1:
        return collective is Collective.ALLREDUCE
    return fleet.generation >= of.BLACKWELL and fleet.nvlink and not collective.rooted


def _graph(fleet: Fleet, algorithm: str) -> Graph:
    if algorithm == of.RING:
        return fleet.ring
    if algorithm in (of.NVLS, of.NVLS_TREE, of.COLLNET_DIRECT):
        assert fleet.heads is not None
        return fleet.heads
    return fleet.tree


def _cap(table: Mapping[int, tuple[float, ...]], fleet: Fleet) -> float:
    """B/s: the row of the GPU generation, the column of one, two or more nodes."""
    return of.row(table, fleet.generation)[min(fleet.nodes, 3) - 1] * GB


def _ll_cap(fleet: Fleet) -> float:
    first = fleet.generation if fleet.nodes == 1 else of.LL_ROW_OF_CPU.get(fleet.cpu, of.VOLTA)
    return of.row(of.LL_CAP, first)[min(fleet.nodes, 3) - 1] * GB


def _bandwidth(fleet: Fleet, collective: Collective, way: Way) -> float:
    """Bytes of the user's buffer per second."""
    graph = _graph(fleet, way.algorithm)
    if way.algorithm == of.RING:
        carried = _ring(fleet, graph, way.protocol)
    elif way.algorithm == of.TREE:
        carried = _tree(fleet, graph, way.protocol)
    elif way.algorithm in (of.NVLS, of.NVLS_TREE):
        carried = _nvls(fleet, graph, collective, way.algorithm)
    elif way.algorithm == of.COLLNET_DIRECT:
        share = fleet.ppn / graph.channels
        carried = graph.channels * graph.intra / (share - (share - 1) / 2)
        carried *= 0.85 if fleet.generation >= of.HOPPER else 1.0
    elif way.algorithm == of.PAT:
        carried = 0.75 * graph.channels * _outside(fleet, graph)
    else:
        carried = graph.channels * graph.intra
    if way.algorithm == of.RING or (
        collective is Collective.ALLREDUCE and way.algorithm in (of.NVLS, of.NVLS_TREE)
    ):
        return carried * fleet.p / hops(collective, fleet.p)
    return carried if collective in DIVIDED else carried / 2


def _outside(fleet: Fleet, graph: Graph) -> float:
    """Up to two nodes NCCL reckons with what the channel carries inside them."""
    return graph.intra if fleet.nodes <= 2 else graph.inter


def _ring(fleet: Fleet, graph: Graph, protocol: str) -> float:
    carried = graph.channels * _outside(fleet, graph)
    if protocol == of.LL:
        return min(_ll_cap(fleet), carried / 2)
    if protocol == of.LL128:
        return min(0.92 * carried, graph.channels * _cap(of.RING_LL128_CAP, fleet))
    return carried


def _tree(fleet: Fleet, graph: Graph, protocol: str) -> float:
    speed = _outside(fleet, graph)
    if fleet.generation >= of.BLACKWELL:
        speed = min(graph.intra, graph.inter)
    carried = graph.channels * min(0.92 * speed, _cap(of.TREE_CAP, fleet))
    if protocol == of.LL:
        carried = min(carried / 3.8, _ll_cap(fleet))
    if protocol == of.LL128:
        share = 7 / 9 if fleet.nodes == 1 else 120 / 128
        carried = min(carried * share, graph.channels * _cap(of.TREE_LL128_CAP, fleet))
    return carried * (0.85 if fleet.ppn == 1 else 1.0)  # one GPU per node: the plain tree pattern


def _nvls(fleet: Fleet, graph: Graph, collective: Collective, algorithm: str) -> float:
    efficiency = of.row({g: (e,) for g, e in of.NVLS_EFFICIENCY.items()}, fleet.generation)[0]
    inside = graph.intra * efficiency * (graph.channels - 1) / graph.channels
    if collective is Collective.ALLREDUCE:
        inside *= 2  # reduce-scatter and allgather overlap
    else:
        inside *= (fleet.ppn - 1) / fleet.ppn
    if fleet.nodes == 1:
        return graph.channels * inside
    between = graph.inter
    if algorithm == of.NVLS_TREE:
        between = min(between * (2 if fleet.nodes == 2 else 1), _cap(of.NVLS_TREE_CAP, fleet))
    return graph.channels * min(inside, between)


def _latency(fleet: Fleet, collective: Collective, way: Way) -> float:
    inside = (TABLE.nvlink if fleet.nvlink else TABLE.pci)[way]
    if fleet.cpu == of.POWER and not fleet.nvlink and way == Way(of.TREE, of.SIMPLE):
        inside = TABLE.pci[Way(of.RING, of.SIMPLE)]
    alone = fleet.ppn == 1 and fleet.nodes > 1
    across = TABLE.net[Way(of.TREE, way.protocol) if alone else way]
    levels, local = fleet.nodes.bit_length() - 1, fleet.ppn - 1
    base = TABLE.base[way]
    if way.algorithm == of.RING:
        return base + _round_the_ring(fleet, collective, way.protocol, inside, across)
    if way.algorithm == of.TREE:
        return base + 2 * (local * inside + levels * across)
    if way.algorithm == of.COLLNET_DIRECT:
        return base + 2 * (min(1, local) * inside + 0.4 * US * local) + across
    if way.algorithm == of.COLLNET_CHAIN:
        return base + 2 * local * inside + across
    if way.algorithm == of.NVLS:
        return inside + (across if fleet.nodes > 1 else 0.0)
    if way.algorithm == of.NVLS_TREE:
        return base + inside + 2 * levels * across
    return base + levels * across / 3.5 + 2.8 * US * fleet.p


def _round_the_ring(
    fleet: Fleet, collective: Collective, protocol: str, inside: float, across: float
) -> float:
    """Seconds of all hops.

    Rooted collectives: one hop where all channels take one order; else every hop, which in Simple
    counts as a tree's, for the chunks that it holds.
    """
    number = hops(collective, fleet.p)
    if collective.rooted:
        chunked = protocol == of.SIMPLE and not fleet.same_channels
        where = TABLE.net if fleet.nodes > 1 else TABLE.nvlink if fleet.nvlink else TABLE.pci
        hop = where[Way(of.TREE if chunked else of.RING, protocol)]
        return hop if fleet.same_channels else number * hop
    between = 0
    if fleet.nodes > 1:
        post = of.NET_OVERHEAD.get(fleet.cpu, US) * (3 if protocol == of.SIMPLE else 1)
        inside = max(inside, post)
        between = hops(collective, fleet.nodes)
    return (number - between) * inside + between * across
