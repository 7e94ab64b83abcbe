"""Reader of machines in YAML: every number with its source and certainty.

    name: mine
    title: Our cluster                # optional, as are `source` and `library`
    source: data sheets; our ping-pongs
    library: Open MPI                 # whose costs these are
    nodes: {value: 32, source: our inventory, certainty: verified}
    interior: {devices: [...], links: [...]}    # as in `yaml_interior`
    fabric:                           # as in `yaml_fields`, without its cables
      kind: fat_tree
      per_leaf: 16
      bandwidth: edr-port             # of one NIC in each direction
      switch_latency: infiniband-switch
      source: our cabling plan        # of the shape
      certainty: verified
    offers: {multicast: infiniband-multicast}   # optional
    memory_bandwidth: {value: 150GB/s, source: data sheet, certainty: published}
    striping_threshold: never-striped
    pointer_query: pointer-query
    paths: {host: {network: {...}, ...}, cuda: {...}}    # costs by memory and path class
    reductions: {host: cpu-core, cuda: gpu.reduction}
    parts: {...}                      # optional: parts of this file, as in parts.yaml
    gpus: {...}                       # optional: GPU products of this file, as in gpus.yaml
    accuracy:                         # optional: of predictions against measured collectives
      nccl: {median: 0.02, worst: 0.15, results: 5, source: nccl-tests}
      simulation: {...}
    nccl: {source: nccl-tests, certainty: verified, launch: 9us, ...}    # optional: `NcclCosts`

A link between switches has the bandwidth of a NIC, unless `trunk`, `link`, `local` or `across`
names the kinds of links with their bandwidths, and the latency of a switch. The alpha of a path
class includes the latency of links inside a node and of one switch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tuner.base.errors import InputError
from tuner.base.file_settings import (
    COUNT,
    one_of,
    parse_mapping,
    parse_name,
    require_keys,
    required_settings,
)
from tuner.core.path_classes import NETWORK_BIDIRECTIONAL, NETWORK_RING, PATH_CLASSES
from tuner.machines.catalog import known_gpus, known_parts
from tuner.machines.gpus import GpuSpec, find_gpu, parse_gpus
from tuner.machines.machine_spec import MAX_MACHINE_NODES, MachineSpec, PathKey
from tuner.machines.model_accuracy import parse_accuracy
from tuner.machines.node_parts import DeviceLink, LinkType, NodeSpec
from tuner.machines.provenance import SourcedPathCost, SourcedReduction, SourcedValue
from tuner.machines.sourced_fields import ORIGIN_KEYS, SourcedReader
from tuner.topology import CUDA, GPU, GPU_LINK_KINDS, HOST, LINK_KINDS, Device, NcclCosts
from tuner.topology.machine import NETWORK_CAPABILITIES
from tuner.topology.readers.fabrics import Fabric
from tuner.topology.readers.yaml_fields import parse_fabric
from tuner.topology.readers.yaml_interior import (
    INTERIOR_LINK_KEYS,
    DeviceGroups,
    parse_devices,
    parse_interior_ends,
    require_few_links,
)

OPTIONAL_KEYS = {"title", "source", "library", "offers", "parts", "gpus", "accuracy", "nccl"}
REQUIRED_KEYS = {
    "name",
    "nodes",
    "interior",
    "fabric",
    "memory_bandwidth",
    "striping_threshold",
    "pointer_query",
    "paths",
    "reductions",
}
SPEC_KEYS = OPTIONAL_KEYS | REQUIRED_KEYS
COST_CLASSES = {"self", "staging", NETWORK_BIDIRECTIONAL, NETWORK_RING, *PATH_CLASSES}
NCCL_UNITS = {"launch": "s", "hop": "s", "simple": "s", "copy_rate": "B/s", "full_channel": "s"}
REDUCTIONS = {"host", "cuda", "cuda_by_cpu"}
SWITCH_LINK_KEYS = {  # kind of fabric -> keys of its links between switches
    "fat_tree": ("trunk",),
    "torus": ("link",),
    "dragonfly": ("local", "across"),
}


def spec_from_yaml(record: Any) -> MachineSpec:
    """Return the specification of parsed YAML; raise InputError that names the key."""
    require_keys("the machine", record, SPEC_KEYS, REQUIRED_KEYS)
    name = parse_name("name", record["name"])
    parts = {**known_parts(), **parse_mapping("parts", record.get("parts", {}))}
    own_gpus = parse_gpus(record.get("gpus", {}), parts)
    devices, groups = parse_devices(record["interior"])
    gpu = _find_gpu(devices, known_gpus() | own_gpus)
    reader = SourcedReader(parts | gpu.parts() if gpu else parts)
    nodes = reader.number("nodes", record["nodes"], "")
    if nodes.value > MAX_MACHINE_NODES:
        raise InputError(f"nodes must be a whole number from 1 to {MAX_MACHINE_NODES}")
    return MachineSpec(
        name=name,
        title=parse_name("title", record.get("title", name)),
        source=parse_name("source", record.get("source", "")),
        nodes=nodes,
        gpu=gpu,
        node_spec=NodeSpec(tuple(devices), _device_links(record["interior"], groups, gpu, reader)),
        **_fabric_fields(record["fabric"], reader),
        paths=parse_paths(record["paths"], reader),
        reduction=parse_reductions(record["reductions"], reader),
        memory_bandwidth=reader.number("memory_bandwidth", record["memory_bandwidth"], "B/s"),
        striping_threshold=reader.number("striping_threshold", record["striping_threshold"], "B"),
        pointer_query=reader.number("pointer_query", record["pointer_query"], "s"),
        library=parse_name("library", record.get("library", "")),
        capabilities={
            what: reader.origin(f"offers: {what}", value)
            for what, value in parse_mapping(
                "offers", record.get("offers", {}), set(NETWORK_CAPABILITIES)
            ).items()
        },
        own_gpus=own_gpus,
        accuracy=parse_accuracy(record.get("accuracy", {})),
        nccl=_nccl_costs(record["nccl"], reader) if "nccl" in record else {},
    )


def _nccl_costs(record: Any, reader: SourcedReader) -> dict[str, SourcedValue]:
    optional = NCCL_UNITS.keys() - required_settings(NcclCosts)
    return reader.numbers("nccl", record, NCCL_UNITS, optional)


def _find_gpu(devices: list[Device], gpus: dict[str, GpuSpec]) -> GpuSpec | None:
    """Return the only GPU product of a node, None without GPUs; raise InputError for several."""
    products = sorted({device.product for device in devices if device.kind == GPU})
    if len(products) > 1:
        raise InputError(f"interior: the GPUs of a node are of one product, not {products[:3]}")
    return find_gpu(products[0], gpus) if products else None


def _device_links(
    interior: Any, groups: DeviceGroups, gpu: GpuSpec | None, reader: SourcedReader
) -> tuple[DeviceLink, ...]:
    found: list[DeviceLink] = []
    for number, entry in enumerate(interior["links"], start=1):
        what = f"link {number}"
        required = {"kind", "bandwidth"}
        require_keys(what, entry, INTERIOR_LINK_KEYS - {"from"}, required)
        kind = one_of(LINK_KINDS).read(f"{what}: kind", entry["kind"])
        count = COUNT.read(f"{what}: count", entry.get("count", 1))
        link_type = LinkType(kind, reader.number(f"{what}: bandwidth", entry["bandwidth"], "B/s"))
        if "latency" in entry:
            latency = reader.number(f"{what}: latency", entry["latency"], "s")
            link_type = replace(link_type, latency=latency)
        ends = parse_interior_ends(what, entry, groups)[::2]  # without the reverse directions
        found += [DeviceLink(a, b, link_type, count) for a, b in ends]
        require_few_links(len(found))
        if kind in GPU_LINK_KINDS and gpu is not None and kind != gpu.link_kind:
            raise InputError(f"{what}: {gpu.product} has no {GPU_LINK_KINDS[kind]}")
    return tuple(found)


def parse_reductions(value: Any, reader: SourcedReader) -> dict[str, SourcedReduction]:
    """Return the costs of reductions by what reduces; raise InputError that names the key."""
    return {
        device: reader.reduction(f"reductions: {device}", cost)
        for device, cost in parse_mapping("reductions", value, REDUCTIONS).items()
    }


def parse_paths(value: Any, reader: SourcedReader) -> dict[PathKey, SourcedPathCost]:
    """Return the costs of messages by path class and memory; raise InputError for others."""
    require_keys("paths", value, {HOST, CUDA}, {HOST})
    return {
        (path_class, memory): reader.path_cost(f"paths: {memory}: {path_class}", cost)
        for memory, costs in value.items()
        for path_class, cost in parse_mapping(f"paths: {memory}", costs, COST_CLASSES).items()
    }


def _fabric_fields(value: Any, reader: SourcedReader) -> dict[str, Any]:
    """Return the fields of `MachineSpec` on the network."""
    numbers = {"bandwidth", "switch_latency"}
    known = set(value) if isinstance(value, dict) else set()
    require_keys("fabric", value, known | numbers | ORIGIN_KEYS, numbers | ORIGIN_KEYS)
    nic = reader.number("fabric: bandwidth", value["bandwidth"], "B/s")
    latency = reader.number("fabric: switch_latency", value["switch_latency"], "s")
    rates = {
        key: _switch_link_rates(f"fabric: {key}", value[key], reader)
        for keys in SWITCH_LINK_KEYS.values()
        for key in keys
        if key in value
    }
    shape = {key: value[key] for key in value if key not in numbers | ORIGIN_KEYS}
    origin = {key: value[key] for key in ORIGIN_KEYS}
    return {
        "fabric": _parse_shape(shape, nic, latency, rates),
        "fabric_source": reader.origin("fabric", origin),
        "nic_rate": nic,
        "switch_latency": latency,
        "switch_link_rates": {name: rate for of in rates.values() for name, rate in of.items()},
    }


def _switch_link_rates(what: str, value: Any, reader: SourcedReader) -> dict[str, SourcedValue]:
    """Return the bandwidths of kinds of links between switches, by what a kind is called."""
    found = {
        parse_name(what, name): reader.number(f"{what}: {name}", rate, "B/s")
        for name, rate in parse_mapping(what, value).items()
    }
    if not found:
        raise InputError(f"{what} must map the names of links to their bandwidths")
    return found


def _parse_shape(
    shape: dict[str, Any],
    nic: SourcedValue,
    latency: SourcedValue,
    rates: dict[str, dict[str, SourcedValue]],
) -> Fabric:
    """Return the fabric of a shape; its cables are written as `parse_fabric` reads them."""
    kind = shape.get("kind")
    for key in SWITCH_LINK_KEYS.get(kind, ()) if isinstance(kind, str) else ():
        cables = [_cable(rate.value, latency.value) for rate in rates.get(key, {"": nic}).values()]
        if key != "local" and len(cables) > 1:
            raise InputError(f"fabric: {key} must name one kind of link")
        shape = {**shape, key: cables if key == "local" and key in rates else cables[0]}
    return parse_fabric({**shape, **_cable(nic.value, 0.0)})


def _cable(bandwidth: float, latency: float) -> dict[str, str]:
    return {"bandwidth": f"{bandwidth!r}B/s", "latency": f"{latency!r}s"}
