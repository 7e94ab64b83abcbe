"""Bound the bandwidth of NCCL's channels by the hardware.

Each bound is what is left where one part of the machine alone limits the channels: the NICs at the
rate that they reach, the links between GPUs and NICs, NVLink, or the links between switches. Rings,
NVLS and NVLSTree have it by NCCL's own formulas. CollNet sends each byte of the buffer over one NIC
of a node in each direction, trees of more than two nodes twice (a node that passes it up to its
parent, and down to two children, is a leaf of the other tree), PAT the parts of other nodes. Trees
of RCCL have it by RCCL's formulas. In an all-to-all a GPU sends to all others of its node over
NVLinks, without NVSwitches through other GPUs, too, and where it has none over paths that share
links.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl.channels import (
    nvlink_brick_bandwidth,
    nvlink_rate_to_all_others,
    nvswitch_bricks,
    rate_to_all_others,
)
from tuner.mpi_libraries.nccl.constants import (
    COLLNET_DIRECT,
    NVLS,
    NVLS_TREE,
    PAT,
    RING,
    TREE,
    AlgoProto,
)
from tuner.mpi_libraries.nccl.exchange import EVEN, SHARE_OF_LINKS, ExchangeLoad
from tuner.mpi_libraries.nccl.fabric import WIRE_BYTES, FabricBound
from tuner.mpi_libraries.nccl.formulas import CostFormulas
from tuner.mpi_libraries.nccl.model_v2_30 import graph_of_algorithm
from tuner.mpi_libraries.nccl.system import (
    ChannelGraph,
    NcclSystem,
    first_gpus,
    nic_rates,
    nvlink_of_head,
    rings_inside,
    total_rates,
)
from tuner.topology import NIC, NVLINK, XGMI_LINK, Placement

SWITCH_LINKS = "switch"  # the bound of links between switches
UNLIMITED = 1e18  # B/s, and a factor of NCCL's caps: more than anything has


class HardwareBounds:
    """The bounds that the hardware of a placement sets to NCCL's algorithms.

    system      what the library sees of it
    formulas    those of the library
    """

    def __init__(self, placement: Placement, system: NcclSystem, formulas: CostFormulas) -> None:
        self._placement, self._system, self._formulas = placement, system, formulas
        self._fabric = FabricBound(placement)
        self._inside = _rate_inside(placement, system)
        self._of_head = nvlink_of_head(placement, system.head_channels)
        self._nics = nic_rates(placement, nominal=False) if system.nodes > 1 else []

    @property
    def rate_of_nic(self) -> float:
        """The bytes per second that a NIC reaches; 0 on one node."""
        return sum(nic[NIC] for nic in self._nics) / max(1, len(self._nics))

    def bandwidths(
        self, collective: Collective, way: AlgoProto, of_bandwidth: float
    ) -> dict[str, float]:
        """Return bytes of the buffer per second by what bounds them: SWITCH_LINKS, kinds of links.

        of_bandwidth    NCCL's factor of bandwidth at a size
        """
        found = dict[str, float]()
        for kind, bandwidth in self._of_links(collective, way):
            found[kind] = min(of_bandwidth * bandwidth, found.get(kind, math.inf))
        across = self._fabric.bandwidth(collective, way)
        return found if math.isinf(across) else {**found, SWITCH_LINKS: across}

    def exchange_bandwidths(self, protocol: str, load: ExchangeLoad = EVEN) -> dict[str, float]:
        """Return the same for an all-to-all in some protocol, whose ranks all send at once.

        load    of its busiest rank
        """
        p, ppn = self._system.p, self._system.ppn
        wire, found = WIRE_BYTES[protocol], dict[str, float]()
        if ppn > 1:
            kind, rate = _rate_to_others(self._placement)
            found[kind] = _for_load(SHARE_OF_LINKS * rate * p / (ppn - 1) / wire, load.inside)
        for kind, rate in total_rates(self._nics).items():
            leaving = ppn * (p - ppn) / p * wire  # bytes of a node for each of the buffer
            found[kind] = min(_for_load(rate / leaving, load.between), found.get(kind, math.inf))
        across = _for_load(self._fabric.exchange_bandwidth() / wire, load.between)
        return found if math.isinf(across) else {**found, SWITCH_LINKS: across}

    def _of_links(self, collective: Collective, way: AlgoProto) -> Iterator[tuple[str, float]]:
        """Yield kinds of links and what they let through: between GPUs, and to and of NICs."""
        has_head = way.algorithm in (NVLS, NVLS_TREE, COLLNET_DIRECT)
        if has_head:
            yield NVLINK, self._bandwidth(collective, way, self._of_head, UNLIMITED)
        elif self._inside is not None:
            kind, total = self._inside
            yield kind, self._bandwidth(collective, way, total, total)
        for kind, rate in total_rates(self._nics).items():
            if has_head and way.algorithm != COLLNET_DIRECT:
                yield kind, self._bandwidth(collective, way, UNLIMITED, rate)
            elif way.algorithm == RING or self._system.architecture:
                yield kind, self._bandwidth(collective, way, rate, rate)
            else:
                yield kind, rate / self._crossings(way.algorithm)

    def _crossings(self, algorithm: str) -> float:
        """Return how often a byte of the buffer crosses the NICs of a node in one direction."""
        if algorithm == PAT:
            return (self._system.nodes - 1) / self._system.nodes
        return 2.0 if algorithm == TREE and self._system.nodes > 2 else 1.0

    def _bandwidth(
        self, collective: Collective, way: AlgoProto, inside: float, between: float
    ) -> float:
        """Return NCCL's bandwidth for channels that have these bytes per second together."""
        number = graph_of_algorithm(self._system, way.algorithm).channels
        graph = ChannelGraph(number, inside / number, between / number)
        heads = graph if self._system.head_channels else None
        system = replace(
            self._system, ring=graph, tree=graph, head_channels=heads, rate_factor=UNLIMITED
        )
        return self._formulas.cost_model(system, collective, way).bandwidth


def _for_load(bandwidth: float, load: float) -> float:
    """Return the bandwidth by the bytes of equal blocks where the busiest rank has others."""
    return bandwidth / load if load else math.inf


def _rate_to_others(placement: Placement) -> tuple[str, float]:
    """Return what bounds a GPU that sends to all others of its node, with its bytes per second."""
    interior, gpus = first_gpus(placement)
    to_switches = nvswitch_bricks(interior, gpus) * nvlink_brick_bandwidth(interior)
    if over_nvlink := to_switches or nvlink_rate_to_all_others(interior, gpus):
        return NVLINK, over_nvlink
    rate, kind = rate_to_all_others(interior, gpus)
    return kind, rate


def _rate_inside(placement: Placement, system: NcclSystem) -> tuple[str, float] | None:
    """Return what bounds rings inside a node, with all their bytes per second; None without any."""
    if system.ppn == 1:
        return None
    if system.architecture:
        return XGMI_LINK, system.ring.channels * system.ring.bw_intra
    inside = rings_inside(placement)
    return (inside.kind, inside.total_bandwidth) if inside else None
