"""Picture of a machine as data: its nodes, switches, links and the devices inside nodes.

Links have the numbers by which simulations know them (`Topology.resource_capacity`): first those of
the network, then those inside each node, then a memory bus for each node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.topology import Link, NodeTopology, Topology


def picture_record(topology: Topology) -> dict[str, Any]:
    """Return a machine as JSON data.

    nodes           names
    switches        names, and levels above the nodes; 0 for one that no node can reach
    links           source and target: a node's number, or that of a switch after all nodes
    node_types      distinct interiors; their links have numbers of devices as ends
    node_type       number of the interior of each node, -1 where it is not known
    memory_bandwidth
                    bytes per second of each node's memory bus; None where nothing bounds it
    """
    port_node = np.repeat(np.arange(len(topology.nodes)), topology.port_counts).tolist()
    vertex = dict(zip(topology.ports, port_node, strict=True))
    vertex |= {name: len(topology.nodes) + i for i, name in enumerate(topology.switches)}
    node_type = np.full(len(topology.nodes), -1)
    for number, (_, nodes) in enumerate(topology.node_topologies):
        node_type[nodes] = number
    return {
        "name": topology.name,
        "nodes": [node.name for node in topology.nodes],
        "switches": {
            "name": list(topology.switches),
            "level": [topology.switch_levels.get(name, 0) for name in topology.switches],
        },
        "links": _link_columns(topology.links, vertex),
        "node_types": [_interior_record(interior) for interior, _ in topology.node_topologies],
        "node_type": node_type.tolist(),
        "memory_bandwidth": finite_or_none(np.array([topology.memory_bandwidth]))[0],
    }


def finite_or_none(values: FloatArray) -> list[float | None]:
    """Return numbers as JSON has them, None for infinite ones."""
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _interior_record(interior: NodeTopology) -> dict[str, Any]:
    devices = interior.devices
    return {
        "devices": {
            "name": [device.name for device in devices],
            "kind": [device.kind for device in devices],
            "product": [device.product for device in devices],
        },
        "links": _link_columns(interior.links, {one.name: i for i, one in enumerate(devices)}),
    }


def _link_columns(links: Sequence[Link], vertex: dict[str, int]) -> dict[str, list[Any]]:
    return {
        "source": [vertex[link.source] for link in links],
        "target": [vertex[link.target] for link in links],
        "capacity": finite_or_none(np.array([link.capacity for link in links])),
        "cables": [link.count for link in links],
        "kind": [link.kind for link in links],
    }
