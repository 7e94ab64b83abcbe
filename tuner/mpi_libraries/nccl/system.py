"""The machine as NCCL's cost formulas see it (`NcclSystem`), derived from a placement.

NCCL looks for channels (src/graph/search.cc): it tries bandwidths per channel from a table, fastest
first, and keeps the one at which most bytes per second fit into NVLinks and NICs. Here the same
table is tried against what one GPU's NVLinks and each NIC carry, without enumerating paths.

One departure is deliberate: channels with a head get the best speed inside a node and the best
between nodes independently, where search.cc begins with one speed for both. It was chosen because
measured B200 nodes behave so, see docs/explanation/nccl-estimate.md; `coupled` gives what search.cc
gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tuner.base.arrays import IntArray
from tuner.base.errors import InputError
from tuner.mpi_libraries.nccl import channels
from tuner.mpi_libraries.nccl.constants import (
    GB,
    HOPPER,
    MAX_SEARCH_CHANNELS,
    NIC_BANDWIDTH_SHARE,
    NIC_RATES_GBIT_S,
    table_row,
)
from tuner.mpi_libraries.nccl.names import MAX_CHANNELS
from tuner.mpi_libraries.nccl.rccl_constants import TUNINGS
from tuner.mpi_libraries.nccl.releases import CURRENT, Release
from tuner.topology import (
    CPU,
    CUDA,
    GPU,
    NIC,
    NVLINK,
    NVSWITCH_REDUCTION,
    SWITCH_REDUCTION,
    XGMI_LINK,
    NodeTopology,
    Placement,
)

# Of the machines in `tuner/machines` Aries reaches least, 10 of 12.5 GB/s.
MIN_NIC_EFFICIENCY = 0.79
MAX_CACHED_RINGS = 64  # kinds of nodes, whose rings take up to a second to be found
MIN_SPEED_RATIO = 0.49  # speeds are tried while above this fraction of the best one found


@dataclass(frozen=True)
class ChannelGraph:
    """The channels of one kind.

    bw_intra    bandwidth of each channel inside a node, B/s
    bw_inter    bandwidth of each channel between nodes, B/s
    """

    channels: int
    bw_intra: float
    bw_inter: float


@dataclass(frozen=True)
class Speeds:
    """The bandwidths per channel that a release tries on a GPU, in GB/s and descending.

    rate_factor     factor of those that are tried, too
    """

    compute_capability: int
    rate_factor: float = 1.0
    release: Release = CURRENT

    @property
    def inside(self) -> list[float]:
        return self._tried(self.release.search.inside)

    @property
    def between(self) -> list[float]:
        return self._tried(self.release.search.between)

    def _tried(self, table: Mapping[int, tuple[float, ...]]) -> list[float]:
        own = table_row(table, min(self.compute_capability, self.release.newest))
        return sorted({*own, *(self.rate_factor * speed for speed in own)}, reverse=True)


@dataclass(frozen=True)
class NcclSystem:
    """The GPUs of a placement as NCCL sees them.

    compute_capability  60 Pascal, 70 Volta, ..., 100 Blackwell; 0 for AMD's GPUs
    ring                channels of rings
    tree                channels of trees and chains
    head_channels       channels with a head GPU each, through an NVSwitch: NVLS, CollNetDirect
    rings_on_nvlink     the rings run on NVLink alone
    same_ring_order     all rings visit the GPUs in one order, as they can behind an NVSwitch
    nics_are_local      each GPU reaches its NIC without passing a CPU
    has_nvlink          GPUs have NVLinks, to whatever device
    nvswitch_reduction  NVSwitches reduce (NVLink SHARP)
    switch_reduction    the network's switches reduce (SHARP), and NCCL may use them
    rate_factor         factor of the caps in NCCL's tables
    architecture        of AMD's GPUs, which run RCCL: `gfx942`; "" for others
    """

    nodes: int
    ppn: int
    compute_capability: int
    ring: ChannelGraph
    tree: ChannelGraph
    head_channels: ChannelGraph | None
    rings_on_nvlink: bool
    cpu_vendor: str
    same_ring_order: bool = True
    nics_are_local: bool = True
    has_nvlink: bool = True
    nvswitch_reduction: bool = False
    switch_reduction: bool = False
    rate_factor: float = 1.0
    architecture: str = ""

    @property
    def p(self) -> int:
        return self.nodes * self.ppn

    @property
    def opened_channels(self) -> int:
        """The channels of calls in rings: each that the search finds, twice."""
        return min(MAX_CHANNELS, 2 * self.ring.channels)


def nccl_system_of(
    placement: Placement,
    collnet: bool = False,
    coupled: bool = False,
    rate_factor: float = 1.0,
    release: Release = CURRENT,
) -> NcclSystem:
    """Return what NCCL would see of these ranks, one GPU each.

    collnet     let it use switches that reduce, where there are any (NCCL_COLLNET_ENABLE=1 and
                SHARP's plugin; NCCL does not by itself)
    coupled     channels with a head begin with one speed inside and between nodes
    rate_factor factor of the fastest rates of a channel, which NCCL has as constants
    release     whose search for channels it is

    Raises InputError where a node has no GPUs, more ranks than GPUs, or GPUs of an unknown kind,
    for a single rank, and for ranks that are not spread evenly over the nodes.
    """
    nodes, ranks = np.unique(placement.node_of, return_counts=True)
    _require_gpu_per_rank(placement, nodes, ranks)
    interior, gpus = first_gpus(placement)
    several = len(nodes) > 1
    nics = [min(nic.values()) for nic in nic_rates(placement, nominal=True)] if several else []
    if channels.amd_architecture(interior):
        return _system_of_amd_gpus(placement, len(nodes), nics)
    generation = channels.compute_capability(interior)
    inside = rings_inside(placement, release)
    speeds = Speeds(generation, rate_factor, release)
    ring, tree = _ring_and_tree_graphs(
        inside, channels.nvswitch_bricks(interior, gpus), nics, speeds
    )
    offers = placement.topology.capabilities
    by_c2c = generation >= HOPPER and release.c2c_is_near
    return NcclSystem(
        nodes=len(nodes),
        ppn=len(gpus),
        compute_capability=generation,
        ring=ring,
        tree=tree,
        head_channels=_head_channels(interior, gpus, nics, speeds, coupled),
        rings_on_nvlink=inside is None or inside.on_nvlink,
        cpu_vendor=channels.cpu_vendor(interior),
        same_ring_order=inside is None or len(set(map(_rotate_to_first, inside.gpu_orders))) == 1,
        nics_are_local=not nics or _nics_are_local(placement, interior, by_c2c),
        has_nvlink=any(link.kind == NVLINK and link.source == gpus[0] for link in interior.links),
        nvswitch_reduction=NVSWITCH_REDUCTION in offers and generation >= HOPPER,
        switch_reduction=collnet and SWITCH_REDUCTION in offers,
        rate_factor=rate_factor,
    )


def _require_gpu_per_rank(placement: Placement, nodes: IntArray, ranks: IntArray) -> None:
    """Raise InputError where ranks lack GPUs or are uneven.

    nodes, ranks    the nodes that have ranks, and how many each has
    """
    interior = placement.topology.nodes[int(nodes[0])].node_topology
    if interior is None or not len(interior.device_indices(GPU)):
        raise InputError(
            f"topology {placement.topology.name} has no GPUs in its nodes, and NCCL runs on GPUs:"
            " choose a machine with GPUs"
        )
    if placement.p < 2:
        raise InputError("NCCL has nothing to choose for a single rank: place two or more")
    if len(set(ranks.tolist())) > 1 or ranks[0] > len(interior.device_indices(GPU)):
        raise InputError(
            f"NCCL wants one GPU per rank and equally many ranks on each node: here are"
            f" {len(interior.device_indices(GPU))} GPUs for {_format_range(ranks.tolist())} ranks"
        )


def _format_range(numbers: Sequence[int]) -> str:
    """Return the range of some numbers as `4` or `1 to 4`."""
    return " to ".join(map(str, sorted({min(numbers), max(numbers)})))


def _rotate_to_first(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ring order rotated to begin at the first GPU."""
    start = order.index(0)
    return (*order[start:], *order[:start])


def rings_inside(placement: Placement, release: Release = CURRENT) -> channels.Rings | None:
    """Return the rings through the ranks of the first node; None for one rank on a node."""
    interior, gpus = first_gpus(placement)
    return _found_rings(interior, tuple(gpus), release) if len(gpus) > 1 else None


_found_rings = lru_cache(MAX_CACHED_RINGS)(channels.find_rings)


def nvlink_of_head(placement: Placement, heads: ChannelGraph | None) -> float:
    """Return the bytes per second on NVLink of all channels with a head; 0 without such channels.

    A head's own channel takes twice the bandwidth of another's.
    """
    if heads is None:
        return 0.0
    interior, gpus = first_gpus(placement)
    bricks = channels.nvswitch_bricks(interior, gpus)
    of_gpu = channels.nvlink_brick_bandwidth(interior) * bricks
    return heads.channels * of_gpu / (heads.channels + 1)


def first_gpus(placement: Placement) -> tuple[NodeTopology, list[str]]:
    """Return the inside of the first node with ranks, and the GPUs of these."""
    node = int(placement.node_of[0])
    interior, ranks = placement.topology.nodes[node].node_topology, placement.shape[1]
    assert interior is not None
    return interior, [interior.devices[int(i)].name for i in interior.device_indices(GPU)[:ranks]]


def nic_rates(placement: Placement, *, nominal: bool) -> list[dict[str, float]]:
    """Return the bytes per second of each NIC that the first node's ranks use, by kind.

    They are those of the NIC itself, and of the narrowest link of each kind between it and a GPU.

    nominal     whether a NIC counts with what NCCL takes it for, 96 % of its line rate, and not
                with what the topology says that it reaches
    """
    interior, _ = first_gpus(placement)
    topology, out = placement.topology, dict.fromkeys(placement.topology.ports, 0.0)
    for link in topology.links:
        if link.source in out:
            line = nominal_nic_rate(link.capacity / link.count) * link.count
            out[link.source] += NIC_BANDWIDTH_SHARE * line if nominal else link.capacity
    found: dict[int, dict[str, float]] = {}
    for port, route in _nic_routes(placement, interior):
        own = {NIC: out[topology.ports[port]]}
        for link in (interior.links[i] for i in route):
            own[link.kind] = min(link.capacity, own.get(link.kind, math.inf))
        found.setdefault(port, own)
    return list(found.values())


def total_rates(nics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the bytes per second of all NICs of a node together by kind, see `nic_rates`.

    The lowest counts each NIC with the narrowest that it has.
    """
    kinds = [kind for kind in (nics[0] if nics else {}) if all(kind in nic for nic in nics)]
    found = {kind: sum(nic[kind] for nic in nics) for kind in kinds}
    if found:
        found[min(found, key=lambda kind: found[kind])] = sum(min(nic.values()) for nic in nics)
    return found


def nominal_nic_rate(capacity: float) -> float:
    """Return the line rate (B/s) of a NIC of this capacity.

    It is the next one in the table, or the capacity itself where a NIC would reach less than
    `MIN_NIC_EFFICIENCY` of that.
    """
    rates = [rate / 8 * GB for rate in NIC_RATES_GBIT_S]
    above = next((rate for rate in rates if rate >= capacity), capacity)
    return above if capacity >= MIN_NIC_EFFICIENCY * above else capacity


def _nic_routes(
    placement: Placement, node_topology: NodeTopology
) -> Iterator[tuple[int, list[int]]]:
    """Yield the port of each rank of the first node, and its links to the NIC there."""
    places, nics = placement.rank_devices(CUDA), node_topology.device_indices(NIC)
    first = int(placement.topology.first_port[placement.node_of[0]])
    for rank in np.flatnonzero(placement.node_of == placement.node_of[0]):
        port, device = int(places.nic[rank]), int(places.device[rank])
        route = node_topology.routes[device, nics[port - first]] if len(nics) else np.array([-1])
        yield port, [int(link) for link in route if link >= 0]


def _nics_are_local(placement: Placement, node_topology: NodeTopology, by_c2c: bool) -> bool:
    """Return whether GPUs reach NICs without a CPU, or through one with NVLink, if `by_c2c`."""
    cpus = {device.name for device in node_topology.devices if device.kind == CPU}
    return all(
        node_topology.links[i].target not in cpus
        or (by_c2c and node_topology.links[i].kind == NVLINK)
        for _, route in _nic_routes(placement, node_topology)
        for i in route
    )


def _system_of_amd_gpus(placement: Placement, nodes: int, nics: Sequence[float]) -> NcclSystem:
    """Return what RCCL sees of GPUs of AMD; raise InputError where it is not known."""
    interior, gpus = first_gpus(placement)
    architecture = channels.amd_architecture(interior)
    _require_known(architecture)
    rings = _xgmi_graph(interior, gpus, nics)
    return NcclSystem(
        nodes=nodes,
        ppn=len(gpus),
        compute_capability=0,
        ring=rings,
        tree=rings,
        head_channels=None,
        rings_on_nvlink=True,
        cpu_vendor=channels.cpu_vendor(interior),
        same_ring_order=False,
        nics_are_local=not nics or _nics_are_local(placement, interior, by_c2c=False),
        architecture=architecture,
    )


def _require_known(architecture: str) -> None:
    if architecture not in TUNINGS:
        raise InputError(
            f"RCCL's estimates are known of {', '.join(TUNINGS)}, not of {architecture}"
        )


def _xgmi_graph(
    node_topology: NodeTopology, gpus: Sequence[str], nics: Sequence[float]
) -> ChannelGraph:
    """Return RCCL's channels: together they carry what the xGMI links of one GPU do.

    RCCL lists rings for the machines that it knows, and takes the GPU with most links to others
    (getTotalBw in src/graph/search.cc). A GPU alone on its node sends through NICs.
    """
    links = [
        sum(
            link.count
            for link in node_topology.links
            if link.kind == XGMI_LINK and link.source == gpu and link.target in gpus
        )
        for gpu in gpus
    ]
    if max(links):
        rate = channels.xgmi_link_bandwidth(node_topology)
        return ChannelGraph(max(links), rate, rate)
    if not nics or len(gpus) > 1:
        raise InputError("RCCL's rings are known over xGMI, and these GPUs have no such links")
    return ChannelGraph(1, sum(nics), sum(nics))


def _ring_and_tree_graphs(
    inside: channels.Rings | None, to_switch: int, nics: Sequence[float], speeds: Speeds
) -> tuple[ChannelGraph, ChannelGraph]:
    """Return the channels of rings and of trees."""
    if not nics:
        assert inside is not None
        return (_single_node_graph(inside, to_switch, speeds),) * 2
    carried = inside.total_bandwidth if inside else float("inf")
    searched = speeds.release.search.most
    most = searched if to_switch or inside is None else 2 * len(inside.gpu_orders)
    number, speed = best_channels(speeds.between, carried, most, nics)
    faster = [
        s * GB
        for s in speeds.between
        if speed <= s * GB <= 2 * speed and number * s * GB <= carried
    ]
    return ChannelGraph(number, speed, speed), ChannelGraph(number, max([speed, *faster]), speed)


def _single_node_graph(inside: channels.Rings, to_switch: int, speeds: Speeds) -> ChannelGraph:
    """Return the channels of one node: rings found one by one, or a share of an NVSwitch."""
    if not inside.on_nvlink or not to_switch:
        return ChannelGraph(len(inside.gpu_orders), inside.bandwidth, inside.bandwidth)
    most = speeds.release.search.most
    found = best_channels(speeds.inside, inside.total_bandwidth, most)
    number, speed = double_channels(*found, speeds.compute_capability, most)
    return ChannelGraph(number, speed, speed)


def best_channels(
    speeds: Sequence[float], carried: float, most: int, nics: Sequence[float] = ()
) -> tuple[int, float]:
    """Return number and bandwidth (B/s) of the channels with the largest total bandwidth.

    speeds      bandwidths of a channel to try (GB/s), descending
    carried     bytes per second of all channels together inside a node
    most        largest number of channels
    nics        bytes per second of each NIC; none: one node
    """
    number, found = 0, 0.0
    for speed in (s * GB for s in speeds):
        through_nics = sum(nic // speed for nic in nics) if nics else most
        fitting = int(min(most, carried // speed, through_nics))
        if number and speed <= MIN_SPEED_RATIO * found:
            break
        if fitting * speed > number * found:
            number, found = fitting, speed
    return (number, found) if number else (1, min([carried, *nics]))


def double_channels(
    number: int, speed: float, compute_capability: int, most: int = MAX_SEARCH_CHANNELS
) -> tuple[int, float]:
    """Return fast channels cut in two: the same bytes per second on up to `most`."""
    enough = compute_capability > 80 and speed < 50 * GB and number > 4
    if speed < 25 * GB or enough:
        return number, speed
    more = min(2 * number, most)
    return more, speed / -(-more // number)


def _head_channels(
    node_topology: NodeTopology,
    gpus: Sequence[str],
    nics: Sequence[float],
    speeds: Speeds,
    coupled: bool,
) -> ChannelGraph | None:
    """Return one channel per head GPU; None without an NVSwitch.

    A head's own channel takes twice the bandwidth of another's.
    """
    to_switch = channels.nvswitch_bricks(node_topology, gpus)
    if not to_switch or len(gpus) < 2:
        return None
    number = min(len(gpus), MAX_SEARCH_CHANNELS, *([len(nics)] * bool(nics)))
    of_brick = channels.nvlink_brick_bandwidth(node_topology, speeds.release.newest)
    room = of_brick * to_switch / (number + 1)
    inside = _fastest_speed(speeds.inside, room)
    if not nics:
        return ChannelGraph(number, inside, inside)
    between = _fastest_speed(speeds.between, min(nics))
    if coupled:
        inside = _fastest_speed(speeds.between, min(room, min(nics)))
    return ChannelGraph(number, inside, between)


def _fastest_speed(speeds: Sequence[float], room: float) -> float:
    """Return the fastest speed tried (B/s) that fits into `room`; all of `room` if none does."""
    return max((s * GB for s in speeds if s * GB <= room), default=room)
