"""A machine by what somebody writes for it: the name of a preset, or of a topology file."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import InputError
from tuner.topologies.calibrated import given_calibration
from tuner.topologies.formats import load_topology, read_text
from tuner.topologies.presets import Machine
from tuner.topologies.safe_yaml import parse_yaml
from tuner.topologies.short import PREFIX, machine_from, preset_reference


def load_machine(reference: str | Path, beside: Path = Path(), node: Path | None = None) -> Machine:
    """From `preset:NAME`, `preset:NAME:NODES`, or a topology file of any format.

    Names of files are relative to `beside`; `node` is a second file that describes the inside of
    every node. A preset, also one that a YAML file names, brings its calibration; everything else
    costs what the topology says. Raises InputError that names file, place and remedy.
    """
    if str(reference).startswith(PREFIX):
        if node is not None:
            raise InputError(f"{reference} has an inside already: leave {node} out")
        return preset_reference(str(reference))
    path = beside / reference
    if node is None and _names_preset(path):
        try:
            return machine_from(parse_yaml(read_text(path)))
        except InputError as reason:
            raise InputError(f"{path}: {reason}") from None
    topology = load_topology(path, node)
    return Machine(topology.name, topology, given_calibration(topology))


def caution(machine: Machine) -> str:
    """A sentence for who reads times of a machine whose links have no latency; "" for others."""
    topology = machine.topology
    links = topology.links or [link for inside, _ in topology.interiors for link in inside.links]
    if machine.calibration.paths or not links or any(link.latency for link in links):
        return ""
    return (
        f"caution: no link of {topology.name} has a latency, so that short messages cost next to"
        " nothing here; a YAML file with `combine: {fabric: FILE, latency: 1us}` says it, or a"
        " calibration"
    )


def _names_preset(path: Path) -> bool:
    """Whether a line of the file begins with `preset:`, as only such a YAML file's does."""
    return any(line.startswith(PREFIX) for line in read_text(path).splitlines())
