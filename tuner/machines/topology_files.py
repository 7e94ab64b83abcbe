"""Reads topology files in any known format, which is detected from the text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from tuner.base.errors import InputError
from tuner.base.spelling import unknown_name
from tuner.machines.yaml_machines import (
    PRESET_PREFIX,
    machine_from_preset_reference,
    machine_from_yaml,
)
from tuner.topology import Topology
from tuner.topology.readers import safe_yaml
from tuner.topology.readers.amd_smi import parse_amd_smi
from tuner.topology.readers.combined import combine, combine_from_yaml
from tuner.topology.readers.hwloc import parse_hwloc
from tuner.topology.readers.ibnetdiscover import parse_ibnetdiscover
from tuner.topology.readers.nccl_xml import parse_nccl_xml
from tuner.topology.readers.nvidia_smi import parse_nvidia_smi
from tuner.topology.readers.rocm_smi import parse_rocm_smi
from tuner.topology.readers.serialization import topology_from_record
from tuner.topology.readers.simgrid import parse_simgrid
from tuner.topology.readers.slurm import KNOWN_KEYS, YAML_ENTRY, parse_slurm

MAX_CHARACTERS = 1 << 25  # of line-based formats: a fabric of 50,000 hosts; the others allow less


TopologyLoader = Callable[[str], Topology]  # returns the topology of a name in a combination


def _parse_yaml(text: str, loader: TopologyLoader | None = None) -> Topology:
    """Return the topology of a YAML text.

    Without a loader, a text that names files is refused, because it may come from anywhere.
    """
    record = safe_yaml.parse_yaml(text)
    if not (isinstance(record, dict) and "combine" in record):
        return machine_from_yaml(record).topology
    if loader is None:
        raise InputError(
            "combine names files, which only a file on this computer can; give the"
            " topology that results"
        )
    return combine_from_yaml(record, loader)


def _parse_own_record(text: str) -> Topology:
    """Return the topology of the JSON of `topology_to_record`."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise InputError(f"not JSON: {reason}") from None
    return topology_from_record(record)


TOPOLOGY_FORMATS: dict[str, Callable[[str], Topology]] = {
    "yaml": _parse_yaml,
    "hwloc": parse_hwloc,
    "nvidia-smi": parse_nvidia_smi,
    "rocm-smi": parse_rocm_smi,
    "amd-smi": parse_amd_smi,
    "nccl": parse_nccl_xml,
    "ibnetdiscover": parse_ibnetdiscover,
    "slurm": parse_slurm,
    "simgrid": parse_simgrid,
    "tuner": _parse_own_record,
}

# What only this format has, tried in this order; text that begins with a tag is XML.
FORMAT_PATTERNS = {
    "nvidia-smi": re.compile(r"^GPU[0-9]+[ \t]+(X|NV[0-9]|PIX|PXB|PHB|NODE|SYS|SOC)\b", re.M),
    "rocm-smi": re.compile(r"^=+ (ROCm System Management|Link Type between two GPUs)\b", re.M),
    "amd-smi": re.compile(
        r"^\ufeff?(?:(?:LINK TYPE|NUMA BW|ACCESS|HOPS|WEIGHT) TABLE:|gpu,(?:bdf,)?\w+_gpu_)"
        r"|[{,\s]\"link_(?:type|status|accessibility)\"\s*:",
        re.M,
    ),
    "ibnetdiscover": re.compile(r'^(Switch|Ca|Rt)[ \t]+[0-9]+[ \t]+"[SHR]-', re.M),
    "slurm": re.compile(
        rf"^[ \t]*({'|'.join(KNOWN_KEYS)})[ \t]*=|{YAML_ENTRY.pattern}", re.M | re.I
    ),
    "yaml": re.compile(
        r"(?:^|[{,])[ \t\ufeff]*[\"']?"
        r"(name|nodes|preset|combine|fabric|links|latency|bandwidth)[\"']?[ \t]*:",
        re.M,
    ),
}
ROOT_ELEMENTS = {"system": "nccl", "platform": "simgrid"}  # of XML; hwloc's has others
FOREIGN_TEXT = (
    "not recognised as a topology, which is hwloc's XML (`lstopo --of xml`), NCCL's or RCCL's XML"
    " (NCCL_TOPO_DUMP_FILE), what `nvidia-smi topo -m`, `rocm-smi --showtopo`, `amd-smi topology`,"
    " `ibnetdiscover` or `scontrol show topology` prints, Slurm's topology.conf or topology.yaml, a"
    " platform of SimGrid, or tuner's own YAML: docs/how-to/describe-a-machine.md explains them"
)
OWN_KIND = re.compile(r'\s*\{\s*"kind"\s*:\s*"([a-z ]+)"')  # at the start of tuner's own files
OWN_TOPOLOGY = "topology"  # the kind of the format "tuner"
KIND_NAMES = {
    "partial study": "an unfinished study",
    "probe": "measurements",
    "profile": "a profile of calls",
    "replay": "the result of a replay",
    "selector": "a selector",
    "study": "a study",
    "table": "a tuning table",
}
XML_PROLOGUE = re.compile(r"[\s\ufeff]*(<\?[^>]*>|<!--.*?-->|<![A-Z][^>\[]*>)", re.S)


def parse_topology(
    text: str, format_name: str | None = None, loader: TopologyLoader | None = None
) -> tuple[str, Topology]:
    """Return the name of the format and the topology.

    format_name     format of the text; None: detect it
    loader          returns the topologies that a YAML text with `combine` names; without it such a
                    text is refused

    Raises InputError for an unknown format and for invalid text, naming line or element.
    """
    name = detect_topology_format(text) if format_name is None else format_name
    if name not in TOPOLOGY_FORMATS:
        raise InputError(unknown_name("topology format", name, TOPOLOGY_FORMATS))
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"{len(text)} characters are too many: at most {MAX_CHARACTERS}")
    return name, _parse_yaml(text, loader) if name == "yaml" else TOPOLOGY_FORMATS[name](text)


def load_topology(path: Path, node_topology: Path | None = None) -> Topology:
    """Return the topology of a file, with the interior of its nodes from a second file if given.

    `preset:NAME` and `preset:NAME:NODES` are accepted in place of files. Raises InputError that
    names file, place and remedy.
    """
    fabric = _load(path, allow_combine=True)
    if node_topology is None:
        return fabric
    inside = _load(node_topology, allow_combine=False)
    try:
        return combine(fabric, inside)
    except InputError as reason:
        raise InputError(f"{path} and {node_topology}: {reason}") from None


def read_text(path: Path) -> str:
    """Return the text of a file, up to one character more than any format allows.

    Raises InputError that names the file.
    """
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_CHARACTERS + 1)
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: not text in UTF-8: give a file in one of the formats that"
            " docs/how-to/describe-a-machine.md lists"
        ) from None


def _load(path: Path, allow_combine: bool) -> Topology:
    """Return the topology of a file or preset; nested combinations are not allowed."""
    if str(path).startswith(PRESET_PREFIX):
        return machine_from_preset_reference(str(path)).topology
    text = read_text(path)

    def beside(name: str) -> Topology:
        return _load(Path(name) if name.startswith(PRESET_PREFIX) else path.parent / name, False)

    try:
        return parse_topology(text, loader=beside if allow_combine else None)[1]
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None


def detect_topology_format(text: str) -> str:
    """Return the name of the format that a text appears to be in.

    Raises InputError for a text that appears to be in none, and for other files of tuner.
    """
    if (own := OWN_KIND.match(text)) is not None:
        if own[1] == OWN_TOPOLOGY:
            return "tuner"
        raise InputError(
            f"this file has {KIND_NAMES.get(own[1], f'data of kind {own[1]}')} and no topology;"
            " the formats of topologies are listed in docs/how-to/describe-a-machine.md"
        )
    at = 0
    while (prologue := XML_PROLOGUE.match(text, at)) is not None:
        at = prologue.end()
    start = text[at:].lstrip("\ufeff \t\r\n")
    if start.startswith("<"):
        root = re.match(r"<(\w+)", start)
        return ROOT_ELEMENTS.get(root[1] if root else "", "hwloc")
    for name, line in FORMAT_PATTERNS.items():
        if line.search(text):
            return name
    raise InputError(FOREIGN_TEXT)
