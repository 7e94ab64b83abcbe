"""Small topologies: a cluster, and the inside of its nodes."""

from __future__ import annotations

from tuner.topology import CPU, GPU, NIC, SWITCH, Device, Link, Node, NodeTopology, Topology


def both(a: str, b: str, kind: str = "network", capacity: float = 1e9) -> tuple[Link, Link]:
    return Link(a, b, capacity, 1e-6, kind), Link(b, a, capacity, 1e-6, kind)


def interior(nics: int, gpus: int = 2) -> NodeTopology:
    """One socket; GPUs and NICs below one PCIe switch."""
    ends = [*(f"gpu{i}" for i in range(gpus)), *(f"nic{i}" for i in range(nics))]
    kinds = [GPU] * gpus + [NIC] * nics
    devices = [Device("cpu", CPU), Device("pcie", SWITCH), *map(Device, ends, kinds)]
    links = [link for end in ("cpu", *ends) for link in both(end, "pcie", "pcie", 1e10)]
    return NodeTopology(tuple(devices), tuple(links))


def cluster(*inside: NodeTopology | None, rails: bool = False) -> Topology:
    """Every port on one switch, or the ports of each number on a switch of their own."""
    nodes = tuple(Node(f"n{i}", 4, own) for i, own in enumerate(inside))
    ports = [(port, f"s{i if rails else 0}") for node in nodes for i, port in enumerate(node.ports)]
    links = tuple(link for port, switch in ports for link in both(port, switch))
    return Topology("random", nodes, tuple(sorted({switch for _, switch in ports})), links)
