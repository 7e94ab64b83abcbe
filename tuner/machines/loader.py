"""Loads a machine from a preset's name, or from a machine or topology file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError
from tuner.base.units import format_time
from tuner.core.path_classes import NVLINK, PCIE
from tuner.machines import PRESETS, Machine
from tuner.machines.assumed_costs import ASSUMED_KEY, assumed_costs, with_assumed_costs
from tuner.machines.topology_files import (
    detect_topology_format,
    load_topology,
    parse_topology,
    read_text,
)
from tuner.machines.yaml_machines import (
    PRESET_PREFIX,
    machine_from_preset_reference,
    machine_from_yaml,
)
from tuner.topology import CUDA, GPU, HOST, NETWORK, Topology
from tuner.topology.readers.probed_topology import nominal_calibration
from tuner.topology.readers.safe_yaml import parse_yaml
from tuner.topology.readers.serialization import topology_from_record

MAX_CACHED_PRESETS = 16  # each with its nodes


def load_machine(
    reference: str | Path, base_dir: Path = Path(), node_topology: Path | None = None
) -> Machine:
    """Return the machine of `preset:NAME`, `preset:NAME:NODES` or a topology file of any format.

    reference       the preset or the file
    base_dir        directory that file names are relative to
    node_topology   second file that describes the interior of every node

    A preset, and a YAML file with costs, has its own calibration. Other machines have the nominal
    costs of their topology; those of other programs' files, which say no latencies, have assumed
    ones, too. Raises InputError that names file, place and remedy.
    """
    if str(reference).startswith(PRESET_PREFIX):
        if node_topology is not None:
            raise InputError(f"{reference} has an inside already: leave {node_topology} out")
        return machine_from_preset_reference(str(reference))
    path = base_dir / reference
    if str(reference) in PRESETS and not path.exists():
        raise InputError(
            f"{path}: no such file; write {PRESET_PREFIX}{reference} for the machine of this name"
        )
    text = read_text(path) if node_topology is None else ""
    try:
        own = find_own_record(text)
        if own is not None:
            return machine_from_yaml(own)
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None
    return _nominal_machine(load_topology(path, node_topology))


@lru_cache(MAX_CACHED_PRESETS)
def load_preset(name: str) -> Machine:
    """Return the machine of `preset:NAME`; raise InputError for an unknown one."""
    return load_machine(name)


def machine_from_record(record: Any) -> Machine:
    """Return the machine of a topology record or a parsed YAML topology; raise InputError."""
    if isinstance(record, dict) and "kind" in record:
        return _nominal_machine(topology_from_record(record))
    return machine_from_yaml(record)


def machine_from_text(text: str) -> Machine:
    """Return the machine of a text in any format; raise InputError if it names other files."""
    own = find_own_record(text)
    return machine_from_yaml(own) if own is not None else _nominal_machine(parse_topology(text)[1])


def find_own_record(text: str) -> dict[str, Any] | None:
    """Return the parsed YAML of a machine or topology; None for `combine` and other formats."""
    if detect_topology_format(text) != "yaml":
        return None
    record = parse_yaml(text)
    return record if isinstance(record, dict) and "combine" not in record else None


def _nominal_machine(topology: Topology) -> Machine:
    """Return a machine with nominal costs, and assumed ones where its links have no latencies."""
    costs = with_assumed_costs(nominal_calibration(topology), topology)
    return Machine(topology.name, topology, costs)


# The assumed latencies that a warning names, those of links
ASSUMED_TITLES = {
    (NETWORK, HOST): "between nodes",
    (NETWORK, CUDA): "between GPUs of two nodes",
    (NVLINK, CUDA): "over NVLink",
    (PCIE, CUDA): "over PCIe",
}


def machine_warnings(machine: Machine, *, has_latency: bool = False) -> tuple[str, ...]:
    """Return the cautions of a machine's files, and a warning if its costs are assumed.

    has_latency     whether what is asked for states the latency of the network
    """
    said = (f"caution: {sentence}" for sentence in machine.topology.cautions)
    return *said, "" if has_latency else assumed_costs_warning(machine)


def assumed_costs_warning(machine: Machine) -> str:
    """Return a warning if costs of a machine are assumed, "" otherwise."""
    if ASSUMED_KEY not in machine.calibration.provenance:
        return ""
    assumed = assumed_costs(machine.topology)
    said = ", ".join(
        f"{format_time(assumed[key].segments[0].alpha.value)} {title}"
        for key, title in ASSUMED_TITLES.items()
        if key in assumed
    )
    remedy = "give a measured calibration"
    if (NETWORK, HOST) in assumed:
        remedy += ", or a YAML file with `combine: {fabric: FILE, latency: 1us}`"
    return (
        f"caution: nothing says how long short messages take on {machine.name}, so latencies of"
        f" other machines are assumed ({said}): {remedy}"
    )


def missing_overhead_warning(machine: Machine) -> str:
    """Return a warning if no message of a machine has an overhead, "" otherwise."""
    if any(cost.overhead.value > 0 for cost in machine.calibration.paths.values()):
        return ""
    reductions = "" if machine.calibration.reduction else ", and reductions take no time"
    return (
        "caution: messages have no overhead of their own here, so that small sizes favour"
        f" algorithms in which one rank sends many{reductions}: give a measured calibration"
    )


def shared_gpu_warning(topology: Topology, ppn: int) -> str:
    """Return a warning if `ppn` ranks of a node share GPUs, "" otherwise."""
    gpus = min((len(one.device_indices(GPU)) for one, _ in topology.node_topologies), default=0)
    if not 0 < gpus < ppn:
        return ""
    return (
        f"caution: {ppn} ranks share the {gpus} GPUs of a node of {topology.name}, which NCCL"
        f" refuses unless NCCL_MULTI_RANK_GPU_ENABLE=1; with ppn {gpus} each has its own"
    )
