"""Placement of ranks on nodes and on the devices of a node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.base.arrays import BoolArray, IntArray
from tuner.base.errors import InputError
from tuner.base.units import plural
from tuner.core.path_classes import BLOCK, CUDA, CYCLIC, HOST
from tuner.topology.machine import CPU, GPU, NIC, NodeTopology, Topology

MAX_SIMULATED_RANKS = 1 << 20


@dataclass(frozen=True)
class RankDevices:
    """The devices that ranks use, each array of shape (p,).

    Devices are numbered within the node; 0 in nodes without a known interior.

    device      the GPU or CPU whose memory holds the buffers
    cpu         the nearest CPU
    nic         the network port (numbered over all nodes) nearest to the device; ranks that share a
                device take turns among equally near ones
    cpu_nic     the network port nearest to the CPU
    """

    device: IntArray
    cpu: IntArray
    nic: IntArray
    cpu_nic: IntArray


@dataclass(frozen=True, eq=False)
class Placement:
    """A mapping of ranks to nodes: `node_of[r]` is the index of the node that rank r runs on."""

    topology: Topology
    node_of: IntArray

    @classmethod
    def block(cls, topology: Topology, ppn: int, p: int | None = None) -> Placement:
        """Return the placement that fills node after node with `ppn` ranks each.

        Raises InputError when the p ranks (default: `ppn` on every node) do not fit.
        """
        return cls(topology, np.arange(_checked_rank_count(topology, ppn, p)) // ppn)

    @classmethod
    def cyclic(cls, topology: Topology, ppn: int, p: int | None = None) -> Placement:
        """Return the placement that deals ranks to the nodes one by one, at most `ppn` to each.

        Raises InputError when the p ranks (default: `ppn` on every node) do not fit.
        """
        ranks = _checked_rank_count(topology, ppn, p)
        return cls(topology, np.arange(ranks) % max(1, -(-ranks // ppn)))

    @classmethod
    def from_name(cls, name: str, topology: Topology, ppn: int, p: int | None = None) -> Placement:
        """Return the placement of this name, BLOCK or CYCLIC.

        Raises InputError when the ranks do not fit.
        """
        deal = {BLOCK: cls.block, CYCLIC: cls.cyclic}[name]
        return deal(topology, ppn, p)

    @property
    def p(self) -> int:
        return len(self.node_of)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Number of nodes with ranks, and the largest number of ranks on one of them."""
        ranks = np.bincount(self.node_of)
        return int(np.count_nonzero(ranks)), int(ranks.max())

    @cached_property
    def local_ranks(self) -> IntArray:
        """Number of each rank among those of its node, shape (p,)."""
        return _occurrence_index(self.node_of)

    @cached_property
    def is_oversubscribed(self) -> BoolArray:
        """Whether the node of each rank has more ranks than cores, shape (p,)."""
        ranks = np.bincount(self.node_of, minlength=len(self.topology.nodes))
        crowded: BoolArray = (ranks > self.topology.cores_per_node)[self.node_of]
        return crowded

    def rank_devices(self, memory: str) -> RankDevices:
        """Return the devices of all ranks.

        memory      where the buffers are: HOST or CUDA

        Raises InputError for CUDA on a node without GPUs, and for other kinds of memory.
        """
        if memory not in (HOST, CUDA):
            raise InputError(f"memory is {HOST} or {CUDA}, not {memory!r}")
        if memory not in self._rank_devices_by_memory:
            self._rank_devices_by_memory[memory] = self._find_rank_devices(memory)
        return self._rank_devices_by_memory[memory]

    @cached_property
    def _rank_devices_by_memory(self) -> dict[str, RankDevices]:
        return {}

    def _find_rank_devices(self, memory: str) -> RankDevices:
        device, cpu = (np.zeros(self.p, dtype=np.int64) for _ in range(2))
        nic = self.topology.first_port[self.node_of]
        cpu_nic = nic.copy()
        if memory == CUDA:
            self.require_gpus()
        for interior, nodes in self.topology.node_topologies:
            mine = np.flatnonzero(np.isin(self.node_of, nodes))
            device[mine], cpu[mine] = self._devices(interior, mine, memory)
            nic[mine] += _nearest(interior, device[mine], self.node_of[mine])
            cpu_nic[mine] += _nearest(interior, cpu[mine], self.node_of[mine])
        return RankDevices(device, cpu, nic, cpu_nic)

    def require_gpus(self) -> None:
        """Raise InputError for a node without GPUs."""
        for node in {int(n) for n in self.node_of}:
            interior = self.topology.nodes[node].node_topology
            if interior is None or not len(interior.device_indices(GPU)):
                raise InputError(
                    f"node {self.topology.nodes[node].name} of topology {self.topology.name} has no"
                    " GPU: price host memory, or choose a machine with GPUs"
                )

    def _devices(
        self, interior: NodeTopology, ranks: IntArray, memory: str
    ) -> tuple[IntArray, IntArray]:
        """Return the device and the CPU of each of these ranks.

        Local rank i uses GPU i modulo the number of GPUs.
        """
        gpus = interior.device_indices(GPU)
        cpus = interior.device_indices(CPU)
        local = self.local_ranks[ranks]
        if len(gpus):
            gpu = gpus[local % len(gpus)]
            cpu = cpus[interior.distances[np.ix_(gpu, cpus)].argmin(axis=1)] if len(cpus) else gpu
            return (gpu if memory == CUDA else cpu), cpu
        if not len(cpus):
            return np.zeros_like(local), np.zeros_like(local)
        ppn = np.bincount(self.node_of)[self.node_of[ranks]]
        cpu = cpus[np.minimum(local * len(cpus) // ppn, len(cpus) - 1)]
        return cpu, cpu


def _nearest(interior: NodeTopology, device: IntArray, node: IntArray) -> IntArray:
    """Return the NIC nearest to each device, as a number among the node's NICs.

    device      device of each rank, shape (k,)
    node        node of each rank, shape (k,); ranks of a node take turns among equally near NICs
    """
    nics = interior.device_indices(NIC)
    if len(nics) < 2:
        return np.zeros_like(device)
    chosen = np.empty_like(device)
    for one in np.unique(device):
        away = interior.distances[one, nics]
        near = np.flatnonzero(away <= away.min() + 1e-9)
        mine = np.flatnonzero(device == one)
        alike = interior.device_indices(interior.devices[one].kind)
        turn = np.searchsorted(alike, one) + _occurrence_index(node[mine])
        chosen[mine] = near[turn % len(near)]
    return chosen


def _occurrence_index(values: IntArray) -> IntArray:
    """Return how many equal values precede each value."""
    order = np.argsort(values, kind="stable")
    turn = np.empty(len(values), dtype=np.int64)
    turn[order] = np.arange(len(values)) - np.searchsorted(values[order], values[order])
    return turn


def _checked_rank_count(topology: Topology, ppn: int, p: int | None) -> int:
    if ppn < 1:
        raise InputError(f"ppn must be at least 1, not {ppn}")
    available = ppn * len(topology.nodes)
    wanted = available if p is None else p
    if wanted > MAX_SIMULATED_RANKS:
        raise InputError(f"{wanted} ranks are more than can be simulated ({MAX_SIMULATED_RANKS})")
    if not 1 <= wanted <= available:
        raise InputError(
            f"{plural(wanted, 'rank')} do not fit on topology {topology.name}:"
            f" {plural(len(topology.nodes), 'node')} x {plural(ppn, 'rank')} per node ="
            f" {available}: give more ranks per node (--ppn), fewer ranks, or a larger machine"
        )
    return wanted
