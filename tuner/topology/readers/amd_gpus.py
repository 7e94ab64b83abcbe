"""Builder of a node from what rocm-smi and amd-smi say of each pair of AMD GPUs.

A pair of type XGMI has a link, unless its hops, its weight or a bandwidth of 0 says that others
forward its messages; other pairs go over PCIe. GPUs of one NUMA node are on one CPU; where the file
says none, GPUs that are 3 hops apart are on different ones. The type of CPU, cores and NICs are not
told. A PCIe link has 12 GB/s, and an xGMI link without a stated bandwidth 24 GB/s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, combinations_with_replacement, permutations

from tuner.base.errors import InputError, shortened_repr
from tuner.topology import CPU, GPU, XGMI_LINK, Node, Topology
from tuner.topology.readers.gpu_products import DEFAULT_XGMI_BANDWIDTH, UNNAMED_GPUS
from tuner.topology.readers.node_builder import (
    DEFAULT_PCIE_BANDWIDTH,
    SOCKET_BANDWIDTH_AMD,
    UNNAMED_NODE,
    NodeBuilder,
    PciBranch,
)
from tuner.topology.readers.yaml_fields import MAX_DEVICES

XGMI, LINK_TYPES = "XGMI", ("XGMI", "PCIE")
NOT_TOLD, DISABLED = "N/A", "DISABLED"
DIFFERENT_CPUS = "3"  # hops between GPUs of different NUMA nodes, from AMD's page on amd-smi
XGMI_HOP_WEIGHT = 15  # of each hop over xGMI, from kfd_crat.c of Linux's amdgpu
UNKNOWN_CPUS = "the file does not say which GPUs are on which CPU: all are taken to be on one"
SELF = ("SELF", "0")  # the type of a GPU and itself: amd-smi, rocm-smi
MAX_LINKS = 16  # of a pair: more than any product has
BANDWIDTH = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")  # MB/s of one link and of all of a pair
NUMBER = re.compile(r"[0-9]{1,9}")

Cells = dict[tuple[str, str], str]  # by row and column


def _is_range(text: str) -> bool:
    found = BANDWIDTH.fullmatch(text)
    low, high = map(int, found.groups()) if found else (1, 0)
    return low == high == 0 or 0 < low <= high <= MAX_LINKS * low


CELLS: dict[str, tuple[Callable[[str], object], str]] = {  # by matrix: what is read, in words
    "hops": (NUMBER.fullmatch, "a number"),
    "weights": (NUMBER.fullmatch, "a number"),
    "bandwidths": (_is_range, f"a range such as 50000-100000 (MB/s) of up to {MAX_LINKS} links"),
    "accesses": (("ENABLED", DISABLED).__contains__, f"ENABLED or {DISABLED}"),
}


@dataclass(frozen=True)
class GpuPairs:
    """The matrices of a file, {} for those that it lacks.

    what    what the matrix of types is called, for messages
    """

    what: str
    types: Cells
    hops: Cells = field(default_factory=dict)
    weights: Cells = field(default_factory=dict)
    bandwidths: Cells = field(default_factory=dict)
    accesses: Cells = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Return the GPUs in the order of the file."""
        return list(dict.fromkeys(chain.from_iterable(self.types)))

    def cell(self, matrix: str, pair: tuple[str, str]) -> str:
        """Return what a cell says, "" where it is not told; raise InputError for other words."""
        text: str = getattr(self, matrix).get(pair, NOT_TOLD)
        is_read, wanted = CELLS[matrix]
        if text != NOT_TOLD and not is_read(text):
            raise InputError(
                f"{matrix}, row {pair[0]}, column {pair[1]}: {wanted} belongs here, not"
                f" {shortened_repr(text)}"
            )
        return "" if text == NOT_TOLD else text

    def bandwidth(self, pair: tuple[str, str]) -> tuple[float, int]:
        """Return bytes per second and number of links between two GPUs, (0, 0) for none told."""
        low, high = map(int, (self.cell("bandwidths", pair) or "0-0").split("-"))
        return high * 1e6, high // low if low and high % low == 0 else min(high, 1)

    def xgmi_links(self) -> dict[tuple[str, str], tuple[float, int]]:
        """Return bytes per second and number of links, (0, 0) where not told, per linked pair.

        Some drivers say 0 of all weights or bandwidths, which says nothing.
        """
        stated = {pair: self.bandwidth(pair) for pair in self.types if self.types[pair] == XGMI}
        says_bandwidths = any(rate for rate, _ in stated.values())
        linked = {
            pair: link
            for pair, link in stated.items()
            if int(self.cell("hops", pair) or 0) <= 1
            and int(self.cell("weights", pair) or 0) <= XGMI_HOP_WEIGHT
            and self.cell("accesses", pair) != DISABLED
            and (link[0] or not says_bandwidths)
        }
        for (a, b), link in linked.items():
            if linked.get((b, a)) != link:
                cells = ((name, self.cell(name, (a, b)), self.cell(name, (b, a))) for name in CELLS)
                found = (f"{name} {one!r}, {other!r}" for name, one, other in cells if one != other)
                raise InputError(
                    f"{a} has another xGMI link to {b} than {b} to {a}: {'; '.join(found)}"
                )
        return {pair: linked[pair] for pair in combinations(self.names, 2) if pair in linked}

    def check(self) -> None:
        """Raise InputError for too many GPUs, matrices of others, and contradictions."""
        _check_number(self.names)
        for a, b in combinations_with_replacement(self.names, 2):
            one, other = (self.types.get(pair, NOT_TOLD) for pair in ((a, b), (b, a)))
            known = SELF if a == b else LINK_TYPES
            if one not in known or one != other:
                found = " and ".join(map(shortened_repr, (one, other)))
                raise InputError(
                    f"{self.what}, row {a}, column {b}: {' or '.join(known)} belongs here and"
                    f" in the opposite cell, not {found}"
                )
        for matrix in CELLS:
            cells: Cells = getattr(self, matrix)
            if cells and (others := cells.keys() ^ self.types.keys()):
                a, b = min(others)
                raise InputError(
                    f"{matrix}, row {a}, column {b}: its GPUs are not those of {self.what}"
                )
            for pair in permutations(self.names, 2):
                self.cell(matrix, pair)


def _check_number(names: Sequence[str]) -> None:
    if len(names) > MAX_DEVICES:
        raise InputError(f"{len(names)} GPUs in one node: at most {MAX_DEVICES} are read")


def amd_topology(pairs: GpuPairs, numa_nodes: Mapping[str, str]) -> Topology:
    """Return a topology of one node; raise InputError naming the matrix and the place in it.

    numa_nodes      NUMA node of each GPU, {} where not told
    """
    pairs.check()
    names, links = pairs.names, pairs.xgmi_links()
    cpu_of = {name: numa_nodes.get(name, "") for name in names}
    if not numa_nodes:
        cpu_of = {
            b: next(a for a in names if a == b or pairs.hops.get((a, b)) != DIFFERENT_CPUS)
            for b in names
        }
    plan = NodeBuilder()
    cpus = {told: plan.add_device(CPU) for told in dict.fromkeys(cpu_of.values())}
    gpus = {name: plan.add_device(GPU) for name in names}
    for name in names:
        plan.attach(cpus[cpu_of[name]], PciBranch(DEFAULT_PCIE_BANDWIDTH, gpus[name]))
    plan.connect_cpus(list(cpus.values()), SOCKET_BANDWIDTH_AMD)
    for (a, b), (rate, count) in links.items():
        plan.connect(gpus[a], gpus[b], rate or DEFAULT_XGMI_BANDWIDTH, XGMI_LINK, count or 1)
    node = Node(UNNAMED_NODE, node_topology=plan.build())
    assumes_rates = any(not rate for rate, _ in links.values())
    assumes_cpus = len(cpus) < 2 <= len(names) and not numa_nodes
    cautions = [UNNAMED_GPUS] * assumes_rates + [UNKNOWN_CPUS] * assumes_cpus
    return Topology(UNNAMED_NODE, (node,), (), (), cautions=tuple(cautions))


def read_matrix(
    lines: Sequence[str], titles: Sequence[str | None], title: str, gpu: re.Pattern[str]
) -> Cells:
    """Return the cells of the matrix below a title, {} where there is none.

    titles      title in each line, None in the others
    gpu         pattern of the names of GPUs

    Raises InputError unless the line of columns and each row name GPUs, and all rows are there.
    """
    start = titles.index(title) + 1 if title in titles else len(lines)
    if title in titles[start:]:
        number = titles.index(title, start) + 1
        raise InputError(f"line {number}: a second {title!r}: leave what one computer says")
    end = next((i for i in range(start, len(lines)) if titles[i] or not lines[i]), len(lines))
    columns, *rows = [line.split() for line in lines[start:end]] or [[]]
    _check_number(columns)
    for number, words in enumerate(rows, start + 2):
        if len(words) != len(columns) + 1:
            raise InputError(
                f"line {number}: a row of {title!r} has a GPU and {len(columns)} cells, not"
                f" {shortened_repr(' '.join(words))}"
            )
    names = [words[0] for words in rows]
    if names != columns or len(set(names)) < len(names) or not all(map(gpu.fullmatch, names)):
        raise InputError(
            f"line {start + 1}: the columns and rows of {title!r} are not the same GPUs"
        )
    return {
        (row, name): cell for row, *cells in rows for name, cell in zip(names, cells, strict=True)
    }
