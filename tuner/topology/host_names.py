"""Match the host names of a probe with the nodes of a topology."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.base.errors import InputError
from tuner.topology.machine import Topology


def node_indices(topology: Topology, hosts: Sequence[str]) -> list[int]:
    """Return the node number of each host.

    Hosts are matched by name; if no host has the name of a node, host i is node i. Raises
    InputError when only some of the hosts have names of nodes.
    """
    at = {node.name: number for number, node in enumerate(topology.nodes)}
    if not set(hosts) & set(at):
        return list(range(len(topology.nodes)))
    unknown = [host for host in hosts if host not in at]
    if unknown:
        raise InputError(
            f"topology {topology.name} has no node {unknown[0]}, which was probed: use"
            " the names of its nodes for all hosts or for none"
        )
    return [at[host] for host in hosts]
