"""Every format in which a topology can come, told apart by what is in the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tuner.base.errors import InputError, quoted
from tuner.machines.yaml_machines import PREFIX, machine_from, preset_reference
from tuner.topology import Topology
from tuner.topology.readers import safe_yaml
from tuner.topology.readers.combined import combination_from, combine
from tuner.topology.readers.hwloc import parse_hwloc
from tuner.topology.readers.ibnetdiscover import parse_ibnetdiscover
from tuner.topology.readers.nccl_xml import parse_nccl_xml
from tuner.topology.readers.nvidia_smi import parse_nvidia_smi
from tuner.topology.readers.slurm import parse_slurm

MOST_CHARACTERS = 1 << 25  # of formats in lines: the fabric of 50,000 hosts; the others allow less


Named = Callable[[str], Topology]  # finds a topology by what a combination calls it


def _parse_yaml(text: str, named: Named | None = None) -> Topology:
    """A text alone may come from anywhere, so it names no file of this computer."""
    record = safe_yaml.parse_yaml(text)
    if not (isinstance(record, dict) and "combine" in record):
        return machine_from(record).topology
    if named is None:
        raise InputError(
            "combine names files, which only a file on this computer can; give the"
            " topology that results"
        )
    return combination_from(record, named)


FORMATS: dict[str, Callable[[str], Topology]] = {
    "yaml": _parse_yaml,
    "hwloc": parse_hwloc,
    "nvidia-smi": parse_nvidia_smi,
    "nccl": parse_nccl_xml,
    "ibnetdiscover": parse_ibnetdiscover,
    "slurm": parse_slurm,
}

# A line that only this format has. XML begins with a tag, and YAML with neither.
LINES = {
    "nvidia-smi": re.compile(r"^GPU[0-9]+[ \t]+(X|NV[0-9]|PIX|PXB|PHB|NODE|SYS|SOC)\b", re.M),
    "ibnetdiscover": re.compile(r'^(Switch|Ca|Rt)[ \t]+[0-9]+[ \t]+"[SHR]-', re.M),
    "slurm": re.compile(r"^[ \t]*(SwitchName|BlockName|BlockSizes)[ \t]*=", re.M | re.I),
}
PROLOGUE = re.compile(r"[\s\ufeff]*(<\?[^>]*>|<!--.*?-->|<![A-Z][^>\[]*>)", re.S)


def parse_topology(
    text: str, known_as: str | None = None, named: Named | None = None
) -> tuple[str, Topology]:
    """The name of the format, found out from the text unless it is known, and the topology.

    named   finds those that a YAML text with `combine` names; without it such a text is refused

    Raises InputError for an unknown format and for whatever that format refuses, naming line or
    element.
    """
    name = recognised(text) if known_as is None else known_as
    if name not in FORMATS:
        raise InputError(f"there is no topology format {quoted(name)}; known: {', '.join(FORMATS)}")
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"{len(text)} characters are too many: at most {MOST_CHARACTERS}")
    return name, _parse_yaml(text, named) if name == "yaml" else FORMATS[name](text)


def load_topology(path: Path, node: Path | None = None) -> Topology:
    """A topology from a file, the inside of its nodes from a second one if that is given.

    `preset:NAME` and `preset:NAME:NODES` stand for files too. Raises InputError that names file,
    place and remedy.
    """
    fabric = _load(path, combination=True)
    if node is None:
        return fabric
    inside = _load(node, combination=False)
    try:
        return combine(fabric, inside)
    except InputError as reason:
        raise InputError(f"{path} and {node}: {reason}") from None


def read_text(path: Path) -> str:
    """A file, as far as any format reads. Raises InputError that names it."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MOST_CHARACTERS + 1)
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: not text in UTF-8: give a file in one of the formats that the guide lists"
        ) from None


def _load(path: Path, combination: bool) -> Topology:
    """Combinations within combinations would have no end."""
    if str(path).startswith(PREFIX):
        return preset_reference(str(path)).topology
    text = read_text(path)

    def beside(name: str) -> Topology:
        return _load(Path(name) if name.startswith(PREFIX) else path.parent / name, False)

    try:
        return parse_topology(text, named=beside if combination else None)[1]
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None


def recognised(text: str) -> str:
    """The name of the format that a text is in, as it looks."""
    at = 0
    while (prologue := PROLOGUE.match(text, at)) is not None:
        at = prologue.end()
    start = text[at:].lstrip("\ufeff \t\r\n")
    if start.startswith("<"):
        return "nccl" if re.match(r"<system\b", start) else "hwloc"
    return next((name for name, line in LINES.items() if line.search(text)), "yaml")
