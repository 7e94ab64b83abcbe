"""Reads one computer from NCCL or RCCL: NCCL_TOPO_DUMP_FILE, or a cloud's NCCL_TOPO_FILE.

`<system>` holds one `<cpu>` per NUMA node; below it, `<pci>` functions are nested as they are
connected. A `<gpu>` or `<nic>` inside says what a function is; `<nvlink>`, `<xgmi>` and `<c2c>`
inside a GPU are its other links. Files written by hand leave these out: then the PCI class decides,
and links between GPUs stay unknown. The class codes are those of NCCL's src/graph/topo.cc.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tuner.base.errors import InputError, shortened_repr
from tuner.topology import CPU, GPU, GPU_LINK_KINDS, NIC, NVLINK, Node, Topology
from tuner.topology.readers.gpu_products import (
    DEFAULT_XGMI_BANDWIDTH,
    UNNAMED_GPUS,
    XGMI_BANDWIDTHS,
    nvlink_bandwidth,
)
from tuner.topology.readers.node_builder import (
    PCIE_LANE_BANDWIDTHS,
    UNNAMED_NODE,
    NodeBuilder,
    PciBranch,
    socket_bandwidth,
)
from tuner.topology.readers.safe_xml import XmlElement, parse_xml

VERSIONS = ("1", "2")  # the second is RCCL's
GPU_CLASSES = ("0x03", "0x12")  # displays and accelerators
NIC_CLASS, NVSWITCH_CLASS, POWER_CLASS = "0x02", "0x0680", "0x068001"  # the last one: a POWER9 CPU
OLD_ARCHITECTURES = {"910": "90a"}  # what RCCL called gfx90a until 2023, from its archinfo.cc
MAX_LANES = 32
MAX_LINK_COUNT = 64
MAX_BANDWIDTH_MB_S = 10_000_000
LINK_SPEED = re.compile(r"([0-9]+(?:\.[0-9])?) GT/s(?: PCIe)?")


def parse_nccl_xml(text: str) -> Topology:
    """Return a topology of one node; raise InputError naming line and element."""
    root = parse_xml(text)
    cpus = _cpus(root)
    drawn = _NodeGraph.from_xml(root, cpus)
    for gpu in drawn.gpus:
        drawn.count_links(gpu)
    drawn.connect_gpus()
    cores = sum(device.cores for device in drawn.builder.devices)
    node = Node(UNNAMED_NODE, max(1, cores), drawn.builder.build())
    offers, cautions = drawn.builder.capabilities, tuple(_cautions(drawn.gpus))
    return Topology(UNNAMED_NODE, (node,), (), (), capabilities=offers, cautions=cautions)


def _cpus(root: XmlElement) -> list[XmlElement]:
    """Return the <cpu> elements; raise InputError for a document that is not NCCL's."""
    if root.name != "system":
        raise InputError(f"{root}: NCCL's XML begins with <system>")
    if root.attributes.get("version", "none") not in VERSIONS:
        raise InputError(
            f"{root}: version {shortened_repr(root.attributes.get('version', 'none'))} of"
            " NCCL's XML is not read, only 1 and 2"
        )
    cpus = [child for child in root.children if child.name == "cpu"]
    if not cpus:
        raise InputError(f"{root}: NCCL's XML has a <cpu> for every NUMA node, this has none")
    hosts = {cpu.attributes.get("host_hash") for cpu in cpus}
    if len(hosts) > 1:
        raise InputError(
            f"{root}: the CPUs of {len(hosts)} hosts are in one file; dump the topology in a run on"
            " one host"
        )
    return cpus


@dataclass
class _NodeGraph:
    """The node under construction.

    gpus                    PCI elements of the GPUs
    device_names            id of an element -> its device
    cpu_of                  a GPU -> the CPU it is attached to
    gpu_at_address          PCI address -> GPU
    link_counts             number of links from one GPU to another
    link_rates              bytes per second of one such link
    link_elements           XML element of these links, for messages
    nvswitch_link_counts    a GPU -> its number of links to NVSwitches
    """

    builder: NodeBuilder
    device_names: dict[int, str] = field(default_factory=dict)
    gpus: list[XmlElement] = field(default_factory=list)
    cpu_of: dict[str, str] = field(default_factory=dict)
    gpu_at_address: dict[str, str] = field(default_factory=dict)
    link_counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    link_rates: dict[tuple[str, str], float] = field(default_factory=dict)
    link_elements: dict[tuple[str, str], XmlElement] = field(default_factory=dict)
    nvswitch_link_counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def from_xml(cls, root: XmlElement, cpus: list[XmlElement]) -> _NodeGraph:
        drawn = cls(NodeBuilder())
        for cpu in cpus:
            drawn.device_names[id(cpu)] = drawn.builder.add_device(
                CPU, _processor_name(cpu), _threads(cpu)
            )
        drawn.gpus, nics = _devices(root)
        for gpu in drawn.gpus:
            drawn.device_names[id(gpu)] = drawn.builder.add_device(GPU, _product(gpu))
            drawn.gpu_at_address[_address(gpu)] = drawn.device_names[id(gpu)]
        for nic in nics:
            drawn.device_names[id(nic)] = drawn.builder.add_device(
                NIC, _first_net(nic).get("name", "")
            )
        for cpu in cpus:
            drawn.attach(cpu)
        names = [drawn.device_names[id(cpu)] for cpu in cpus]
        drawn.builder.connect_cpus(names, socket_bandwidth(_processor_name(cpus[0])))
        return drawn

    def attach(self, cpu: XmlElement) -> None:
        name = self.device_names[id(cpu)]
        for element in cpu.walk():
            self.cpu_of[self.device_names.get(id(element), "")] = name
        for child in cpu.children:
            for branch in self.pci_branches(child):
                self.builder.attach(name, branch)

    def pci_branches(self, element: XmlElement) -> list[PciBranch]:
        """Return a device, or a bridge above devices, with the link above it."""
        name = self.device_names.get(id(element), "")
        below = (
            []
            if name
            else [branch for child in element.children for branch in self.pci_branches(child)]
        )
        return [PciBranch(_link_bandwidth(element), name, below)] if name or below else []

    def count_links(self, gpu: XmlElement) -> None:
        """Count the links of a GPU other than PCIe and connect those that lead to its CPU.

        Targets outside the file are ignored later.
        """
        name = self.device_names[id(gpu)]
        for link in _links(gpu):
            kind = link.attributes.get("tclass", "")
            count = link.int_attribute("count", 1, MAX_LINK_COUNT)
            if link.name == "c2c":
                rate = link.int_attribute("bw", 0, MAX_BANDWIDTH_MB_S) * 1e6
                self.connect_to_cpu(name, rate, count, NVLINK)
            elif link.name in GPU_LINK_KINDS and kind == POWER_CLASS:
                self.connect_to_cpu(name, _link_rate(gpu, link), count, link.name)
            elif link.name in GPU_LINK_KINDS and kind.startswith(NVSWITCH_CLASS):
                self.nvswitch_link_counts[name] += count
                self.link_rates[name, ""] = _link_rate(gpu, link)
            elif link.name in GPU_LINK_KINDS:
                pair = name, self.gpu_at_address.get(_address(link, "target"), "")
                self.link_counts[pair] += count
                self.link_rates[pair], self.link_elements[pair] = _link_rate(gpu, link), link

    def connect_to_cpu(self, gpu: str, rate: float, count: int, kind: str) -> None:
        """Add a link between a GPU and the CPU it is attached to."""
        if rate > 0 and count > 0:
            self.builder.connect(gpu, self.cpu_of[gpu], rate * count, kind, count)

    def connect_gpus(self) -> None:
        """Add the links between GPUs, direct or through NVSwitches."""
        for (a, b), count in self.link_counts.items():
            if b and count != self.link_counts[b, a]:
                raise InputError(
                    f"{self.link_elements[a, b]}: {a} has {count} links to {b}, which has"
                    f" {self.link_counts[b, a]} back"
                )
            if b and a != b and count > 0:
                kind = self.link_elements[a, b].name
                self.builder.connect(a, b, self.link_rates[a, b] * count, kind, count)
        counts = {gpu: count for gpu, count in self.nvswitch_link_counts.items() if count > 0}
        if counts:
            self.builder.add_nvswitch(
                {gpu: self.link_rates[gpu, ""] * counts[gpu] for gpu in counts}, counts
            )


def _devices(root: XmlElement) -> tuple[list[XmlElement], list[XmlElement]]:
    """Return the PCI elements that are GPUs, by their CUDA number, and those that are NICs.

    A network device without a PCI function, such as a virtual one, is represented by its own
    element.
    """
    functions = [element for element in root.walk() if element.name == "pci"]
    told = [element for element in functions if _gpus_in(element)]
    gpus = sorted(told, key=lambda e: _gpus_in(e)[0].int_attribute("dev", 0, 1 << 20))
    nets = [element for element in (*functions, *_loose_nics(root)) if _first_net(element)]
    nics = sorted(nets, key=_net_number)
    classes = [(element.attributes.get("class", ""), element) for element in functions]
    return (
        gpus or [e for kind, e in classes if kind.startswith(GPU_CLASSES)],
        nics or [e for kind, e in classes if kind.startswith(NIC_CLASS)],
    )


def _loose_nics(root: XmlElement) -> Iterator[XmlElement]:
    for cpu in root.children:
        yield from (child for child in cpu.children if child.name == "nic")


def _gpus_in(element: XmlElement) -> list[XmlElement]:
    return [child for child in element.children if child.name == "gpu"]


def _links(gpu: XmlElement) -> list[XmlElement]:
    """Return the links of a GPU other than PCIe."""
    return [child for inner in _gpus_in(gpu) for child in inner.children]


def _cautions(gpus: list[XmlElement]) -> Iterator[str]:
    """Yield a caution for each product of which nothing says how fast its links are."""
    linked = [gpu for gpu in gpus if any(link.name in GPU_LINK_KINDS for link in _links(gpu))]
    for product in sorted({_product(gpu) for gpu in linked}):
        if not product:
            yield UNNAMED_GPUS
        elif product.startswith("gfx") and product not in XGMI_BANDWIDTHS:
            yield (
                f"the rate of xGMI links between GPUs of architecture {product} is not known:"
                f" {DEFAULT_XGMI_BANDWIDTH / 1e9:g} GB/s are assumed, as in RCCL"
            )


def _first_net(element: XmlElement) -> dict[str, str]:
    """Return the attributes of the first network device of a PCI function, {} if it has none."""
    nics = [element] if element.name == "nic" else element.children
    nets = (
        dict(net.attributes)
        for nic in nics
        if nic.name == "nic"
        for net in nic.children
        if net.name == "net"
    )
    return next(nets, {})


def _net_number(element: XmlElement) -> int:
    """Return NCCL's number of a network device, 0 if it has none."""
    number = _first_net(element).get("dev", "")
    return int(number) if re.fullmatch("[0-9]{1,9}", number) else 0


def _address(element: XmlElement, key: str = "busid") -> str:
    if not element.attributes.get(key):
        raise InputError(f"{element}: the attribute {key} is missing")
    return element.attributes[key].lower()


def _product(gpu: XmlElement) -> str:
    """Return NCCL's name of the architecture, `sm80` or `gfx942`, or "" if the file has none."""
    told = next((inner.attributes for inner in _gpus_in(gpu)), {})
    if "gcn" in told:
        number = told["gcn"].removeprefix("gfx").partition(":")[0]  # gfx90a:sramecc+:xnack-
        return f"gfx{OLD_ARCHITECTURES.get(number, number)}"
    return f"sm{told['sm']}" if "sm" in told else ""


def _link_rate(gpu: XmlElement, link: XmlElement) -> float:
    """Return the bandwidth of one link of this GPU in bytes per second."""
    if link.name == "xgmi":
        return XGMI_BANDWIDTHS.get(_product(gpu), DEFAULT_XGMI_BANDWIDTH)
    return nvlink_bandwidth(_gpus_in(gpu)[0].int_attribute("sm", 0, 1000))


def _processor_name(cpu: XmlElement) -> str:
    return " ".join(cpu.attributes.get(key, "") for key in ("vendor", "arch")).strip()


def _threads(cpu: XmlElement) -> int:
    """Return the hardware threads of a CPU from its affinity mask; the file has no cores."""
    text = cpu.attributes.get("affinity", "")
    if not re.fullmatch(r"([0-9a-f]{1,8},){0,500}[0-9a-f]{0,8}", text):
        raise InputError(
            f"{cpu}: affinity is written like 000000ff,ffff0000, not {shortened_repr(text)}"
        )
    return sum(int(word, 16).bit_count() for word in text.split(",") if word)


def _link_bandwidth(element: XmlElement) -> float:
    """Return the bandwidth of the link above a PCI function in bytes per second.

    A missing width or speed is 16 lanes or 8 GT/s, as in NCCL.
    """
    lanes = element.int_attribute("link_width", 0, MAX_LANES) or 16
    match = LINK_SPEED.fullmatch(element.attributes.get("link_speed", "").strip())
    transfers = float(match[1]) if match else 8.0
    if transfers not in PCIE_LANE_BANDWIDTHS:
        raise InputError(f"{element}: a PCIe link does not run at {transfers:g} GT/s")
    return lanes * PCIE_LANE_BANDWIDTHS[transfers]
