"""The estimate of a call in NCCL from 2.27 on: latency + bytes / bandwidth, corrected for the size.

Source: `src/graph/tuning.cc` of NCCL 2.27.3 to 2.30.7, `src/tuning/` of 2.31.2 and 2.32.3. Not
modelled: the correction of NVLSTree on hosts with ARM CPUs from 2.31 on, the cap of LL on one node
of Blackwell, which 2.32.3 raised by 0.4 GB/s, and Rubin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl import constants as of
from tuner.mpi_libraries.nccl.constants import CURRENT, GB, US, AlgoProto, Release
from tuner.mpi_libraries.nccl.system import ChannelGraph, NcclSystem

LATENCY_TABLE = of.LATENCY_TABLES["2.30.7"]


@dataclass(frozen=True)
class LatencyBandwidth:
    """A model of a call's seconds: latency + bytes / bandwidth, for bytes of the whole buffer."""

    latency: float
    bandwidth: float

    def seconds(self, nbytes: float, factors: tuple[float, float] = (1.0, 1.0)) -> float:
        """Return the seconds of a call.

        factors     of latency and bandwidth at this size
        """
        return self.latency * factors[0] + nbytes / (self.bandwidth * factors[1])


def ring_hops(collective: Collective, p: int) -> int:
    """Return the number of consecutive hops of a ring."""
    if collective is Collective.ALLREDUCE:
        return 2 * (p - 1)
    return p - 1 if collective.has_blocks else p


def hops_inside(system: NcclSystem, collective: Collective, algorithm: str) -> int:
    """Return the number of consecutive hops inside nodes."""
    local = system.ppn - 1
    if algorithm == of.RING:
        between = ring_hops(collective, system.nodes) if system.nodes > 1 else 0
        return ring_hops(collective, system.p) - between
    if algorithm in (of.TREE, of.COLLNET_CHAIN):
        return 2 * local
    if algorithm == of.COLLNET_DIRECT:
        return 2 * min(1, local)
    return 1 if algorithm in (of.NVLS, of.NVLS_TREE) else 0


def available_algo_protos(system: NcclSystem, collective: Collective) -> list[AlgoProto]:
    """Return the pairs that NCCL chooses between on this machine for this collective."""
    several, reduces = system.nodes > 1, collective is Collective.ALLREDUCE
    found = [of.RING]
    if reduces:
        found.append(of.TREE)
    if system.nvswitch_reduction and system.head_channels is not None:
        if not several and (reduces or (collective.has_blocks and system.ppn <= of.MAX_NVLS_RANKS)):
            found.append(of.NVLS)
        if several and reduces:
            found += [of.NVLS, of.NVLS_TREE] if system.switch_reduction else [of.NVLS_TREE]
    if several and reduces and system.switch_reduction:
        found += [of.COLLNET_DIRECT] * (system.head_channels is not None) + [of.COLLNET_CHAIN]
    if several and collective.has_blocks and system.ppn == 1:
        found.append(of.PAT)
    made = [
        AlgoProto(a, p)
        for a in found
        for p in of.PROTOCOLS
        if AlgoProto(a, p) in LATENCY_TABLE.base
    ]
    return [way for way in made if way.protocol != of.LL128 or _has_ll128(system)]


def _has_ll128(system: NcclSystem) -> bool:
    """Return whether LL128 is available: it relies on stores of 128 bytes arriving whole.

    They do from Volta on, over NVLink, with NICs near the GPU.
    """
    return (
        system.compute_capability >= of.VOLTA
        and system.rings_on_nvlink
        and (system.nodes == 1 or system.nics_are_local)
    )


def cost_model(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, release: Release = CURRENT
) -> LatencyBandwidth:
    """Return latency and bandwidth of one of the available pairs."""
    return LatencyBandwidth(
        _latency(system, collective, algo_proto, release),
        _bandwidth(system, collective, algo_proto, release),
    )


def sustained_bandwidth(system: NcclSystem, collective: Collective, algo_proto: AlgoProto) -> float:
    """Return the bandwidth of predictions, in which rings in LL have no cap but their channels'.

    That is on one node of Hopper and later, where half of what the links carry is flags.
    """
    in_ll = algo_proto == AlgoProto(of.RING, of.LL) and system.compute_capability >= of.HOPPER
    if not in_ll or system.nodes > 1:
        return cost_model(system, collective, algo_proto).bandwidth
    of_channels = system.opened_channels * of.LL_CHANNEL * system.rate_factor * GB
    carried = min(of_channels, system.ring.channels * system.ring.bw_intra / 2)
    return carried * system.p / ring_hops(collective, system.p)


def size_factors(
    system: NcclSystem,
    collective: Collective,
    algo_proto: AlgoProto,
    nbytes: int,
    release: Release = CURRENT,
) -> tuple[float, float]:
    """Return NCCL's factors of latency and bandwidth at a size."""
    corrected = release.corrects_nvls_tree and _is_blackwell(system)
    if algo_proto.algorithm == of.NVLS_TREE and corrected and system.cpu_vendor in of.X86:
        return 1.0, correction_factor(of.NVLS_TREE_CORRECTION, nbytes)
    return sustained_factors(system, collective, algo_proto, nbytes, release)


def sustained_factors(
    system: NcclSystem,
    collective: Collective,
    algo_proto: AlgoProto,
    nbytes: int,
    release: Release = CURRENT,
) -> tuple[float, float]:
    """Return the factors of predictions, in which NVLSTree fills buffers instead."""
    if algo_proto.algorithm == of.TREE:
        return 1.0, correction_factor(of.TREE_CORRECTION_2307[algo_proto.protocol], nbytes)
    of_channel = nbytes // (system.opened_channels * system.p)
    if algo_proto == AlgoProto(of.RING, of.SIMPLE) and of_channel >= 64:
        return _plateau(system, collective, of_channel, release), 1.0
    return 1.0, 1.0


def correction_factor(factors: tuple[float, ...], nbytes: int) -> float:
    """Return the factor for a size: one per power of two from 64 bytes on, 1 outside."""
    place = (nbytes >> 6).bit_length() - 1
    return factors[place] if 0 <= place < len(factors) else 1.0


def _is_blackwell(system: NcclSystem) -> bool:
    return system.compute_capability >= of.BLACKWELL


def _plateau(
    system: NcclSystem, collective: Collective, of_channel: int, release: Release
) -> float:
    """Return the factor of a ring's latency in Simple once messages fill the channels.

    of_channel  bytes of a rank for each channel
    """
    whole = of.PLATEAU if system.compute_capability >= of.AMPERE else of.PLATEAU_BEFORE_AMPERE
    if system.nodes > 1:
        return whole if collective is Collective.ALLREDUCE else 1.0
    on_blackwell = _is_blackwell(system) and system.rings_on_nvlink
    if not on_blackwell or collective not in release.plateau:
        return 1.0
    if not release.grades_plateau:
        return whole
    above = whole - 1.0
    reached = 1.0 - (of.PLATEAU_FALL / above) ** (ring_hops(collective, system.p) - 1)
    fallen = min(1.0, max(0.0, of_channel / of.PLATEAU_BYTES - 1.0))
    return 1.0 + reached * (above - of.PLATEAU_FALL * fallen)


def graph_of_algorithm(system: NcclSystem, algorithm: str) -> ChannelGraph:
    """Return the channels that an algorithm uses."""
    if algorithm == of.RING:
        return system.ring
    if algorithm in (of.NVLS, of.NVLS_TREE, of.COLLNET_DIRECT):
        assert system.head_channels is not None
        return system.head_channels
    return system.tree


def _cap(table: Mapping[int, of.Caps], system: NcclSystem) -> float:
    """Return the cap (B/s) for the compute capability on one, two or more nodes."""
    return of.table_row(table, system.compute_capability)[min(system.nodes, 3) - 1] * (
        system.rate_factor * GB
    )


def ll_cap(system: NcclSystem) -> float:
    """Return the bytes per second that NCCL allows to all channels together in LL."""
    first = (
        system.compute_capability
        if system.nodes == 1
        else of.LL_CAP_ROW_OF_CPU.get(system.cpu_vendor, of.VOLTA)
    )
    cap = of.table_row(of.LL_CAP, first)[min(system.nodes, 3) - 1]
    return cap * system.rate_factor * GB


def _bandwidth(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, release: Release
) -> float:
    """Return the bandwidth in bytes of the user's buffer per second."""
    graph = graph_of_algorithm(system, algo_proto.algorithm)
    if algo_proto.algorithm == of.RING:
        carried = _ring_bandwidth(system, graph, algo_proto.protocol, release)
    elif algo_proto.algorithm == of.TREE:
        carried = _tree_bandwidth(system, graph, algo_proto.protocol, release)
    elif algo_proto.algorithm in (of.NVLS, of.NVLS_TREE):
        carried = _nvls_bandwidth(system, graph, collective, algo_proto.algorithm, release)
    elif algo_proto.algorithm == of.COLLNET_DIRECT:
        share = system.ppn / graph.channels
        carried = graph.channels * graph.bw_intra / (share - (share - 1) / 2)
        carried *= 0.85 if system.compute_capability >= of.HOPPER else 1.0
    elif algo_proto.algorithm == of.PAT:
        carried = 0.75 * graph.channels * _speed_between_nodes(system, graph)
    else:
        carried = graph.channels * graph.bw_intra
    reduces_in_nvswitch = algo_proto.algorithm in (of.NVLS, of.NVLS_TREE)
    if reduces_in_nvswitch and collective is Collective.ALLREDUCE and not release.has_efficiency:
        return carried * 5 / 6
    if algo_proto.algorithm == of.RING or (
        reduces_in_nvswitch and collective is Collective.ALLREDUCE
    ):
        return carried * system.p / ring_hops(collective, system.p)
    return carried if collective.has_blocks else carried / 2


def _speed_between_nodes(system: NcclSystem, graph: ChannelGraph) -> float:
    """Return a channel's bandwidth; on up to two nodes NCCL takes that inside a node."""
    return graph.bw_intra if system.nodes <= 2 else graph.bw_inter


def _ring_bandwidth(
    system: NcclSystem, graph: ChannelGraph, protocol: str, release: Release
) -> float:
    carried = graph.channels * _speed_between_nodes(system, graph)
    if protocol == of.LL:
        return min(ll_cap(system), carried / 2)
    if protocol == of.LL128:
        caps = {**of.RING_LL128_CAP, of.BLACKWELL: release.ring_ll128}
        return min(0.92 * carried, graph.channels * _cap(caps, system))
    return carried


def _tree_bandwidth(
    system: NcclSystem, graph: ChannelGraph, protocol: str, release: Release
) -> float:
    speed = _speed_between_nodes(system, graph)
    if _is_blackwell(system) and release.takes_slower_speed:
        speed = min(graph.bw_intra, graph.bw_inter)
    caps = {**of.TREE_CAP, of.BLACKWELL: release.tree}
    carried = graph.channels * min(0.92 * speed, _cap(caps, system))
    if protocol == of.LL:
        carried = min(carried / 3.8, ll_cap(system))
    if protocol == of.LL128:
        share = 7 / 9 if system.nodes == 1 else 120 / 128
        caps = {**of.TREE_LL128_CAP, of.BLACKWELL: release.tree_ll128}
        carried = min(carried * share, graph.channels * _cap(caps, system))
    return carried * (0.85 if system.ppn == 1 else 1.0)  # one GPU per node: the plain tree pattern


def _nvls_bandwidth(
    system: NcclSystem,
    graph: ChannelGraph,
    collective: Collective,
    algorithm: str,
    release: Release,
) -> float:
    if not release.has_efficiency:
        return graph.channels * _nvls_speed_of_2_27(system, graph, collective, algorithm)
    efficiency = of.table_row(of.NVLS_EFFICIENCY, system.compute_capability)
    inside = graph.bw_intra * efficiency * (graph.channels - 1) / graph.channels
    if collective is Collective.ALLREDUCE:
        inside *= 2  # reduce-scatter and allgather overlap
    else:
        inside *= (system.ppn - 1) / system.ppn
    if system.nodes == 1:
        return graph.channels * inside
    between = graph.bw_inter
    if algorithm == of.NVLS_TREE:
        caps = {**of.NVLS_TREE_CAP, of.BLACKWELL: release.nvls_tree}
        between = min(between * (2 if system.nodes == 2 else 1), _cap(caps, system))
    return graph.channels * min(inside, between)


def _nvls_speed_of_2_27(
    system: NcclSystem, graph: ChannelGraph, collective: Collective, algorithm: str
) -> float:
    """Return the bandwidth of a channel (B/s)."""
    if algorithm == of.NVLS_TREE:
        return min(graph.bw_intra, graph.bw_inter / (2 if system.nodes > 2 else 1))
    if collective is Collective.ALLREDUCE:
        return min(graph.bw_intra, graph.bw_inter)
    return min(graph.bw_intra * (system.ppn - 1) / system.ppn, 0.9 * graph.bw_inter)


def sustained_latency(system: NcclSystem, collective: Collective, algo_proto: AlgoProto) -> float:
    """Return the latency of predictions: rings pass all hops, also where NCCL counts one."""
    if algo_proto.algorithm != of.RING:
        return _latency(system, collective, algo_proto, CURRENT)
    inside, across = _hop_latencies(system, algo_proto)
    base = LATENCY_TABLE.base[algo_proto]
    return base + _all_hops(system, collective, algo_proto.protocol, inside, across)


def _hop_latencies(
    system: NcclSystem, algo_proto: AlgoProto, release: Release = CURRENT
) -> tuple[float, float]:
    """Return the seconds of a hop inside a node and of one between nodes."""
    inside = (LATENCY_TABLE.nvlink if system.rings_on_nvlink else LATENCY_TABLE.pci)[algo_proto]
    if (
        system.cpu_vendor == of.POWER
        and not system.rings_on_nvlink
        and algo_proto == AlgoProto(of.TREE, of.SIMPLE)
    ):
        inside = LATENCY_TABLE.pci[AlgoProto(of.RING, of.SIMPLE)]
    if algo_proto.algorithm == of.NVLS_TREE:
        return inside, release.nvls_tree_hop * US
    alone = system.ppn == 1 and system.nodes > 1
    across = LATENCY_TABLE.net[AlgoProto(of.TREE, algo_proto.protocol) if alone else algo_proto]
    return inside, across


def _latency(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, release: Release
) -> float:
    inside, across = _hop_latencies(system, algo_proto, release)
    base = LATENCY_TABLE.base[algo_proto]
    if algo_proto.algorithm == of.RING:
        return base + _ring_latency(system, collective, algo_proto.protocol, inside, across)
    levels = system.nodes.bit_length() - 1
    further = {
        of.TREE: 2 * levels * across,
        of.COLLNET_DIRECT: 0.8 * US * (system.ppn - 1) + across,
        of.COLLNET_CHAIN: across,
        of.NVLS: across if system.nodes > 1 else 0.0,
        of.NVLS_TREE: 2 * levels * across,
        of.PAT: levels * across / 3.5 + 2.8 * US * system.p,
    }
    hops = hops_inside(system, collective, algo_proto.algorithm)
    return base + hops * inside + further[algo_proto.algorithm]


def _ring_latency(
    system: NcclSystem, collective: Collective, protocol: str, inside: float, across: float
) -> float:
    """Return the seconds of all hops.

    Rooted collectives: one hop where all channels take one order; else every hop, which in Simple
    counts as a tree's, for the chunks that it holds.
    """
    number = ring_hops(collective, system.p)
    if collective.is_rooted:
        chunked = protocol == of.SIMPLE and not system.same_ring_order
        where = (
            LATENCY_TABLE.net
            if system.nodes > 1
            else LATENCY_TABLE.nvlink
            if system.rings_on_nvlink
            else LATENCY_TABLE.pci
        )
        hop = where[AlgoProto(of.TREE if chunked else of.RING, protocol)]
        return hop if system.same_ring_order else number * hop
    return _all_hops(system, collective, protocol, inside, across)


def post_seconds(system: NcclSystem, protocol: str) -> float:
    """Return the seconds in which a message to another node is posted."""
    return of.NET_OVERHEAD_S.get(system.cpu_vendor, US) * (3 if protocol == of.SIMPLE else 1)


def _all_hops(
    system: NcclSystem, collective: Collective, protocol: str, inside: float, across: float
) -> float:
    """Return the seconds of all hops of a ring, one after the other."""
    hops, between = hops_inside(system, collective, of.RING), 0
    if system.nodes > 1:
        inside = max(inside, post_seconds(system, protocol))
        between = ring_hops(collective, system.nodes)
    return hops * inside + between * across
