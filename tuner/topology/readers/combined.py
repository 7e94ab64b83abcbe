"""Combines two descriptions into one machine: the fabric of one, the node interior of another.

In a YAML file, with file names relative to it:

    combine: {fabric: ibnetdiscover.txt, node: nccl-topology.xml}

The service reads the same format with ids of stored topologies in place of file names. A fabric may
also be described in place, as in a YAML file of its own, such as
`fabric: {nodes: 16, latency: 2us, bandwidth: 25GB/s}`.

rails       number of cables that each cable of the fabric stands for, one per NIC; Slurm's files
            and single-switch files describe only one
latency     latency of every cable of the network, where the fabric's file does not say it
bandwidth   bandwidth of every cable of the network, where the fabric's file does not say it
gpu         product of the GPUs, such as GH200, where the node's file does not say it
offers      what the network can do besides moving messages
nodes       pattern such as "gpu*"; nodes with other names, such as storage nodes, are left out,
            and so are the switches that have no node below them any more

Without `node` the interior of the nodes is unknown. Beside `combine`, `name` is the name of the
machine, and `local: {latency, bandwidth, memory_bandwidth}` is the cost of a message between host
memories of one node, and `nccl: {launch, hop, simple, copy_rate, full_channel}` what NCCL takes on
its GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import RATE, TIME, parse_int, parse_name, parse_names, require_keys
from tuner.topology import NIC, Link, Node, Topology
from tuner.topology.readers.gpu_products import with_gpu
from tuner.topology.readers.yaml_topology import NCCL, parse_local_costs, topology_from_yaml

COMBINE_KEYS = {"fabric", "node", "nodes", "rails", "latency", "bandwidth", "offers", "gpu"}
MAX_RAILS = 64
UNNAMED_FABRIC = "cluster"

# (port, other end of the link) -> the new ports of its cables
PortMap = dict[tuple[str, str], list[str]]


def combine_from_yaml(record: Mapping[str, Any], load: Callable[[str], Topology]) -> Topology:
    """Return the topology that a YAML record with `combine` describes.

    load    reads a topology by file name or id

    Raises InputError for an invalid record.
    """
    require_keys("the topology", record, {"combine", "name", "local", "nccl"}, {"combine"})
    told = record["combine"]
    in_rails = isinstance(told, dict) and "rails" in told
    require_keys("combine", told, COMBINE_KEYS, {"fabric", "node"} if in_rails else {"fabric"})
    rails = parse_int("combine: rails", told.get("rails", 1), MAX_RAILS)
    fabric = _with_overrides(_fabric(told["fabric"], load), told)
    if "nodes" in told:
        fabric = _select_nodes(fabric, parse_name("combine: nodes", told["nodes"]))
    if "node" in told:
        fabric = combine(fabric, load(_name("node", told["node"])), rails)
    if "gpu" in told:
        fabric = with_gpu(fabric, parse_name("combine: gpu", told["gpu"]))
    local = parse_local_costs("local", record["local"]) if "local" in record else {}
    if "nccl" in record:
        fabric = replace(fabric, nccl=NCCL.read("nccl", record["nccl"]))
    return replace(fabric, name=parse_name("name", record.get("name", fabric.name)), **local)


def _fabric(value: Any, load: Callable[[str], Topology]) -> Topology:
    """Return the topology that `fabric` names or describes."""
    if isinstance(value, Mapping):
        return topology_from_yaml({"name": UNNAMED_FABRIC, **value})
    return load(_name("fabric", value))


def _name(key: str, value: Any) -> str:
    """Return a file name or id as text; the service's ids may be plain numbers."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"combine: {key} must be the name of a file, not {shortened_repr(value)}")
    return str(value)


def _with_overrides(fabric: Topology, overrides: Mapping[str, Any]) -> Topology:
    """Return the fabric with the cable latency, bandwidth and capabilities of the record."""
    links = fabric.links
    if "latency" in overrides:
        latency = TIME.read("combine: latency", overrides["latency"])
        links = tuple(replace(link, latency=latency) for link in links)
    if "bandwidth" in overrides:
        rate = RATE.read("combine: bandwidth", overrides["bandwidth"])
        links = tuple(replace(link, capacity=rate * link.count) for link in links)
    offers = fabric.capabilities | set(parse_names("combine: offers", overrides.get("offers", [])))
    return replace(fabric, links=links, capabilities=offers)


def _select_nodes(fabric: Topology, pattern: str) -> Topology:
    """Return the fabric with only the nodes that match a shell pattern."""
    nodes = tuple(node for node in fabric.nodes if fnmatchcase(node.name, pattern))
    if not nodes:
        raise InputError(
            f"combine: no node of {fabric.name} is called like {shortened_repr(pattern)}"
        )
    gone = {port for node in fabric.nodes for port in node.ports} - {
        port for node in nodes for port in node.ports
    }
    gone |= _idle_switches(fabric, gone)
    switches = tuple(name for name in fabric.switches if name not in gone)
    links = tuple(link for link in fabric.links if not {link.source, link.target} & gone)
    return replace(fabric, nodes=nodes, switches=switches, links=links)


def _idle_switches(fabric: Topology, removed: set[str]) -> set[str]:
    """Return the switches that have nothing below them once the removed ports are gone.

    Neighbouring switches of one level, as on a torus, stay: messages of other nodes cross them.
    """
    below: dict[str, set[str]] = {name: set() for name in fabric.switches}
    for link in fabric.links:
        for end, other in ((link.source, link.target), (link.target, link.source)):
            if end in below and fabric.switch_levels.get(other, 0) <= fabric.switch_levels.get(
                end, 0
            ):
                below[end].add(other)
    idle: set[str] = set()
    for name in sorted(below, key=lambda name: fabric.switch_levels.get(name, 0)):
        if below[name] <= removed | idle:
            idle.add(name)
    return idle


def combine(fabric: Topology, node: Topology, rails: int = 1) -> Topology:
    """Return the fabric with the cores and the interior of a single node in each of its nodes.

    fabric      topology of the network
    node        topology of one node
    rails       number of cables that each cable of the fabric stands for

    NICs are matched by name if both sides have the same names, else in order. Raises InputError
    when the number of NICs or cables of a node on the fabric differs from that of NICs inside, and
    when the second topology does not have exactly one node.
    """
    if len(node.nodes) != 1:
        raise InputError(
            f"topology {node.name} has {len(node.nodes)} nodes: the inside of a node"
            " comes from a file that describes one computer"
        )
    inside = node.nodes[0]
    nodes = tuple(
        replace(host, cores=inside.cores, node_topology=inside.node_topology)
        for host in fabric.nodes
    )
    links = [
        replace(link, capacity=link.capacity * rails, count=link.count * rails)
        for link in fabric.links
    ]
    ends = _map_ports(fabric, links, nodes)
    moved = tuple(piece for link in links for piece in _reconnect(link, ends))
    return Topology(
        fabric.name,
        nodes,
        fabric.switches,
        moved,
        node.local_latency,
        node.local_bandwidth,
        node.memory_bandwidth,
        fabric.routing,
        fabric.capabilities | node.capabilities,
        fabric.cautions + node.cautions,
        node.nccl or fabric.nccl,
    )


def _map_ports(fabric: Topology, links: Sequence[Link], nodes: Sequence[Node]) -> PortMap:
    """Return the NIC that each cable of each node ends at, except for nodes that keep one port."""
    leaving: dict[str, list[Link]] = {}
    for link in links:
        leaving.setdefault(link.source, []).append(link)
    ends: PortMap = {}
    for old, new in zip(fabric.nodes, nodes, strict=True):
        if len(old.ports) == len(new.ports) == 1:
            continue
        out = [link for port in old.ports for link in leaving.get(port, [])]
        ends |= (
            _map_nics(old, new, out) if len(old.ports) > 1 else _map_cables_to_nics(old, new, out)
        )
    return ends


def _map_nics(old: Node, new: Node, out: Sequence[Link]) -> PortMap:
    """Map the links of each NIC to the NIC of the same name, or of the same position."""
    _check_port_count(old, new, len(old.ports), "NICs")
    mine, theirs = _products(old), _products(new)
    by_name = len(set(mine)) == len(mine) and set(mine) == set(theirs)
    port = {
        a: new.ports[theirs.index(name) if by_name else i]
        for i, (a, name) in enumerate(zip(old.ports, mine, strict=True))
    }
    return {(link.source, link.target): [port[link.source]] * link.count for link in out}


def _map_cables_to_nics(old: Node, new: Node, out: Sequence[Link]) -> PortMap:
    """Map the cables of a node without known NICs to the NICs in the order of its links."""
    _check_port_count(old, new, sum(link.count for link in out), "cables")
    ports = iter(new.ports)
    return {(link.source, link.target): [next(ports) for _ in range(link.count)] for link in out}


def _products(node: Node) -> list[str]:
    devices = node.node_topology.devices if node.node_topology else ()
    return [device.product for device in devices if device.kind == NIC]


def _check_port_count(old: Node, new: Node, number: int, what: str) -> None:
    if number != len(new.ports):
        raise InputError(
            f"node {old.name} has {number} {what} on the fabric, but the computer described for it"
            f" has {len(new.ports)}; a YAML file with `combine` may say how many cables"
            " each cable stands for (rails) and leave other nodes out (nodes)"
        )


def _reconnect(link: Link, port_map: PortMap) -> Iterator[Link]:
    """Yield the link between its new ends, one link per pair of NICs that its cables join."""
    sources = port_map.get((link.source, link.target), [link.source] * link.count)
    targets = port_map.get((link.target, link.source), [link.target] * link.count)
    if len(sources) != len(targets):
        raise InputError(
            f"link {link.source} -> {link.target} has not as many cables as the one back"
        )
    together = dict[tuple[str, str], int]()
    for pair in zip(sources, targets, strict=True):
        together[pair] = together.get(pair, 0) + 1
    for (source, target), count in together.items():
        capacity = link.capacity * count / link.count
        yield replace(link, source=source, target=target, capacity=capacity, count=count)
