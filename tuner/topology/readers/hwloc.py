"""Reads one computer from hwloc: `lstopo --of xml`, versions 2.x and 3.0 of the format.

Packages, NUMA nodes, caches, cores, bridges and PCI devices are nested `<object type="...">`
elements; matrices between them follow. A package becomes a CPU with its cores. GPUs and NICs are
attached to it as the PCI bridges are, with the link speed at the time when the file was written (an
idle GPU may have slowed its link down). `NVLinkBandwidth` and `XGMIBandwidth` matrices become
links.

GPUs are the devices with a driver for computing, or else accelerators by class; a display adapter
without such a driver is none. NICs are the devices that support verbs; where there is none, the
Ethernet adapters. Functions that the system gives no name, such as those for virtual machines,
count only where it names none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tuner.base.errors import InputError, shortened_repr
from tuner.topology import CPU, GPU, NIC, NVLINK, XGMI_LINK, Node, Topology
from tuner.topology.readers.node_builder import (
    DEFAULT_PCIE_BANDWIDTH,
    UNNAMED_NODE,
    NodeBuilder,
    PciBranch,
    nvlink_count,
    socket_bandwidth,
)
from tuner.topology.readers.safe_xml import XmlElement, parse_xml

VERSIONS = ("2.", "3.")
NVIDIA, AMD = "10de", "1002"
DISPLAY_CLASS = "0300"
ACCELERATOR_CLASSES = ("0302", "0380", "1200")  # the last two: AMD's
INFINIBAND, ETHERNET = "0207", "0200"
PCI_TREE_TYPES = ("Bridge", "PCIDev")
OPENCL_NAME = re.compile(r"opencl[0-9]+d[0-9]+")
GPU_NAME = re.compile(r"(?:nvml|cuda|rsmi)([0-9]{1,6})")
PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):[0-9a-f]{4}\]")
LINK_MATRICES = {  # MB/s, 0 where there is no link -> kind of the links
    "NVLinkBandwidth": NVLINK,
    "XGMIBandwidth": XGMI_LINK,
}
SELF_BANDWIDTH = 1_000_000  # entries of an object with itself are this or 0
MAX_MATRIX_OBJECTS = 500  # objects in one matrix


def parse_hwloc(text: str) -> Topology:
    """Return a topology of one node, named after the host.

    Raises InputError naming line and element.
    """
    root = parse_xml(text)
    _require_version(root)
    machine = _machine(root)
    cores = _cores(machine)
    if cores == 0:
        raise InputError(f"{machine}: expected objects of type Core or PU in the machine")
    drawn = _NodeGraph.from_xml(root, machine)
    _connect_matrices(root, drawn)
    name = _host(root)
    node = Node(name, cores, drawn.builder.build())
    return Topology(name, (node,), (), (), capabilities=drawn.builder.capabilities)


def _require_version(root: XmlElement) -> None:
    if root.name != "topology":
        raise InputError(f"{root}: hwloc XML begins with <topology>, NCCL's with <system>")
    version = root.attributes.get("version", "1.x")
    if not version.startswith(VERSIONS):
        raise InputError(
            f"{root}: version {shortened_repr(version)} of hwloc's XML is not read, only 2.x"
            " and 3.0; export again with `lstopo --of xml` of hwloc 2"
        )


def _machine(root: XmlElement) -> XmlElement:
    objects = [element for element in root.walk() if element.name == "object"]
    for element in objects:
        if "type" not in element.attributes:
            raise InputError(f"{element}: an object of hwloc has a type")
    machines = [element for element in objects if _type(element) == "Machine"]
    if objects[:1] != machines[:1] or len(machines) != 1:
        raise InputError(f"{root}: hwloc puts one object of type Machine round all others")
    return machines[0]


def _type(element: XmlElement) -> str:
    return element.attributes.get("type", "") if element.name == "object" else ""


def _cores(element: XmlElement) -> int:
    """Return the number of cores in an object, or of PUs if a virtual machine hides the cores."""
    kinds = [_type(inner) for inner in element.walk()]
    return kinds.count("Core") or kinds.count("PU")


def _host(root: XmlElement) -> str:
    named = (value for element in (root, *root.walk()) for value in _infos(element, "HostName"))
    return next(named, "") or UNNAMED_NODE


def _infos(element: XmlElement, name: str) -> Iterator[str]:
    """Yield the values of the element's own <info> children of this name."""
    for child in element.children:
        told = child.attributes
        if child.name == "info" and told.get("name") == name and "value" in told:
            yield told["value"]


@dataclass(frozen=True)
class _PciDevices:
    """The PCI elements of a file that are GPUs and those that are NICs."""

    gpus: list[XmlElement]
    nics: list[XmlElement]

    @classmethod
    def from_xml(cls, root: XmlElement) -> _PciDevices:
        devices = [element for element in root.walk() if _type(element) == "PCIDev"]
        driven = [element for element in devices if _gpu_number(element) is not None]
        gpus = sorted(driven, key=lambda e: _gpu_number(e) or 0)
        gpus = gpus or [element for element in devices if _is_accelerator(element)]
        newest = root.attributes["version"].startswith("3.")
        verbs, network = ("32", "16") if newest else ("3", "2")
        fast = [e for e in devices if _osdev(e, verbs) or _pci(e)[0] == INFINIBAND]
        slow = [e for e in devices if _osdev(e, network) or _pci(e)[0] == ETHERNET]
        return cls(gpus, [e for e in fast or slow if _product(e, NIC)] or fast or slow)


def _pci(element: XmlElement) -> tuple[str, str]:
    """Return class and vendor of a PCI device, as four hexadecimal digits each."""
    match = PCI_TYPE.match(element.attributes.get("pci_type", ""))
    return (match[1], match[2]) if match else ("", "")


def _is_accelerator(element: XmlElement) -> bool:
    """Return whether a device computes, as far as its class and OpenCL say."""
    kind, vendor = _pci(element)
    computes = kind == DISPLAY_CLASS and any(map(OPENCL_NAME.fullmatch, _inner_names(element)))
    return vendor in (NVIDIA, AMD) and (kind in ACCELERATOR_CLASSES or computes)


def _inner_names(element: XmlElement) -> list[str]:
    return [child.attributes.get("name", "") for child in element.children]


def _gpu_number(element: XmlElement) -> int | None:
    """Return the number that the driver gave to a GPU, None for other devices."""
    names = _inner_names(element)
    matches = sorted((name[:4] != "nvml", name) for name in names if GPU_NAME.fullmatch(name))
    found = GPU_NAME.fullmatch(matches[0][1]) if matches else None
    return int(found[1]) if found else None


def _osdev(element: XmlElement, kind: str) -> str:
    """Return the operating system's name for a device of this kind, or "" if it has none."""
    named = (
        child.attributes.get("name", "")
        for child in element.children
        if _type(child) == "OSDev" and child.attributes.get("osdev_type") == kind
    )
    return next(named, "")


@dataclass
class _NodeGraph:
    """The node under construction, and the device name of each object, keyed by `_object_key`."""

    builder: NodeBuilder
    device_names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_xml(cls, root: XmlElement, machine: XmlElement) -> _NodeGraph:
        drawn, found = cls(NodeBuilder()), _PciDevices.from_xml(root)
        packages = [element for element in machine.walk() if _type(element) == "Package"]
        packages = packages or [machine]
        for package in packages:
            drawn.register_device(
                package,
                drawn.builder.add_device(
                    CPU, next(_infos(package, "CPUModel"), ""), _cores(package)
                ),
            )
        for kind, elements in ((GPU, found.gpus), (NIC, found.nics)):
            for element in elements:
                drawn.register_device(
                    element, drawn.builder.add_device(kind, _product(element, kind))
                )
        drawn.attach(machine, drawn.device_names[_object_key(packages[0])])
        processor = " ".join(v for k in ("CPUVendor", "CPUModel") for v in _infos(packages[0], k))
        cpus = [drawn.device_names[_object_key(package)] for package in packages]
        drawn.builder.connect_cpus(cpus, socket_bandwidth(processor))
        return drawn

    def register_device(self, element: XmlElement, name: str) -> None:
        """Remember the device name of an object and of its operating system devices."""
        for each in (element, *element.children):
            if each is element or _type(each) == "OSDev":
                if _object_key(each) in self.device_names:
                    raise InputError(f"{each}: another object has the same gp_index")
                self.device_names[_object_key(each)] = name

    def attach(self, element: XmlElement, cpu: str) -> str:
        """Attach every PCI tree to the CPU of the package that contains it and return that CPU.

        Trees outside packages go to the first package beside them, or to `cpu` where there is none;
        then "" is returned.
        """
        first = self.device_names[_object_key(element)] if _type(element) == "Package" else ""
        for child in element.children:
            if child.name == "object" and _type(child) not in PCI_TREE_TYPES:
                found = self.attach(child, first or cpu)
                first = first or found
        trees = (child for child in element.children if _type(child) in PCI_TREE_TYPES)
        for branch in (branch for tree in trees for branch in self.pci_branches(tree)):
            self.builder.attach(first or cpu, branch)
        return first

    def pci_branches(self, element: XmlElement) -> list[PciBranch]:
        """Return a device or bridge with the link above it.

        A host bridge, which has no such link, is replaced by what is below it.
        """
        if _type(element) == "PCIDev":
            name = self.device_names.get(_object_key(element), "")
            return [PciBranch(_link_speed(element), name)] if name else []
        below = [branch for child in element.children for branch in self.pci_branches(child)]
        if element.attributes.get("bridge_type", "").startswith("0-"):
            return below
        return [PciBranch(_link_speed(element), "", below)] if below else []


def _object_key(element: XmlElement) -> str:
    """Return the key by which matrices refer to an object."""
    return f"{_type(element)}:{element.attributes.get('gp_index', f'none, {id(element)}')}"


def _product(element: XmlElement, kind: str) -> str:
    if kind == NIC:
        return next((name for k in ("32", "3", "16", "2") if (name := _osdev(element, k))), "")
    inner = (element, *element.children)
    return next((name for e in inner for name in _infos(e, "GPUModel")), "")


def _link_speed(element: XmlElement) -> float:
    """Return the bandwidth of the link above a PCI function in bytes per second.

    A speed that hwloc could not read is `DEFAULT_PCIE_BANDWIDTH`.
    """
    text = element.attributes.get("pci_link_speed", "0")
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,20})?", text):
        raise InputError(f"{element}: pci_link_speed must be in GB/s, not {shortened_repr(text)}")
    return float(text) * 1e9 or DEFAULT_PCIE_BANDWIDTH


def _connect_matrices(root: XmlElement, drawn: _NodeGraph) -> None:
    for element in root.children:
        if element.attributes.get("name") in LINK_MATRICES:
            _connect_matrix(element, drawn)


def _connect_matrix(element: XmlElement, drawn: _NodeGraph) -> None:
    """Add the links of a matrix between GPUs, CPUs and NVSwitches.

    PCI devices that are neither GPU nor NIC are taken as NVSwitches.
    """
    objects, rates = _matrix(element)
    switches: dict[str, dict[str, float]] = {}
    for (a, b), rate in rates.items():
        one, other = drawn.device_names.get(objects[a]), drawn.device_names.get(objects[b])
        if one and not other and objects[b].startswith("PCIDev:"):
            switches.setdefault(objects[b], {})[one] = rate
        elif one and other and one != other:
            kind = LINK_MATRICES[element.attributes["name"]]
            drawn.builder.connect(one, other, rate, kind, nvlink_count(rate))
    _connect_nvswitches(drawn.builder, list(switches.values()))


def _connect_nvswitches(plan: NodeBuilder, switches: list[dict[str, float]]) -> None:
    """Add the NVSwitches, those with the same GPUs as one device.

    The file does not describe links between two boards. They are assumed to carry as much as the
    GPUs of one board send, as in a DGX-2 (NVIDIA NVSwitch white paper, 2018).
    """
    boards: dict[frozenset[str], dict[str, float]] = {}
    for gpus in switches:
        together = boards.setdefault(frozenset(gpus), dict.fromkeys(gpus, 0.0))
        for gpu, rate in gpus.items():
            together[gpu] += rate
    names = {
        board: plan.add_nvswitch(rates, {gpu: nvlink_count(rate) for gpu, rate in rates.items()})
        for board, rates in boards.items()
    }
    for number, (board, name) in enumerate(names.items()):
        for other in list(names)[:number]:
            if not board & other:
                width = min(sum(boards[board].values()), sum(boards[other].values()))
                plan.connect(names[other], name, width, "nvlink", nvlink_count(width))


def _matrix(element: XmlElement) -> tuple[list[str], dict[tuple[int, int], float]]:
    """Return the objects of a matrix and the bandwidth of each linked pair in bytes per second."""
    written = {
        name: [
            word
            for child in element.children
            if child.name == name
            for word in "".join(child.text_pieces).split()
        ]
        for name in ("indexes", "u64values")
    }
    prefix = "" if element.name == "distances2hetero" else f"{element.attributes.get('type')}:"
    objects = [prefix + index for index in written["indexes"]]
    n, values = len(objects), written["u64values"]
    if n > MAX_MATRIX_OBJECTS:
        raise InputError(f"{element}: {n} objects are more than {MAX_MATRIX_OBJECTS}")
    if len(values) != n * n or not all(re.fullmatch("[0-9]{1,15}", value) for value in values):
        raise InputError(f"{element}: {n} objects need {n * n} whole numbers, not {len(values)}")
    rates = {
        (i // n, i % n): float(value) * 1e6
        for i, value in enumerate(values)
        if 0 < int(value) < SELF_BANDWIDTH
    }
    for a, b in rates:
        if rates.get((b, a)) != rates[a, b]:
            raise InputError(
                f"{element}: {objects[a]} and {objects[b]} do not say the same of the"
                " link between them"
            )
    return objects, rates
