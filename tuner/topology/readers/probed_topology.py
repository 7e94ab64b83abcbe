"""A topology for a calibration, and a calibration for a topology."""

import math

from tuner.base.errors import InputError
from tuner.core.calibration import Calibration
from tuner.core.measurement import Cluster
from tuner.topology import HOST, MEMORY_BUS, NETWORK, Link, Node, Topology

SWITCH = "switch"


def single_node_topology(cluster: Cluster, calibration: Calibration) -> Topology:
    """Return the one computer that was calibrated; its ranks share the measured memory bus."""
    bus = calibration.capacities.get(MEMORY_BUS)
    return Topology(
        cluster.name,
        (Node(cluster.name, cluster.cores),),
        (),
        (),
        memory_bandwidth=math.inf if bus is None else bus.value,
    )


def single_switch_topology(cluster: Cluster, calibration: Calibration) -> Topology:
    """Return the calibrated hosts connected to one switch, for a cluster of unknown topology.

    Messages cost what was measured between two hosts, and a host's link has the bandwidth of one
    message. Raises InputError when the calibration was made with a topology, whose links then hold
    the latency, or has no messages between hosts.
    """
    if cluster.nodes == 1:
        return single_node_topology(cluster, calibration)
    named = calibration.provenance.get("topology", "")
    if named or (NETWORK, HOST) not in calibration.paths:
        why = f"was made with topology {named}" if named else "has no messages between hosts"
        raise InputError(
            f"the calibration of {cluster.name} {why}: give the topology of its {cluster.nodes}"
            " hosts (--topology FILE)"
        )
    beta = calibration.path_cost(NETWORK, HOST).segments[-1].beta.value
    rate = 1.0 / beta if beta > 0 else math.inf
    links = tuple(
        Link(*ends, rate, 0.0)
        for n in range(cluster.nodes)
        for ends in ((f"host{n}", SWITCH), (SWITCH, f"host{n}"))
    )
    bus = calibration.capacities.get(MEMORY_BUS)
    return Topology(
        cluster.name,
        tuple(Node(f"host{n}", cluster.cores) for n in range(cluster.nodes)),
        (SWITCH,),
        links,
        memory_bandwidth=math.inf if bus is None else bus.value,
    )


def topology_for(cluster: Cluster, calibration: Calibration, topology: Topology | None) -> Topology:
    """Return `topology`, or `single_switch_topology` where it is None.

    Raises InputError for several hosts on another topology than the calibration's, because the
    latencies of links would count twice or not at all, and as `single_switch_topology` does.
    """
    if topology is None:
        return single_switch_topology(cluster, calibration)
    named = calibration.provenance.get("topology", topology.name)
    if cluster.nodes > 1 and named != topology.name:
        made = f"with topology {named}" if named else "without a topology"
        raise InputError(
            f"the calibration of {cluster.name} was made {made}, not with {topology.name}:"
            " calibrate its measurements with --topology, and give the same file to both"
        )
    return topology


def nominal_calibration(topology: Topology) -> Calibration:
    """Return a calibration with no costs of its own, so that the topology's are used as stated.

    Sends are rendezvous, ports are FIFO, and there are no overheads.
    """
    return Calibration(topology.name, "none", {}, nominal=True)
