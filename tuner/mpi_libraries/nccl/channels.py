"""Rings through the GPUs of one node: how many fit, and how fast each is.

An NVLink of n bricks carries n rings in each direction. Rings on NVLink must not share a brick's
direction, so their number is limited by how many Hamiltonian cycles can be packed. GPUs without
such a ring get one over their shortest paths, PCIe and sockets included, which runs at the speed of
its slowest hop.

As in NCCL's own search (search.cc) a ring takes a whole brick, or half of one where that gives more
in all: four GPUs, each with a brick to each other one, do not have three rings of whole bricks (T.
W. Tillson, J. Combin. Theory B 29, 1980) but six of halves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

import numpy as np

from tuner.base.arrays import IntArray
from tuner.base.errors import InputError
from tuner.mpi_libraries.nccl.constants import (
    AMD,
    ARM,
    BLACKWELL,
    GB,
    INTEL,
    INTEL_PEER_SHARE,
    MAX_SEARCH_CHANNELS,
    POWER,
)
from tuner.mpi_libraries.nccl.releases import CURRENT, Release
from tuner.topology import CPU, GPU, NVLINK, SWITCH, Link, NodeTopology
from tuner.topology.readers import gpu_products
from tuner.topology.readers.gpu_products import COMPUTE_CAPABILITIES, nvlink_bandwidth

MAX_SEARCH_STEPS = 200_000  # extensions of partial rings, to limit the time of a search
CPU_VENDORS = {"EPYC": AMD, "AMD": AMD, "POWER": POWER, "Grace": ARM, "Neoverse": ARM, "ARM": ARM}


@dataclass(frozen=True)
class Rings:
    """Ring orders, as tuples of positions in the list of GPUs, and the bandwidth (B/s) of each.

    on_nvlink   they run on NVLink alone
    kind        of the links that bound them
    """

    gpu_orders: tuple[tuple[int, ...], ...]
    bandwidth: float
    on_nvlink: bool = True
    kind: str = NVLINK

    @property
    def total_bandwidth(self) -> float:
        """Bytes per second that all rings carry together."""
        return len(self.gpu_orders) * self.bandwidth


def compute_capability(node_topology: NodeTopology) -> int:
    """Return the compute capability of the node's first GPU.

    Raises InputError for an unknown product.
    """
    gpus = node_topology.device_indices(GPU)
    product = node_topology.devices[int(gpus[0])].product if len(gpus) else "no GPU"
    found = gpu_products.compute_capability(product)
    if found is None:
        raise InputError(
            f"NCCL's choice depends on the GPU, and {product!r} is none of"
            f" {', '.join(COMPUTE_CAPABILITIES)}: name the node's GPUs in a YAML file with"
            " `combine: {fabric: FILE, gpu: PRODUCT}`, or with --gpu of `tuner nccl estimate`"
        )
    return found


def amd_architecture(node_topology: NodeTopology) -> str:
    """Return the architecture of the node's first GPU if it is AMD's, else ""."""
    gpus = node_topology.device_indices(GPU)
    product = node_topology.devices[int(gpus[0])].product if len(gpus) else ""
    return gpu_products.amd_architecture(product)


def xgmi_link_bandwidth(node_topology: NodeTopology) -> float:
    """Return the bandwidth (B/s) of an xGMI link in RCCL's model."""
    return gpu_products.XGMI_BANDWIDTHS[amd_architecture(node_topology)]


def cpu_vendor(node_topology: NodeTopology) -> str:
    """Return the vendor of the node's CPU; Intel unless the product says otherwise."""
    cpus = node_topology.device_indices(CPU)
    product = node_topology.devices[int(cpus[0])].product if len(cpus) else ""
    return next((v for name, v in CPU_VENDORS.items() if name.lower() in product.lower()), INTEL)


def nvlink_brick_bandwidth(node_topology: NodeTopology, newest: int = BLACKWELL) -> float:
    """Return the bandwidth (B/s) of an NVLink brick in NCCL's model.

    newest  the last compute capability that NCCL knows
    """
    return nvlink_bandwidth(min(compute_capability(node_topology), newest))


def nvswitch_bricks(node_topology: NodeTopology, gpus: Sequence[str]) -> int:
    """Return the smallest number of NVLink bricks from one of these GPUs to NVSwitches."""
    switches = {d.name for d in node_topology.devices if d.kind == SWITCH}
    return min(
        sum(
            link.count
            for link in node_topology.links
            if link.kind == "nvlink" and link.source == gpu and link.target in switches
        )
        for gpu in gpus
    )


def find_rings(
    node_topology: NodeTopology, gpus: Sequence[str], release: Release = CURRENT
) -> Rings:
    """Return the rings through these GPUs, given by name, in a release of NCCL.

    Raises InputError for fewer than two GPUs or an unknown GPU. The search tries at most
    MAX_SEARCH_STEPS extensions of partial rings and keeps the largest packing found.
    """
    names = {device.name for device in node_topology.devices if device.kind == GPU}
    unknown = [gpu for gpu in gpus if gpu not in names]
    if unknown or len(set(gpus)) < max(2, len(gpus)):
        raise InputError(f"a ring needs two or more different GPUs of the node, not {list(gpus)}")
    to_switch = nvswitch_bricks(node_topology, gpus)
    if to_switch:
        number = min(to_switch, MAX_SEARCH_CHANNELS)
        around = tuple(range(len(gpus)))
        orders = tuple((*around[c % len(gpus) :], *around[: c % len(gpus)]) for c in range(number))
        of_gpu = nvlink_brick_bandwidth(node_topology, release.newest) * to_switch
        return Rings(orders, of_gpu / number)
    bricks = _bricks(node_topology, gpus)
    whole, halved = pack_rings(bricks), pack_rings(2 * bricks)
    if len(halved) > 2 * len(whole):
        return Rings(halved, nvlink_brick_bandwidth(node_topology, release.newest) / 2)
    if whole:
        return Rings(whole, nvlink_brick_bandwidth(node_topology, release.newest))
    slowest, kind = _slowest_route(node_topology, pairwise((*gpus, gpus[0])), release)
    return Rings((tuple(range(len(gpus))),), slowest, on_nvlink=False, kind=kind)


def _bricks(node_topology: NodeTopology, gpus: Sequence[str]) -> IntArray:
    """Return the number of NVLink bricks from GPU to GPU, shape (GPUs, GPUs)."""
    place = {gpu: i for i, gpu in enumerate(gpus)}
    bricks = np.zeros((len(gpus), len(gpus)), dtype=np.int64)
    for link in node_topology.links:
        if link.kind == "nvlink" and link.source in place and link.target in place:
            bricks[place[link.source], place[link.target]] += link.count
    return bricks


class _RingSearch:
    """A depth-first packing of Hamiltonian cycles into unit arcs, within a budget of steps."""

    def __init__(self, bricks: IntArray) -> None:
        self.free_arcs: list[list[int]] = bricks.tolist()
        self.vertices = len(bricks)
        self.budget = MAX_SEARCH_STEPS
        self.bound = min(MAX_SEARCH_CHANNELS, int(min(bricks.sum(0).min(), bricks.sum(1).min())))
        self.best: list[tuple[int, ...]] = []

    def cycles(self, path: list[int]) -> Iterator[tuple[int, ...]]:
        """Yield every completion of a path from vertex 0 over free arcs."""
        here = path[-1]
        if len(path) == self.vertices:
            if self.free_arcs[here][0]:
                yield tuple(path)
            return
        for there in range(1, self.vertices):
            if self.free_arcs[here][there] and there not in path and self.budget > 0:
                self.budget -= 1
                yield from self.cycles([*path, there])

    def extend(self, chosen: list[tuple[int, ...]]) -> None:
        """Try every packing that begins with `chosen` and goes on in lexicographic order."""
        if len(chosen) > len(self.best):
            self.best = list(chosen)
        if len(self.best) == self.bound or self.budget <= 0:
            return
        for cycle in list(self.cycles([0])):
            if chosen and cycle < chosen[-1]:
                continue
            self._take(cycle, -1)
            self.extend([*chosen, cycle])
            self._take(cycle, 1)
            if len(self.best) == self.bound or self.budget <= 0:
                return

    def _take(self, cycle: tuple[int, ...], change: int) -> None:
        for a, b in pairwise((*cycle, cycle[0])):
            self.free_arcs[a][b] += change


def pack_rings(bricks: IntArray) -> tuple[tuple[int, ...], ...]:
    """Return a largest set of rings through all vertices that uses no arc beyond its bricks."""
    search = _RingSearch(bricks)
    search.extend([])
    return tuple(search.best)


def rate_to_all_others(node_topology: NodeTopology, gpus: Sequence[str]) -> tuple[float, str]:
    """Return what each GPU sends to all others at once (B/s), and the slowest kind of link."""
    to_each, kind = _slowest_route(node_topology, permutations(gpus, 2), CURRENT)
    return (len(gpus) - 1) * to_each, kind


def nvlink_rate_to_all_others(node_topology: NodeTopology, gpus: Sequence[str]) -> float:
    """Return what each GPU sends to all others at once over NVLinks between GPUs (B/s).

    A message to a GPU without a link to its sender passes through one that both have links to, or
    in equal parts through several (PATH_NVB in src/graph/paths.cc of 2.30, which takes one of
    them). The rate is 0 where there is none.
    """
    bricks = _bricks(node_topology, gpus)
    joined = bricks > 0
    passes = joined.astype(float)  # of messages from each GPU to each other one
    for a, b in np.argwhere(~joined & ~np.eye(len(gpus), dtype=bool)):
        through = np.flatnonzero(joined[a] & joined[:, b])
        if not len(through):
            return 0.0
        passes[a, through] += 1 / len(through)
        passes[through, b] += 1 / len(through)
    slowest = (bricks[joined] / passes[joined]).min()
    return float((len(gpus) - 1) * nvlink_brick_bandwidth(node_topology) * slowest)


def _slowest_route(
    node_topology: NodeTopology, pairs: Iterable[tuple[str, str]], release: Release
) -> tuple[float, str]:
    """Return the lowest bandwidth (B/s) and kind of link of shortest paths that share links.

    pairs   the GPUs that send, and those that they send to
    """
    number = {device.name: i for i, device in enumerate(node_topology.devices)}
    hops = [
        [int(link) for link in node_topology.routes[number[a], number[b]] if link >= 0]
        for a, b in pairs
    ]
    crossings = np.bincount(
        [link for hop in hops for link in hop], minlength=len(node_topology.links)
    )
    cpus = {device.name for device in node_topology.devices if device.kind == CPU}
    host = cpu_vendor(node_topology)
    rates = list[tuple[float, str]]()
    for hop in hops:
        links = [(node_topology.links[i], int(crossings[i])) for i in hop]
        through_cpu = any(link.target in cpus for link, _ in links)
        share = INTEL_PEER_SHARE if through_cpu and host == INTEL else 1.0
        rates += [
            (share * _link_bandwidth(node_topology, link, release) / times, link.kind)
            for link, times in links
        ]
    return min(rates)


def _link_bandwidth(node_topology: NodeTopology, link: Link, release: Release) -> float:
    """Return NCCL's own bandwidth for a link (B/s) where it has one, else the link's capacity."""
    if link.kind == "nvlink":
        return nvlink_brick_bandwidth(node_topology, release.newest) * link.count
    if link.kind != "socket":
        return link.capacity
    product = next((d.product for d in node_topology.devices if d.name == link.source), "")
    known = [rate for name, rate in release.search.sockets.items() if name in product]
    found = known[0] if known else release.search.sockets[cpu_vendor(node_topology)]
    return min(link.capacity, found * GB)
