"""Builder of a node from what rocm-smi and amd-smi say of each pair of AMD GPUs.

A pair of type XGMI has a link, unless its hops, its weight or a bandwidth of 0 says that others
forward its messages; other pairs go over PCIe. GPUs of one NUMA node are on one CPU; where the file
says none, GPUs that are 3 hops apart are on different ones. The type of CPU, cores and NICs are not
told. A PCIe link has 12 GB/s, and an xGMI link without a stated bandwidth 24 GB/s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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

XGMI, LINK_TYPES = "XGMI", ("XGMI", "PCIE")
NOT_TOLD, DISABLED = "N/A", "DISABLED"
DIFFERENT_CPUS = "3"  # hops between GPUs of different NUMA nodes, from AMD's page on amd-smi
XGMI_HOP_WEIGHT = 15  # of each hop over xGMI, from kfd_crat.c of Linux's amdgpu
UNKNOWN_CPUS = "the file does not say which GPUs are on which CPU: all are taken to be on one"
BANDWIDTH = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")  # MB/s of one link and of all of a pair
NUMBER = re.compile(r"[0-9]{1,9}")

Cells = dict[tuple[str, str], str]  # by row and column


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
        return list(dict.fromkeys(end for ends in zip(*self.types, strict=True) for end in ends))

    def number(self, matrix: str, pair: tuple[str, str]) -> int:
        """Return a number of hops or a weight, 0 where none is told."""
        cell = getattr(self, matrix).get(pair, NOT_TOLD)
        if cell != NOT_TOLD and not NUMBER.fullmatch(cell):
            raise _cell_error(matrix, pair, "a number", cell)
        return 0 if cell == NOT_TOLD else int(cell)

    def bandwidth(self, pair: tuple[str, str]) -> tuple[float, int]:
        """Return bytes per second and number of links between two GPUs, (0, 0) for none told."""
        cell = self.bandwidths.get(pair, NOT_TOLD)
        found = BANDWIDTH.fullmatch(cell)
        if found is None and cell != NOT_TOLD:
            raise _cell_error("bandwidths", pair, "a range such as 50000-100000 (MB/s)", cell)
        low, high = map(int, found.groups()) if found else (0, 0)
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
            if self.number("hops", pair) <= 1
            and self.number("weights", pair) <= XGMI_HOP_WEIGHT
            and self.accesses.get(pair) != DISABLED
            and (link[0] or not says_bandwidths)
        }
        for (a, b), link in linked.items():
            if linked.get((b, a)) != link:
                raise InputError(f"{a} has another xGMI link to {b} than {b} to {a}")
        return {pair: linked[pair] for pair in combinations(self.names, 2) if pair in linked}

    def check_types(self) -> None:
        """Raise InputError for a pair whose type is unknown, or not the same from both sides."""
        for a, b in combinations(self.names, 2):
            one, other = (self.types.get(pair, NOT_TOLD) for pair in ((a, b), (b, a)))
            if one not in LINK_TYPES or one != other:
                found = " and ".join(map(shortened_repr, (one, other)))
                raise InputError(
                    f"{self.what}, row {a}, column {b}: {' or '.join(LINK_TYPES)} belongs here and"
                    f" in the opposite cell, not {found}"
                )


def amd_topology(pairs: GpuPairs, numa_nodes: Mapping[str, str]) -> Topology:
    """Return a topology of one node; raise InputError naming the matrix and the place in it.

    numa_nodes      NUMA node of each GPU, {} where not told
    """
    pairs.check_types()
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
        plan.connect(gpus[a], gpus[b], rate or DEFAULT_XGMI_BANDWIDTH, "nvlink", count or 1)
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
    end = next((i for i in range(start, len(lines)) if titles[i] or not lines[i]), len(lines))
    columns, *rows = [line.split() for line in lines[start:end]] or [[]]
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
    return dict(_cells(names, rows))


def _cells(names: list[str], rows: list[list[str]]) -> Iterator[tuple[tuple[str, str], str]]:
    for row, *cells in rows:
        yield from (((row, name), cell) for name, cell in zip(names, cells, strict=True))


def _cell_error(what: str, pair: tuple[str, str], wanted: str, found: str) -> InputError:
    return InputError(
        f"{what}, row {pair[0]}, column {pair[1]}: {wanted} belongs here, not"
        f" {shortened_repr(found)}"
    )
