"""How long topology files take, from the text to a topology: python -m tests.bench.importers DIR

Prints a row for every file in the folders hwloc, nccl_topo, nvidia_smi, ibnetdiscover and slurm of
DIR, and for a fat tree of 11,520 hosts written here as `ibnetdiscover` and as Slurm would write it.
Exits with 1 when a file takes 2 s or more.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.fabrics import fabric
from tuner.base.errors import InputError
from tuner.cli.terminal.output import print_table
from tuner.machines.topology_files import parse_topology, read_text

FOLDERS = ("hwloc", "nccl_topo", "nvidia_smi", "ibnetdiscover", "slurm")
SUFFIXES = (".xml", ".txt", ".out", ".conf")
LIMIT = 2.0  # seconds
LEAVES = 640
HOSTS = 18  # of one leaf
SPINES = 18


def infiniband() -> str:
    """The fat tree with one cable from each leaf to each spine."""
    names = {f"Sa{leaf:x}": f"leaf{leaf}" for leaf in range(LEAVES)}
    names |= {f"Sb{spine:x}": f"spine{spine}" for spine in range(SPINES)}
    names |= {f"H{host:x}": f"host{host} mlx5_0" for host in range(LEAVES * HOSTS)}
    up = [(f"Sa{a:x}", HOSTS + b, f"Sb{b:x}", a) for a in range(LEAVES) for b in range(SPINES)]
    down = [(f"H{h:x}", 1, f"Sa{h // HOSTS:x}", h % HOSTS) for h in range(LEAVES * HOSTS)]
    return fabric(names, up + down)


def tree() -> str:
    """The same for Slurm."""
    lines = [
        f"SwitchName=leaf{leaf} Nodes=host[{leaf * HOSTS}-{(leaf + 1) * HOSTS - 1}]"
        for leaf in range(LEAVES)
    ]
    lines += [f"SwitchName=spine{n} Switches=leaf[0-{LEAVES - 1}]" for n in range(SPINES)]
    return "\n".join(lines)


def texts(directory: Path) -> Iterator[tuple[str, str]]:
    """Name and content."""
    for folder in FOLDERS:
        for path in sorted((directory / folder).glob("*")):
            if path.suffix in SUFFIXES:
                yield f"{folder}/{path.name}", read_text(path)
    yield "made here, 11,520 hosts", infiniband()
    yield "made here, 11,520 hosts", tree()


def row(name: str, text: str) -> tuple[tuple[str, ...], float]:
    """What to print, and the seconds taken."""
    begun = time.perf_counter()
    try:
        known_as, topology = parse_topology(text)
        size = f"{len(topology.nodes)} nodes, {len(topology.switches)} switches"
    except InputError as reason:
        known_as, size = "refused", str(reason)[:60]
    taken = time.perf_counter() - begun
    return (name, f"{len(text):,}", known_as, size, f"{taken:.3f}"), taken


if __name__ == "__main__":
    parse_topology("name: x\nnodes: 2\nlatency: 1us\nbandwidth: 1GB/s\n")  # what compiles has
    rows = [row(name, text) for name, text in texts(Path(sys.argv[1]))]
    columns = ("file", "characters", "format", "topology", "seconds")
    print_table("importers", columns, [cells for cells, _ in rows], right=("characters", "seconds"))
    sys.exit(any(taken >= LIMIT for _, taken in rows))
