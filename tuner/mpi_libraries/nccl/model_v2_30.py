"""The estimate of a call in NCCL from 2.18 on: latency + bytes / bandwidth, corrected for the size.

Source: `src/graph/tuning.cc` of NCCL 2.18.1 to 2.30.7, `src/tuning/` of 2.31.2 and 2.32.3. Not
modelled: the correction of NVLSTree on hosts with ARM CPUs from 2.31 on, the cap of LL on one node
of Blackwell, which 2.32.3 raised by 0.4 GB/s, and Rubin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl import constants as of
from tuner.mpi_libraries.nccl.constants import GB, US, AlgoProto
from tuner.mpi_libraries.nccl.releases import CURRENT, Release
from tuner.mpi_libraries.nccl.system import ChannelGraph, NcclSystem


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


def available_algo_protos(
    system: NcclSystem, collective: Collective, release: Release = CURRENT
) -> list[AlgoProto]:
    """Return the pairs that NCCL chooses between on this machine for this collective."""
    several, reduces = system.nodes > 1, collective is Collective.ALLREDUCE
    found = [of.RING]
    if reduces:
        found.append(of.TREE)
    found += _nvls_algorithms(system, collective, release)
    if several and reduces and system.switch_reduction:
        found += [of.COLLNET_DIRECT] * (system.head_channels is not None) + [of.COLLNET_CHAIN]
    if several and collective.has_blocks and system.ppn == 1 and release.pat:
        found.append(of.PAT)
    made = [
        AlgoProto(a, p)
        for a in found
        for p in of.PROTOCOLS
        if AlgoProto(a, p) in CURRENT.latencies.base
    ]
    return [way for way in made if way.protocol != of.LL128 or _has_ll128(system, release)]


def _nvls_algorithms(system: NcclSystem, collective: Collective, release: Release) -> list[str]:
    """Return which of NVLS and NVLSTree are available."""
    reduces = collective is Collective.ALLREDUCE
    enough = system.head_channels is not None and system.ppn >= release.nvls_gpus
    if not (system.nvswitch_reduction and enough):
        return []
    if system.nodes == 1:
        has_blocks = collective.has_blocks and release.nvls_blocks_share > 0.0
        return [of.NVLS] * (reduces or (has_blocks and system.ppn <= of.MAX_NVLS_RANKS))
    if not (reduces and release.nvls_on_several):
        return []
    return [of.NVLS] * system.switch_reduction + [of.NVLS_TREE]


def _has_ll128(system: NcclSystem, release: Release) -> bool:
    """Return whether LL128 is available: it relies on stores of 128 bytes arriving whole.

    They do from Volta on, over NVLink, with NICs near the GPU.
    """
    generation, known = system.compute_capability, release.ll128_gpus
    return (
        (generation in known if known else generation >= of.VOLTA)
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

    That is on one node of Ampere and later, where half of what the links carry is flags.
    """
    in_ll = algo_proto == AlgoProto(of.RING, of.LL) and system.compute_capability >= of.AMPERE
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


def graph_of_algorithm(
    system: NcclSystem, algorithm: str, release: Release = CURRENT
) -> ChannelGraph:
    """Return the channels that an algorithm uses."""
    if algorithm == of.RING:
        return system.ring
    own_heads = algorithm == of.COLLNET_DIRECT and release.collnet_heads
    if own_heads or algorithm in (of.NVLS, of.NVLS_TREE):
        assert system.head_channels is not None
        return system.head_channels
    return system.tree


def _cap(table: Mapping[int, of.Caps], system: NcclSystem, release: Release) -> float:
    """Return the cap (B/s) for the compute capability on one, two or more nodes."""
    generation = min(system.compute_capability, release.newest)
    return _of_nodes(of.table_row(table, generation), system)


def _of_nodes(caps: of.Caps, system: NcclSystem) -> float:
    """Return the cap (B/s) on one, two or more nodes."""
    return caps[min(system.nodes, 3) - 1] * system.rate_factor * GB


def ll_cap(system: NcclSystem, release: Release = CURRENT) -> float:
    """Return the bytes per second that NCCL allows to all channels together in LL."""
    if system.nodes > 1:
        first = of.LL_CAP_ROW_OF_CPU.get(system.cpu_vendor, of.VOLTA)
        return _of_nodes(of.LL_CAP[first], system)
    on_hopper = release.ll_on_hopper, *of.LL_CAP[of.HOPPER][1:]
    return _cap({**of.LL_CAP, of.HOPPER: on_hopper}, system, release)


def _bandwidth(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, release: Release
) -> float:
    """Return the bandwidth in bytes of the user's buffer per second."""
    algorithm, protocol = algo_proto.algorithm, algo_proto.protocol
    graph = graph_of_algorithm(system, algorithm, release)
    if algorithm == of.RING:
        carried = _ring_bandwidth(system, collective, protocol, release)
        return carried * system.p / ring_hops(collective, system.p)
    if algorithm in (of.NVLS, of.NVLS_TREE):
        of_algorithm = _nvls_bandwidth if release.has_efficiency else _nvls_bandwidth_before_2_28
        return of_algorithm(system, collective, algorithm, release)
    if algorithm == of.TREE:
        carried = _tree_bandwidth(system, graph, protocol, release)
    elif algorithm == of.COLLNET_DIRECT:
        share = system.ppn / graph.channels
        carried = graph.channels * graph.bw_intra / (share - (share - 1) / 2)
        carried *= 0.85 if system.compute_capability >= of.HOPPER else 1.0
    elif algorithm == of.PAT:
        carried = release.pat * graph.channels * _speed_between_nodes(system, graph)
    else:
        carried = graph.channels * graph.bw_intra
    return carried if collective.has_blocks else carried / 2


def _speed_between_nodes(system: NcclSystem, graph: ChannelGraph) -> float:
    """Return a channel's bandwidth; on up to two nodes NCCL takes that inside a node."""
    return graph.bw_intra if system.nodes <= 2 else graph.bw_inter


def _ring_bandwidth(
    system: NcclSystem, collective: Collective, protocol: str, release: Release
) -> float:
    graph = system.ring
    carried = graph.channels * _speed_between_nodes(system, graph)
    if protocol == of.LL:
        return min(ll_cap(system, release), carried * _ll_share(system, collective, release))
    if protocol == of.LL128:
        share = release.ll128_alone if system.ppn == 1 else 0.92
        caps = {**of.RING_LL128_CAP, of.BLACKWELL: release.ring_ll128}
        return min(share * carried, graph.channels * _cap(caps, system, release))
    return carried


def _ll_share(system: NcclSystem, collective: Collective, release: Release) -> float:
    """Return the share of their channels that rings in LL get."""
    if release.halves_ll:
        return 1 / 2
    reduces_whole = collective.is_reduction and not collective.has_blocks
    return 1 / 4 if system.nodes > 1 or reduces_whole else 1 / 3


def _tree_bandwidth(
    system: NcclSystem, graph: ChannelGraph, protocol: str, release: Release
) -> float:
    speed = _speed_between_nodes(system, graph)
    if _is_blackwell(system) and release.takes_slower_speed:
        speed = min(graph.bw_intra, graph.bw_inter)
    hopper = *of.TREE_CAP[of.HOPPER][:2], release.tree_on_hopper
    caps = {**of.TREE_CAP, of.HOPPER: hopper, of.BLACKWELL: release.tree}
    carried = graph.channels * min(0.92 * speed, _cap(caps, system, release))
    if protocol == of.LL:
        carried = min(carried / 3.8, ll_cap(system, release))
    if protocol == of.LL128:
        share = 7 / 9 if system.nodes == 1 else 120 / 128
        hopper = *of.TREE_LL128_CAP[of.HOPPER][:2], release.tree_ll128_on_hopper
        caps = {**of.TREE_LL128_CAP, of.HOPPER: hopper, of.BLACKWELL: release.tree_ll128}
        carried = min(carried * share, graph.channels * _cap(caps, system, release))
    return carried * (release.tree_alone if system.ppn == 1 else 1.0)  # the plain tree pattern


def _nvls_bandwidth(
    system: NcclSystem, collective: Collective, algorithm: str, release: Release
) -> float:
    """Return the bandwidth of NVLS or NVLSTree (B/s of the buffer)."""
    graph = graph_of_algorithm(system, algorithm)
    efficiency = of.table_row(of.NVLS_EFFICIENCY, system.compute_capability)
    inside = graph.bw_intra * efficiency * (graph.channels - 1) / graph.channels
    if collective is not Collective.ALLREDUCE:
        return graph.channels * inside * (system.ppn - 1) / system.ppn
    of_buffer = graph.channels * system.p / ring_hops(collective, system.p)
    inside *= 2  # reduce-scatter and allgather overlap
    if system.nodes == 1:
        return of_buffer * inside
    between = graph.bw_inter
    if algorithm == of.NVLS_TREE:
        caps = {**of.NVLS_TREE_CAP, of.BLACKWELL: release.nvls_tree}
        between = min(between * (2 if system.nodes == 2 else 1), _cap(caps, system, release))
    return of_buffer * min(inside, between)


def _nvls_bandwidth_before_2_28(
    system: NcclSystem, collective: Collective, algorithm: str, release: Release
) -> float:
    """Return the bandwidth of NVLS or NVLSTree (B/s of the buffer)."""
    graph, reduces = graph_of_algorithm(system, algorithm), collective is Collective.ALLREDUCE
    speed = min(graph.bw_intra, graph.bw_inter)
    share = release.nvls_share if reduces else release.nvls_blocks_share
    if release.chains_nvls_tree:
        speed = _speed_between_nodes(system, graph)
        if algorithm == of.NVLS_TREE:
            share = 0.7 * system.nodes / (2 * (system.nodes - 1))
    elif algorithm == of.NVLS_TREE:
        speed = min(graph.bw_intra, graph.bw_inter / (2 if system.nodes > 2 else 1))
    elif not reduces and release.nvls_spares_own:
        speed = min(graph.bw_intra * (system.ppn - 1) / system.ppn, 0.9 * graph.bw_inter)
    return graph.channels * speed * share


def sustained_latency(system: NcclSystem, collective: Collective, algo_proto: AlgoProto) -> float:
    """Return the latency of predictions: rings pass all hops, also where NCCL counts one."""
    if algo_proto.algorithm != of.RING:
        return _latency(system, collective, algo_proto, CURRENT)
    base = CURRENT.latencies.base[algo_proto]
    return base + _all_hops(system, collective, algo_proto.protocol, CURRENT)


def _hop_latencies(
    system: NcclSystem, algo_proto: AlgoProto, release: Release
) -> tuple[float, float]:
    """Return the seconds of a hop inside a node and of one between nodes."""
    table = release.latencies
    inside = (table.nvlink if system.rings_on_nvlink else table.pci)[algo_proto]
    if (
        system.cpu_vendor == of.POWER
        and not system.rings_on_nvlink
        and algo_proto == AlgoProto(of.TREE, of.SIMPLE)
    ):
        inside = table.pci[AlgoProto(of.RING, of.SIMPLE)]
    if algo_proto.algorithm == of.NVLS_TREE:
        return inside, release.nvls_tree_hop * US
    alone = system.ppn == 1 and system.nodes > 1 and release.exposes_hops
    across = table.net[AlgoProto(of.TREE, algo_proto.protocol) if alone else algo_proto]
    return inside, across


def _latency(
    system: NcclSystem, collective: Collective, algo_proto: AlgoProto, release: Release
) -> float:
    inside, across = _hop_latencies(system, algo_proto, release)
    base = release.latencies.base[algo_proto]
    if algo_proto.algorithm == of.RING:
        return base + _ring_latency(system, collective, algo_proto.protocol, release)
    levels = system.nodes.bit_length() - 1
    further = {
        of.TREE: 2 * levels * across,
        of.COLLNET_DIRECT: release.collnet_arity * US * (system.ppn - 1) + across,
        of.COLLNET_CHAIN: across,
        of.NVLS: across if system.nodes > 1 else 0.0,
        of.NVLS_TREE: 2 * (system.nodes - 1 if release.chains_nvls_tree else levels) * across,
        of.PAT: levels * across / 3.5 + 2.8 * US * system.p,
    }
    hops = hops_inside(system, collective, algo_proto.algorithm)
    return base + hops * inside + further[algo_proto.algorithm]


def _ring_latency(
    system: NcclSystem, collective: Collective, protocol: str, release: Release
) -> float:
    """Return the seconds of all hops.

    Rooted collectives: one hop where all channels take one order; else every hop, which in Simple
    counts as a tree's, for the chunks that it holds.
    """
    if not collective.is_rooted:
        return _all_hops(system, collective, protocol, release)
    table = release.latencies
    where = table.nvlink if system.rings_on_nvlink else table.pci
    chunked = protocol == of.SIMPLE and not system.same_ring_order
    way = AlgoProto(of.TREE if chunked else of.RING, protocol)
    hop = (table.net if system.nodes > 1 else where)[way]
    return hop if system.same_ring_order else ring_hops(collective, system.p) * hop


def post_seconds(system: NcclSystem, protocol: str) -> float:
    """Return the seconds in which a message to another node is posted."""
    return of.NET_OVERHEAD_S.get(system.cpu_vendor, US) * (3 if protocol == of.SIMPLE else 1)


def _all_hops(system: NcclSystem, collective: Collective, protocol: str, release: Release) -> float:
    """Return the seconds of all hops of a ring, one after the other."""
    inside, across = _hop_latencies(system, AlgoProto(of.RING, protocol), release)
    hops, between = hops_inside(system, collective, of.RING), 0
    if system.nodes > 1:
        inside = max(inside, post_seconds(system, protocol))
        between = ring_hops(collective, system.nodes)
    if between and release.closes_rings and collective is Collective.ALLREDUCE:
        hops, between = hops - 2, between + 2
    return hops * inside + between * across
