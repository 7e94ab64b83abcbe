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
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.topology import Topology
from tuner.topology.readers.amd_gpus import Cells, GpuPairs, amd_topology, read_matrix

TABLE = re.compile(r"([A-Z][A-Z -]* TABLE):")
GPU_NAME = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]|GPU[0-9]{1,4}")
GPU_NUMBER = re.compile(r"[0-9]{1,4}")
COLUMN = re.compile(r"(\w{1,40}?)_gpu_([0-9]{1,4})")
Row = tuple[object, list[tuple[str, object]]]  # a GPU, and names such as weight_gpu_1 with values
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
        named = _matrices(_json_rows(_load(text)))
    elif text.startswith("gpu,"):
        named = _matrices(_csv_rows(text))
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


def _matrices(rows: Iterable[Row]) -> dict[str, Cells]:
    """Return the cells by what they say; raise InputError for a cell that is there twice."""
    named = defaultdict[str, Cells](dict)
    for gpu, cells in rows:
        if not GPU_NUMBER.fullmatch(str(gpu)):
            raise InputError(f"`gpu` is a number, not {shortened_repr(gpu)}")
        for name, value in cells:
            if found := COLUMN.fullmatch(name):
                pair = f"GPU{gpu}", f"GPU{found[2]}"
                if pair in named[found[1]]:
                    raise InputError(f"{found[1]}, row {pair[0]}, column {pair[1]}: told twice")
                named[found[1]][pair] = str(value)
    return named


def _load(text: str) -> list[dict[str, Any]]:
    try:
        record = json.loads(text, object_pairs_hook=_mapping)
    except (ValueError, RecursionError) as reason:
        raise InputError(f"not JSON that amd-smi writes: {reason}") from None
    if not isinstance(record, list) or not all(isinstance(gpu, dict) for gpu in record):
        raise InputError(
            "amd-smi's JSON is a list of GPUs and nothing around it, such as"
            f' [{{"gpu": 0, "links": [...]}}, ...], not {shortened_repr(record)}'
        )
    return record


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise InputError(f"the key {shortened_repr(key)} is there twice in one object of JSON")
    return found


def _json_rows(record: list[dict[str, Any]]) -> Iterator[Row]:
    """Yield the rows; they are told as one list of links per GPU, or as one mapping per matrix."""
    for gpu in record:
        links, cells = gpu.get("links"), list[tuple[str, object]]()
        for link in links if isinstance(links, list) else ():
            to = link.get("gpu") if isinstance(link, dict) else None
            if not GPU_NUMBER.fullmatch(str(to)):
                raise InputError(
                    f"each link of GPU {shortened_repr(gpu.get('gpu'))} must name another `gpu`"
                )
            cells += ((f"{key}_gpu_{to}", value) for key, value in link.items())
        for key in (key for key, value in gpu.items() if isinstance(value, dict)):
            cells += ((f"{key}_{to}", value) for to, value in gpu[key].items())
        yield gpu.get("gpu"), cells


def _csv_rows(text: str) -> Iterator[Row]:
    """Yield the rows of a table."""
    try:
        columns, *rows = filter(None, csv.reader(text.splitlines(), strict=True))
    except csv.Error as reason:
        raise InputError(f"not a table that amd-smi writes: {reason}") from None
    for row in rows:
        if len(row) != len(columns):
            raise InputError(f"GPU {shortened_repr(row[0])}: not one field per column")
        yield row[0], list(zip(columns, row, strict=True))
