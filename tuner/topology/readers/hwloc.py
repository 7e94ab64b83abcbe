"""One computer as hwloc describes it: `lstopo --of xml`, versions 2.x and 3.0 of the format.

Packages, NUMA nodes, caches, cores, bridges and PCI devices are nested `<object type="...">`
elements; matrices between them follow. A package becomes a CPU, with its cores; GPUs and NICs hang
below it as the PCI bridges do, with the speed that each link had when the file was written (an idle
GPU may have slowed its link down). `NVLinkBandwidth` and `XGMIBandwidth` matrices become links.

NICs are the devices that speak verbs; where there is none, the Ethernet adapters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tuner.base.errors import InputError, quoted
from tuner.topology import CPU, GPU, NIC, Node, Topology
from tuner.topology.readers.node_builder import (
    PCIE_UNKNOWN,
    UNNAMED,
    Branch,
    Plan,
    bricks,
    socket_bandwidth,
)
from tuner.topology.readers.safe_xml import Element, parse_xml

VERSIONS = ("2.", "3.")
NVIDIA, AMD = "10de", "1002"
GPU_CLASSES = ("0300", "0302", "0380", "1200")  # the last two are AMD's accelerators
INFINIBAND, ETHERNET = "0207", "0200"
TREES = ("Bridge", "PCIDev")
GPU_NAME = re.compile(r"(?:nvml|cuda|rsmi)([0-9]{1,6})")
PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):[0-9a-f]{4}\]")
LINK_MATRICES = ("NVLinkBandwidth", "XGMIBandwidth")  # MB/s, 0 where there is no link
ITSELF = 1_000_000  # what such a matrix says of an object and itself, or 0
MOST_OBJECTS = 500  # of a matrix


def parse_hwloc(text: str) -> Topology:
    """A topology of one node, named after the host. Raises InputError with line and element."""
    root = parse_xml(text)
    _require_version(root)
    machine = _machine(root)
    cores = _cores(machine)
    if cores == 0:
        raise InputError(f"{machine}: the machine has no object of type Core or PU")
    drawn = _Drawn.of(root, machine)
    _join_matrices(root, drawn)
    name = _host(root)
    node = Node(name, cores, drawn.plan.interior())
    return Topology(name, (node,), (), (), offers=drawn.plan.offers)


def _require_version(root: Element) -> None:
    if root.name != "topology":
        raise InputError(f"{root}: hwloc XML begins with <topology>, NCCL's with <system>")
    version = root.attributes.get("version", "1.x")
    if not version.startswith(VERSIONS):
        raise InputError(
            f"{root}: version {quoted(version)} of hwloc's XML is not read, only 2.x and 3.0;"
            " export again with `lstopo --of xml` of hwloc 2"
        )


def _machine(root: Element) -> Element:
    objects = [element for element in root.all() if element.name == "object"]
    for element in objects:
        if "type" not in element.attributes:
            raise InputError(f"{element}: an object of hwloc has a type")
    machines = [element for element in objects if _type(element) == "Machine"]
    if objects[:1] != machines[:1] or len(machines) != 1:
        raise InputError(f"{root}: hwloc puts one object of type Machine round all others")
    return machines[0]


def _type(element: Element) -> str:
    return element.attributes.get("type", "") if element.name == "object" else ""


def _cores(element: Element) -> int:
    """Cores inside an object; processing units where a virtual machine hides the cores."""
    kinds = [_type(inner) for inner in element.all()]
    return kinds.count("Core") or kinds.count("PU")


def _host(root: Element) -> str:
    named = (value for element in (root, *root.all()) for value in _infos(element, "HostName"))
    return next(named, "") or UNNAMED


def _infos(element: Element, name: str) -> Iterator[str]:
    """What the element itself is told under a name."""
    for child in element.children:
        told = child.attributes
        if child.name == "info" and told.get("name") == name and "value" in told:
            yield told["value"]


@dataclass(frozen=True)
class _Found:
    """The devices of a file, told apart once for all."""

    gpus: list[Element]
    nics: list[Element]

    @classmethod
    def of(cls, root: Element) -> _Found:
        devices = [element for element in root.all() if _type(element) == "PCIDev"]
        driven = [element for element in devices if _gpu_number(element) is not None]
        displays = [
            element
            for element in devices
            if _pci(element)[0] in GPU_CLASSES and _pci(element)[1] in (NVIDIA, AMD)
        ]
        gpus = sorted(driven, key=lambda e: _gpu_number(e) or 0) or displays
        newest = root.attributes["version"].startswith("3.")
        verbs, network = ("32", "16") if newest else ("3", "2")
        fast = [e for e in devices if _osdev(e, verbs) or _pci(e)[0] == INFINIBAND]
        slow = [e for e in devices if _osdev(e, network) or _pci(e)[0] == ETHERNET]
        return cls(gpus, fast or slow)


def _pci(element: Element) -> tuple[str, str]:
    """Class and vendor of a PCI device, as four hexadecimal digits each."""
    match = PCI_TYPE.match(element.attributes.get("pci_type", ""))
    return (match[1], match[2]) if match else ("", "")


def _gpu_number(element: Element) -> int | None:
    """The number that the driver of a GPU gave it."""
    names = [child.attributes.get("name", "") for child in element.children]
    matches = sorted((name[:4] != "nvml", name) for name in names if GPU_NAME.fullmatch(name))
    found = GPU_NAME.fullmatch(matches[0][1]) if matches else None
    return int(found[1]) if found else None


def _osdev(element: Element, kind: str) -> str:
    """The operating system's name for a device of this kind, or ""."""
    named = (
        child.attributes.get("name", "")
        for child in element.children
        if _type(child) == "OSDev" and child.attributes.get("osdev_type") == kind
    )
    return next(named, "")


@dataclass
class _Drawn:
    """The plan so far, and which object of the file became which device: type:gp_index -> name."""

    plan: Plan
    names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Element, machine: Element) -> _Drawn:
        drawn, found = cls(Plan()), _Found.of(root)
        packages = [element for element in machine.all() if _type(element) == "Package"]
        packages = packages or [machine]
        for package in packages:
            drawn.name(
                package, drawn.plan.add(CPU, next(_infos(package, "CPUModel"), ""), _cores(package))
            )
        for kind, elements in ((GPU, found.gpus), (NIC, found.nics)):
            for element in elements:
                drawn.name(element, drawn.plan.add(kind, _product(element, kind)))
        drawn.hang(machine, drawn.names[_key(packages[0])])
        processor = " ".join(v for k in ("CPUVendor", "CPUModel") for v in _infos(packages[0], k))
        cpus = [drawn.names[_key(package)] for package in packages]
        drawn.plan.join_all(cpus, socket_bandwidth(processor))
        return drawn

    def name(self, element: Element, name: str) -> None:
        """Remember the device of an object and of what the operating system sees in it."""
        for each in (element, *element.children):
            if each is element or _type(each) == "OSDev":
                if _key(each) in self.names:
                    raise InputError(f"{each}: another object has the same gp_index")
                self.names[_key(each)] = name

    def hang(self, element: Element, cpu: str) -> str:
        """Every PCI tree below the package in which it is, else below the first one beside it.

        Gives that package's CPU, "" without one; `cpu` stands in.
        """
        first = self.names[_key(element)] if _type(element) == "Package" else ""
        for child in element.children:
            if child.name == "object" and _type(child) not in TREES:
                found = self.hang(child, first or cpu)
                first = first or found
        trees = (child for child in element.children if _type(child) in TREES)
        for branch in (branch for tree in trees for branch in self.branches(tree)):
            self.plan.hang(first or cpu, branch)
        return first

    def branches(self, element: Element) -> list[Branch]:
        """A bridge or device with its link; a host bridge is the CPU's own and has none."""
        if _type(element) == "PCIDev":
            name = self.names.get(_key(element), "")
            return [Branch(_link_speed(element), name)] if name else []
        below = [branch for child in element.children for branch in self.branches(child)]
        if element.attributes.get("bridge_type", "").startswith("0-"):
            return below
        return [Branch(_link_speed(element), "", below)] if below else []


def _key(element: Element) -> str:
    """How matrices refer to an object."""
    return f"{_type(element)}:{element.attributes.get('gp_index', f'none, {id(element)}')}"


def _product(element: Element, kind: str) -> str:
    if kind == NIC:
        return next((name for k in ("32", "3", "16", "2") if (name := _osdev(element, k))), "")
    inner = (element, *element.children)
    return next((name for e in inner for name in _infos(e, "GPUModel")), "")


def _link_speed(element: Element) -> float:
    """Bytes per second of the link above a PCI function; what hwloc could not see is assumed."""
    text = element.attributes.get("pci_link_speed", "0")
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,20})?", text):
        raise InputError(f"{element}: pci_link_speed must be in GB/s, not {quoted(text)}")
    return float(text) * 1e9 or PCIE_UNKNOWN


def _join_matrices(root: Element, drawn: _Drawn) -> None:
    for element in root.children:
        if element.attributes.get("name") in LINK_MATRICES:
            _join_matrix(element, drawn)


def _join_matrix(element: Element, drawn: _Drawn) -> None:
    """Links of GPUs with each other, with CPUs, and with NVSwitches: the PCI devices left."""
    objects, rates = _matrix(element)
    switches: dict[str, dict[str, float]] = {}
    for (a, b), rate in rates.items():
        one, other = drawn.names.get(objects[a]), drawn.names.get(objects[b])
        if one and not other and objects[b].startswith("PCIDev:"):
            switches.setdefault(objects[b], {})[one] = rate
        elif one and other and one != other:
            drawn.plan.join(one, other, rate, "nvlink", bricks(rate))
    _join_switches(drawn.plan, list(switches.values()))


def _join_switches(plan: Plan, switches: list[dict[str, float]]) -> None:
    """NVSwitches with the same GPUs are one; what carries messages between two boards is not told.

    A DGX-2 joins its boards by as much as the GPUs of one send (NVIDIA NVSwitch white paper, 2018).
    """
    boards: dict[frozenset[str], dict[str, float]] = {}
    for gpus in switches:
        together = boards.setdefault(frozenset(gpus), dict.fromkeys(gpus, 0.0))
        for gpu, rate in gpus.items():
            together[gpu] += rate
    names = {
        board: plan.nvswitch(rates, {gpu: bricks(rate) for gpu, rate in rates.items()})
        for board, rates in boards.items()
    }
    for number, (board, name) in enumerate(names.items()):
        for other in list(names)[:number]:
            if not board & other:
                width = min(sum(boards[board].values()), sum(boards[other].values()))
                plan.join(names[other], name, width, "nvlink", bricks(width))


def _matrix(element: Element) -> tuple[list[str], dict[tuple[int, int], float]]:
    """The objects of a matrix, and bytes per second of each pair that is linked."""
    written = {
        name: [
            word
            for child in element.children
            if child.name == name
            for word in "".join(child.pieces).split()
        ]
        for name in ("indexes", "u64values")
    }
    prefix = "" if element.name == "distances2hetero" else f"{element.attributes.get('type')}:"
    objects = [prefix + index for index in written["indexes"]]
    n, values = len(objects), written["u64values"]
    if n > MOST_OBJECTS:
        raise InputError(f"{element}: {n} objects are more than {MOST_OBJECTS}")
    if len(values) != n * n or not all(re.fullmatch("[0-9]{1,15}", value) for value in values):
        raise InputError(f"{element}: {n} objects need {n * n} whole numbers, not {len(values)}")
    rates = {
        (i // n, i % n): float(value) * 1e6
        for i, value in enumerate(values)
        if 0 < int(value) < ITSELF
    }
    for a, b in rates:
        if rates.get((b, a)) != rates[a, b]:
            raise InputError(
                f"{element}: {objects[a]} and {objects[b]} do not say the same of the"
                " link between them"
            )
    return objects, rates
