"""Reads one computer from `rocm-smi --showtopo`: how each pair of AMD GPUs is connected.

    === Hops between two GPUs ===         === Link Type between two GPUs ===
           GPU0    GPU1                          GPU0    GPU1
    GPU0   0       1                      GPU0   0       XGMI
    GPU1   1       0                      GPU1   XGMI    0

A pair of type XGMI has a link, unless it is several hops apart; other pairs go over PCIe. GPUs of
one NUMA node are on one CPU. Weights say no more, as they follow from hops and types. There are no
products, cores, NICs or bandwidths: an xGMI link is assumed to have 24 GB/s, a PCIe link 12 GB/s.
"""

from __future__ import annotations

import re
from itertools import combinations

from tuner.base.errors import InputError, shortened_repr
from tuner.topology import CPU, GPU, Node, Topology
from tuner.topology.readers.gpu_products import DEFAULT_XGMI_BANDWIDTH, UNNAMED_GPUS
from tuner.topology.readers.node_builder import (
    DEFAULT_PCIE_BANDWIDTH,
    SOCKET_BANDWIDTH_AMD,
    UNNAMED_NODE,
    NodeBuilder,
    PciBranch,
)

TYPES, HOPS = "Link Type between two GPUs", "Hops between two GPUs"
TITLE = re.compile(r"=+ (.*?) =+")
GPU_NAME = re.compile(r"GPU[0-9]{1,4}")
NUMA_NODE = re.compile(r"GPU ?\[?([0-9]{1,4})\]?\s*:\s*\(Topology\) Numa Node:\s*(-?[0-9]{1,6})")
XGMI, LINK_TYPES = "XGMI", ("XGMI", "PCIE")

Cells = dict[tuple[str, str], str]  # by row and column


def parse_rocm_smi(text: str) -> Topology:
    """Return a topology of one node; raise InputError naming the matrix and the place in it."""
    lines = [line.strip() for line in text.splitlines()]
    types, hops = _matrix(lines, TYPES), _matrix(lines, HOPS)
    if not types:
        raise InputError(f"rocm-smi's matrix {TYPES!r} is missing: take `rocm-smi --showtopo`")
    names = list(dict.fromkeys(row for row, _ in types))
    _require_types(types, names)
    numa = {f"GPU{found[1]}": found[2] for found in map(NUMA_NODE.fullmatch, lines) if found}
    plan = NodeBuilder()
    cpus = {node: plan.add_device(CPU) for node in dict.fromkeys(map(numa.get, names))}
    gpus = {name: plan.add_device(GPU) for name in names}
    for name in names:
        plan.attach(cpus[numa.get(name)], PciBranch(DEFAULT_PCIE_BANDWIDTH, gpus[name]))
    plan.connect_cpus(list(cpus.values()), SOCKET_BANDWIDTH_AMD)
    linked = [pair for pair in combinations(names, 2) if types[pair] == XGMI]
    for a, b in linked:
        if hops.get((a, b), "1") == "1":
            plan.connect(gpus[a], gpus[b], DEFAULT_XGMI_BANDWIDTH, "nvlink")
    node = Node(UNNAMED_NODE, node_topology=plan.build())
    return Topology(UNNAMED_NODE, (node,), (), (), cautions=(UNNAMED_GPUS,) if linked else ())


def _matrix(lines: list[str], title: str) -> Cells:
    """Return the cells of the matrix below a title, {} where there is none.

    Raises InputError unless the line of columns and each row name GPUs, and all rows are there.
    """
    titles = [found and found[1] for found in map(TITLE.fullmatch, lines)]
    start = titles.index(title) + 1 if title in titles else len(lines)
    end = next((i for i in range(start, len(lines)) if titles[i] or not lines[i]), len(lines))
    columns, *rows = [line.split() for line in lines[start:end]] or [[]]
    for number, words in enumerate(rows, start + 2):
        if len(words) != len(columns) + 1:
            raise InputError(
                f"line {number}: a row of {title!r} has a GPU and {len(columns)} cells, not"
                f" {shortened_repr(' '.join(words))}"
            )
    names = [words[0] for words in rows]
    if names != columns or not all(map(GPU_NAME.fullmatch, names)):
        raise InputError(
            f"line {start + 1}: the columns and rows of {title!r} are not the same GPUs"
        )
    return {(words[0], b): cell for words in rows for b, cell in zip(names, words[1:], strict=True)}


def _require_types(types: Cells, names: list[str]) -> None:
    """Raise InputError for a pair whose type is not known, or not the same from both sides."""
    for a, b in combinations(names, 2):
        if types[a, b] not in LINK_TYPES or types[a, b] != types[b, a]:
            found = " and ".join(shortened_repr(types[pair]) for pair in ((a, b), (b, a)))
            raise InputError(
                f"{TYPES}, row {a}, column {b}: {' or '.join(LINK_TYPES)} belongs here and in the"
                f" opposite cell, not {found}"
            )
