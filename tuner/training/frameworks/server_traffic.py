"""What ports and links let through between ranks and their parameter servers.

Servers are processes on the nodes of the ranks, spread over them. Their messages go through host
memory and use all NICs of a node. A server exchanges each tensor with all ranks at once, so that
the link that carries most of it decides how long that takes; and all tensors together take as long
as the link that carries most of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.topology import HOST, Placement, find_paths

MAX_PAIRS = 1 << 16  # of nodes whose paths are looked up; with more, those of some servers
MAX_KEPT = 64  # results


@dataclass(frozen=True)
class ServerTraffic:
    """Seconds that the network takes for each byte of a tensor.

    push, pull          of tensors of each server, from all ranks and to all of them, shape
                        (servers,)
    push_all, pull_all  of the tensors of all servers, which share ports of ranks and links between
                        switches
    shared_link         name of the link that all of these tensors occupy longest, "" on one node
    """

    push: FloatArray
    pull: FloatArray
    push_all: float
    pull_all: float
    shared_link: str


@lru_cache(MAX_KEPT)
def server_traffic(placement: Placement, servers: int, local_aggregation: bool) -> ServerTraffic:
    """Return the traffic of some number of servers.

    local_aggregation   whether one rank of each node alone exchanges tensors
    """
    nodes, ranks = np.unique(placement.node_of, return_counts=True)
    senders = np.ones(len(nodes)) if local_aggregation else ranks.astype(float)
    host = _hosts(servers, len(nodes))
    on_same_node = np.bincount(host, minlength=len(nodes))[host]
    step = -(-len(nodes) * servers // MAX_PAIRS)
    looked_up = np.arange(0, servers, step)
    each = Placement(placement.topology, nodes)
    seconds = {way: np.zeros(len(looked_up)) for way in ("push", "pull")}
    whole = {way: np.zeros(len(placement.topology.resource_capacity)) for way in seconds}
    for at, server in enumerate(looked_up.tolist()):
        for way in seconds:
            busy = _busy_seconds(each, senders, int(host[server]), to_ranks=way == "pull")
            seconds[way][at] = busy.max(initial=0.0) * on_same_node[server]
            whole[way] += busy / len(looked_up)
    nearest = np.arange(servers) // step
    both = whole["push"] + whole["pull"]
    return ServerTraffic(
        seconds["push"][nearest],
        seconds["pull"][nearest],
        float(whole["push"].max(initial=0.0)),
        float(whole["pull"].max(initial=0.0)),
        placement.topology.resource_name(int(both.argmax())) if both.any() else "",
    )


def _hosts(servers: int, nodes: int) -> IntArray:
    """Return the node of each server: they are spread, or take turns if they are more."""
    number = np.arange(servers)
    return number * nodes // servers if servers <= nodes else number % nodes


def _busy_seconds(each: Placement, senders: FloatArray, host: int, *, to_ranks: bool) -> FloatArray:
    """Return how long every resource is busy with a byte from, or to, each rank.

    each        a rank on each node
    senders     ranks of the nodes that exchange tensors with a server
    """
    others = np.flatnonzero(np.arange(each.p) != host)
    capacity = each.topology.resource_capacity
    if not len(others):
        return np.zeros(len(capacity))
    ends = others, np.full(len(others), host)
    paths = find_paths(each, HOST, *(ends[::-1] if to_ranks else ends), striped=True)
    load = paths.load_factor * senders[others][:, None]
    crossed = paths.links >= 0
    carried = np.bincount(paths.links[crossed], load[crossed], minlength=len(capacity))
    busy: FloatArray = carried / capacity
    return busy
