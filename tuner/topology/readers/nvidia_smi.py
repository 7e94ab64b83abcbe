"""Reads one computer from `nvidia-smi topo -m`: how each pair of GPUs and NICs is connected.

    NV#   number of NVLinks        PIX   one PCIe bridge        PXB   several PCIe bridges
    PHB   the PCIe host bridge     NODE  a CPU's own buses      SYS   the bus between CPUs

(SOC is an older name of SYS.) PCIe switches and CPUs are inferred: devices joined by PIX are on one
switch, switches and devices joined by PXB are on one switch above, and what PHB, NODE or the same
CPU affinity joins is on one CPU. The driver also prints SYS where the firmware does not say that
two PCIe root complexes belong to one CPU: between devices of one CPU it is read as NODE. The matrix
must be symmetric and free of other contradictions. It names no products and no bandwidths: by
default an NVLink has 20 GB/s (the effective rate on V100 and A100) and a PCIe link 12 GB/s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tuner.base.errors import InputError, shortened_repr
from tuner.topology import CPU, GPU, NIC, Node, Topology
from tuner.topology.readers.gpu_products import NVLINK_BANDWIDTHS, UNNAMED_GPUS
from tuner.topology.readers.node_builder import (
    DEFAULT_PCIE_BANDWIDTH,
    SOCKET_BANDWIDTH,
    UNNAMED_NODE,
    NodeBuilder,
    PciBranch,
)

ANSI_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
GPU_NAME = re.compile(r"GPU[0-9]{1,4}")
DEVICE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
LEGEND = re.compile(r"\s*(NIC[0-9]{1,4}):\s*(\S{1,64})\s*")
CELL = re.compile(r"\s*(NV[0-9]{1,3}(?![0-9])|PIX|PXB|PHB|NODE|SYS|SOC|X)")
CPU_LIST = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?){0,500}")
PATH_TYPES_NEAREST_FIRST = ("PIX", "PXB", "PHB", "NODE", "SYS")
MAX_COLUMNS = 200
MAX_PAIRS = 4  # that a caution names
MAX_NVLINKS_PER_GPU = 18  # up to B200


@dataclass(frozen=True)
class _Matrix:
    """The parsed text.

    names           device of each row and column
    cells           cells[a][b] is how devices a and b are connected
    affinity        CPU affinity of each device
    line_numbers    line of each row
    legend          NIC names by their column names
    """

    names: list[str]
    cells: list[list[str]]
    affinity: list[str]
    line_numbers: list[int]
    legend: Mapping[str, str]

    def cell_location(self, a: int, b: int) -> str:
        """Return the position of a cell for an error message."""
        return f"line {self.line_numbers[a]}, row {self.names[a]}, column {self.names[b]}"


def parse_nvidia_smi(
    text: str,
    nvlink_bandwidth: float = NVLINK_BANDWIDTHS[80],
    pcie_bandwidth: float = DEFAULT_PCIE_BANDWIDTH,
) -> Topology:
    """Return a topology of one node.

    nvlink_bandwidth    bytes per second of one NVLink
    pcie_bandwidth      bytes per second of one PCIe link

    The node has as many cores as the CPU affinities have hardware threads. Raises InputError naming
    row and column.
    """
    matrix = _matrix(text)
    _require_symmetry(matrix)
    names, plan = _devices(matrix)
    sockets = _sockets(matrix)
    cpus = []
    for socket in sockets:
        cpu = plan.add_device(CPU, "", _threads({matrix.affinity[device] for device in socket}))
        cpus.append(cpu)
        for branch in _branches(matrix, names, socket, pcie_bandwidth):
            plan.attach(cpu, branch)
    plan.connect_cpus(cpus, SOCKET_BANDWIDTH)
    _connect_nvlinks(matrix, plan, names, nvlink_bandwidth)
    cautions = [UNNAMED_GPUS] if any(one.kind == "nvlink" for one in plan.links.values()) else []
    return _topology(plan, (*cautions, *_distant_neighbours(matrix, sockets)))


def _topology(plan: NodeBuilder, cautions: tuple[str, ...]) -> Topology:
    node = Node(UNNAMED_NODE, max(1, sum(device.cores for device in plan.devices)), plan.build())
    offers = plan.capabilities
    return Topology(UNNAMED_NODE, (node,), (), (), capabilities=offers, cautions=cautions)


def _matrix(text: str) -> _Matrix:
    lines = [ANSI_ESCAPE.sub("", line) for line in text.splitlines()]
    start = next((i for i, line in enumerate(lines) if _columns(line)), len(lines))
    names = _columns(lines[start]) if start < len(lines) else []
    if not names or len(set(names)) < len(names) or len(names) > MAX_COLUMNS:
        raise InputError(
            f"line {min(start + 1, len(lines))}: nvidia-smi's matrix begins with a line that names"
            f" 1 to {MAX_COLUMNS} different devices, GPU0 the first"
        )
    cells: dict[str, list[str]] = {}
    affinity: dict[str, str] = {}
    at: dict[str, int] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        name = (line.split() or [""])[0]
        if name in names and name not in cells:
            at[name] = number
            cells[name], affinity[name] = _row(name, line.strip()[len(name) :], names, number)
    for name in names:
        if name not in cells:
            raise InputError(f"line {len(lines)}: the matrix has a column {name}, but no such row")
    matches = (LEGEND.fullmatch(line) for line in lines)
    legend = {match[1]: match[2] for match in matches if match}
    return _Matrix(
        names,
        [cells[name] for name in names],
        [affinity[name] for name in names],
        [at[name] for name in names],
        legend,
    )


def _columns(line: str) -> list[str]:
    """Return the devices that a header line names, [] for other lines."""
    names = re.split(r"\s(?=CPU Affinity|NUMA|GPU NUMA)", line, maxsplit=1)[0].split()
    fitting = names and GPU_NAME.fullmatch(names[0]) and all(map(DEVICE_NAME.fullmatch, names))
    return names if fitting and not {"X", *PATH_TYPES_NEAREST_FIRST} & set(names) else []


def _row(name: str, line: str, columns: Sequence[str], number: int) -> tuple[list[str], str]:
    """Return the cells of a row and its CPU affinity.

    Cells are recognised even where copying lost the tabs between them.
    """
    cells, at = [], 0
    for column in columns:
        match = CELL.match(line, at)
        if match is None:
            found = shortened_repr((line[at:].split() or [""])[0])
            raise InputError(
                f"line {number}, row {name}, column {column}: one of X, NV#,"
                f" {', '.join(PATH_TYPES_NEAREST_FIRST)} belongs here, not {found}"
            )
        cells.append("SYS" if match[1] == "SOC" else match[1])
        at = match.end()
    rest = (line[at:].split() or [""])[0]
    if CELL.fullmatch(rest):
        raise InputError(
            f"line {number}, row {name}: more cells than the {len(columns)} columns named above"
        )
    return cells, rest if CPU_LIST.fullmatch(rest) else ""


def _require_symmetry(matrix: _Matrix) -> None:
    for a in range(len(matrix.names)):
        for b in range(a + 1):
            one, other = matrix.cells[a][b], matrix.cells[b][a]
            if (one == "X") != (a == b):
                raise InputError(
                    f"{matrix.cell_location(a, b)}: X stands on the diagonal and only there"
                )
            if one != other:
                raise InputError(
                    f"{matrix.cell_location(a, b)}: {one}, but row {matrix.names[b]}, column"
                    f" {matrix.names[a]} says {other}; the matrix must be symmetric"
                )


def _devices(matrix: _Matrix) -> tuple[list[str], NodeBuilder]:
    """Return the names of all GPUs and NICs in a new builder, and that builder."""
    plan = NodeBuilder()
    names = [
        plan.add_device(GPU)
        if GPU_NAME.fullmatch(name)
        else plan.add_device(NIC, matrix.legend.get(name, name))
        for name in matrix.names
    ]
    return names, plan


def _connected_groups(members: Sequence[int], joined: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the connected components of the members under the pairs in `joined`, in order."""
    first = {member: member for member in members}

    def root(member: int) -> int:
        while first[member] != member:
            first[member] = first[first[member]]
            member = first[member]
        return member

    for a, b in joined:
        low, high = sorted((root(a), root(b)))
        first[high] = low
    groups: dict[int, list[int]] = {}
    for member in members:
        groups.setdefault(root(member), []).append(member)
    return list(groups.values())


def _groups_within(matrix: _Matrix, members: Sequence[int], farthest: str) -> list[list[int]]:
    """Return the groups of devices that are connected by PCIe paths of at most a type.

    Raises InputError when another cell contradicts a group.
    """
    near = PATH_TYPES_NEAREST_FIRST[: PATH_TYPES_NEAREST_FIRST.index(farthest) + 1]
    pairs = [(a, b) for a, b in combinations(members, 2) if matrix.cells[a][b] in near]
    groups = _connected_groups(members, pairs)
    for group in groups:
        for a, b in combinations(group, 2):
            if matrix.cells[a][b] in PATH_TYPES_NEAREST_FIRST and matrix.cells[a][b] not in near:
                raise InputError(
                    f"{matrix.cell_location(a, b)}: {matrix.cells[a][b]}, but other cells join the"
                    f" two by {farthest} at most"
                )
    return groups


def _sockets(matrix: _Matrix) -> list[list[int]]:
    """Return the devices of each CPU.

    CPU affinity counts too, and more than SYS, because NVLink cells hide how GPUs are connected
    otherwise.
    """
    devices = range(len(matrix.names))
    groups = _groups_within(matrix, devices, "NODE")
    joined = [(group[0], device) for group in groups for device in group]
    first: dict[str, int] = {}
    for device in devices:
        if matrix.affinity[device]:
            joined.append((first.setdefault(matrix.affinity[device], device), device))
    return _connected_groups(devices, joined)


def _distant_neighbours(matrix: _Matrix, sockets: Sequence[Sequence[int]]) -> Iterator[str]:
    """Yield a caution if cells say SYS of devices that are on one CPU."""
    pairs = [
        f"{matrix.names[a]}-{matrix.names[b]}"
        for socket in sockets
        for a, b in combinations(socket, 2)
        if matrix.cells[a][b] == "SYS"
    ]
    if pairs:
        rest = f" and {len(pairs) - MAX_PAIRS} more" if len(pairs) > MAX_PAIRS else ""
        yield (
            f"the matrix says SYS of {', '.join(pairs[:MAX_PAIRS])}{rest}, but by their CPU"
            " affinities they are on one CPU: it is taken to join them (NODE)"
        )


def _branches(
    matrix: _Matrix, names: Sequence[str], socket: Sequence[int], pcie: float
) -> list[PciBranch]:
    """Return the PCIe trees of one CPU: a switch per PIX group, and a switch per PXB group above.

    pcie    bytes per second of one PCIe link
    """
    branches = []
    for upper in _groups_within(matrix, socket, "PXB"):
        lower = [
            _joined_by_switch([PciBranch(pcie, names[device]) for device in group], pcie)
            for group in _groups_within(matrix, upper, "PIX")
        ]
        branches.append(_joined_by_switch(lower, pcie))
    return branches


def _joined_by_switch(branches: list[PciBranch], pcie: float) -> PciBranch:
    return branches[0] if len(branches) == 1 else PciBranch(pcie, "", branches)


def _threads(affinities: set[str]) -> int:
    """Return the number of hardware threads in lists such as 0-19,40-59."""
    ends = [part.split("-") for text in affinities if text for part in text.split(",")]
    return sum(max(0, int(last[-1]) - int(last[0]) + 1) for last in ends)


def _connect_nvlinks(matrix: _Matrix, plan: NodeBuilder, names: Sequence[str], rate: float) -> None:
    """Add NVLinks between pairs, or NVSwitches where pairwise links would exceed a GPU's number.

    With NVSwitches every cell contains the number of all links of a GPU.
    """
    links = {
        (a, b): int(matrix.cells[a][b][2:])
        for a, b in combinations(range(len(names)), 2)
        if matrix.cells[a][b].startswith("NV")
    }
    for group in _connected_groups(range(len(names)), list(links)):
        inside = {pair: count for pair, count in links.items() if pair[0] in group}
        total = [sum(n for pair, n in inside.items() if gpu in pair) for gpu in group]
        if max(total) <= MAX_NVLINKS_PER_GPU:
            for (a, b), count in inside.items():
                if count:
                    plan.connect(names[a], names[b], count * rate, "nvlink", count)
        else:
            _connect_nvswitch(matrix, plan, names, group, rate)


def _connect_nvswitch(
    matrix: _Matrix, plan: NodeBuilder, names: Sequence[str], group: Sequence[int], rate: float
) -> None:
    said = matrix.cells[group[0]][group[1]]
    for a, b in combinations(group, 2):
        if matrix.cells[a][b] != said:
            raise InputError(
                f"{matrix.cell_location(a, b)}: {matrix.cells[a][b]}, but {said} elsewhere; with"
                f" more than {MAX_NVLINKS_PER_GPU} NVLinks of one GPU all cells must be the same"
            )
    count = int(said[2:])
    gpus = [names[device] for device in group]
    plan.add_nvswitch(dict.fromkeys(gpus, count * rate), dict.fromkeys(gpus, count))
