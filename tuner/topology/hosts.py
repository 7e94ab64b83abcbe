"""Hosts by the names that a probe knows, as nodes of a topology."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.base.errors import InputError
from tuner.topology.machine import Topology


def node_indices(topology: Topology, hosts: Sequence[str]) -> list[int]:
    """Number i of a probe is the node of that name, or node i if no host's name is known there.

    Raises InputError when some names of hosts are those of nodes and others are not.
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
