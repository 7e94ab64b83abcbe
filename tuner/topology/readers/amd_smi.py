"""Reads one computer from `amd-smi topology`: how each pair of AMD GPUs is connected.

    LINK TYPE TABLE:                              NUMA BW TABLE:
                 0000:0c:00.0 0000:22:00.0                     0000:0c:00.0 0000:22:00.0
    0000:0c:00.0 SELF         XGMI                0000:0c:00.0 N/A          50000-100000
    0000:22:00.0 XGMI         SELF                0000:22:00.0 50000-100000 N/A

The same is read from its options `--json`, in the forms before and since ROCm 6.1.1, and `--csv`.
Bandwidths are those of one link and of all links of a pair, in MB/s and one direction. Tables on
coherency, atomics and DMA say nothing of links. There are no products and no NUMA nodes.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.topology import Topology
from tuner.topology.readers.amd_gpus import Cells, GpuPairs, amd_topology, read_matrix

TABLE = re.compile(r"([A-Z][A-Z -]* TABLE):")
GPU_NAME = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]|GPU[0-9]{1,4}")
COLUMN = re.compile(r"(\w{1,40}?)_gpu_([0-9]{1,4})")
# field of GpuPairs -> table, and keys in JSON and CSV
NAMES = {
    "types": ("LINK TYPE TABLE", "link_type"),
    "hops": ("HOPS TABLE", "num_hops", "hops"),
    "weights": ("WEIGHT TABLE", "weight"),
    "bandwidths": ("NUMA BW TABLE", "bandwidth", "numa_bandwidth"),
    "accesses": ("ACCESS TABLE", "link_status", "link_accessibility"),
}


def parse_amd_smi(text: str) -> Topology:
    """Return a topology of one node; raise InputError naming the matrix and the place in it."""
    text = text.lstrip("\ufeff \t\r\n")
    if text.startswith(("[", "{")):
        named = _by_key(_json_cells(_load(text)))
    elif text.startswith("gpu,"):
        named = _by_key(_csv_cells(text))
    else:
        lines = [line.strip() for line in text.splitlines()]
        titles = [found and found[1] for found in map(TABLE.fullmatch, lines)]
        known = (names[0] for names in NAMES.values())
        named = {title: read_matrix(lines, titles, title, GPU_NAME) for title in known}
    cells = {
        matrix: next((named[name] for name in names if named.get(name)), {})
        for matrix, names in NAMES.items()
    }
    if not cells["types"]:
        raise InputError("amd-smi's table of link types is missing: take `amd-smi topology`")
    return amd_topology(GpuPairs("link type", **cells), {})


def _by_key(cells: Iterable[tuple[str, str, str, object]]) -> dict[str, Cells]:
    """Return the cells by what they say, from tuples of it, row, column and value."""
    named = defaultdict[str, Cells](dict)
    for key, row, column, value in cells:
        named[key][f"GPU{row}", f"GPU{column}"] = str(value)
    return named


def _load(text: str) -> list[dict[str, Any]]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise InputError(f"not JSON that amd-smi writes: {reason}") from None
    if not isinstance(record, list) or not all(isinstance(gpu, dict) for gpu in record):
        raise InputError("amd-smi's JSON is a list of GPUs: take `amd-smi topology --json`")
    return record


def _json_cells(record: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, object]]:
    """Yield what is said, row, column and value; one list of links per GPU, or one mapping each."""
    for gpu in record:
        row, links = gpu.get("gpu"), gpu.get("links")
        for link in links if isinstance(links, list) else ():
            column = link.get("gpu") if isinstance(link, dict) else None
            if type(row) is not int or type(column) is not int:
                raise InputError(f"a link of GPU {shortened_repr(row)} names no other `gpu`")
            yield from ((key, str(row), str(column), value) for key, value in link.items())
        maps = {key: value for key, value in gpu.items() if isinstance(value, dict)}
        yield from _flat_cells(
            str(row), {f"{key}_{to}": cell for key in maps for to, cell in maps[key].items()}
        )


def _csv_cells(text: str) -> Iterator[tuple[str, str, str, object]]:
    """Yield what is said, row, column and value of each pair in a table of one row per GPU."""
    try:
        for row in csv.DictReader(text.splitlines(), strict=True):
            if None in row or None in row.values():
                raise InputError(f"GPU {shortened_repr(row['gpu'])}: not one field per column")
            yield from _flat_cells(row["gpu"], row)
    except csv.Error as reason:
        raise InputError(f"not a table that amd-smi writes: {reason}") from None


def _flat_cells(row: str, cells: Mapping[str, Any]) -> Iterator[tuple[str, str, str, object]]:
    for name, value in cells.items():
        if found := COLUMN.fullmatch(name):
            yield found[1], row, found[2], value
