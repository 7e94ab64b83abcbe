"""Reads one computer from `rocm-smi --showtopo`: how each pair of AMD GPUs is connected.

    === Hops between two GPUs ===         === Link Type between two GPUs ===
           GPU0    GPU1                          GPU0    GPU1
    GPU0   0       1                      GPU0   0       XGMI
    GPU1   1       0                      GPU1   XGMI    0

Lines below the matrices say the NUMA nodes of GPUs. There are no products and no bandwidths.
"""

from __future__ import annotations

import re

from tuner.base.errors import InputError
from tuner.topology import Topology
from tuner.topology.readers.amd_gpus import GpuPairs, amd_topology, read_matrix

TYPES = "Link Type between two GPUs"
TITLE = re.compile(r"=+ (.*?) =+")
GPU_NAME = re.compile(r"GPU[0-9]{1,4}")
NUMA_NODE = re.compile(r"GPU ?\[?([0-9]{1,4})\]?\s*:\s*\(Topology\) Numa Node:\s*(-?[0-9]{1,6})")


def parse_rocm_smi(text: str) -> Topology:
    """Return a topology of one node; raise InputError naming the matrix and the place in it."""
    lines = [line.strip() for line in text.splitlines()]
    titles = [found and found[1] for found in map(TITLE.fullmatch, lines)]
    types, hops, weights = (
        read_matrix(lines, titles, title, GPU_NAME)
        for title in (TYPES, "Hops between two GPUs", "Weight between two GPUs")
    )
    if not types:
        raise InputError(f"rocm-smi's matrix {TYPES!r} is missing: take `rocm-smi --showtopo`")
    numa_nodes = dict[str, str]()
    for number, found in enumerate(map(NUMA_NODE.fullmatch, lines), 1):
        if found and f"GPU{found[1]}" in numa_nodes:
            raise InputError(f"line {number}: a second NUMA node of GPU{found[1]}: leave one")
        if found:
            numa_nodes[f"GPU{found[1]}"] = found[2]
    told = {gpu: node for gpu, node in numa_nodes.items() if not node.startswith("-")}
    pairs = GpuPairs(TYPES, types, hops, weights)
    return amd_topology(pairs, told if told.keys() >= set(pairs.names) else {})
