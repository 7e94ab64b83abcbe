"""One computer as NCCL or RCCL describes it: NCCL_TOPO_DUMP_FILE, or a cloud's NCCL_TOPO_FILE.

`<system>` holds a `<cpu>` per NUMA node; below it `<pci>` functions are nested as they hang; a
`<gpu>` or `<nic>` inside says what a function is, and `<nvlink>`, `<xgmi>` and `<c2c>` inside a GPU
to what it is linked besides. Files written by hand leave these out: there the PCI class decides,
and links between GPUs stay unknown. The class codes are those of NCCL's src/graph/topo.cc.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tuner.base.errors import InputError, quoted
from tuner.topology import CPU, GPU, NIC, Node, Topology
from tuner.topology.readers.node_builder import (
    PCIE_LANE,
    UNNAMED,
    XGMI,
    XGMI_OLDER,
    Branch,
    Plan,
    nvlink_bandwidth,
    socket_bandwidth,
)
from tuner.topology.readers.safe_xml import Element, parse_xml

VERSIONS = ("1", "2")  # the second is RCCL's
GPU_CLASSES = ("0x03", "0x12")  # displays and accelerators
NIC_CLASS, NVSWITCH_CLASS, POWER_CLASS = "0x02", "0x0680", "0x068001"  # the last: a POWER9 itself
MOST_LANES, MOST_LINKS, MOST_BANDWIDTH = 32, 64, 10_000_000  # the last in MB/s
SPEED = re.compile(r"([0-9]+(?:\.[0-9])?) GT/s(?: PCIe)?")


def parse_nccl_xml(text: str) -> Topology:
    """A topology of one node. Raises InputError with line and element."""
    root = parse_xml(text)
    cpus = _cpus(root)
    drawn = _Drawn.of(root, cpus)
    for gpu in drawn.gpus:
        drawn.link(gpu)
    drawn.join()
    cores = sum(device.cores for device in drawn.plan.devices)
    node = Node(UNNAMED, max(1, cores), drawn.plan.interior())
    return Topology(UNNAMED, (node,), (), (), offers=drawn.plan.offers)


def _cpus(root: Element) -> list[Element]:
    """The CPUs of a document that is what it claims."""
    if root.name != "system":
        raise InputError(f"{root}: NCCL's XML begins with <system>")
    if root.attributes.get("version", "none") not in VERSIONS:
        raise InputError(
            f"{root}: version {quoted(root.attributes.get('version', 'none'))} of NCCL's XML is not"
            " read, only 1 and 2"
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
class _Drawn:
    """The plan so far; `gpus`: the PCI element of each GPU -> its device, CPU and address."""

    plan: Plan
    names: dict[int, str] = field(default_factory=dict)  # id of an element -> its device
    gpus: list[Element] = field(default_factory=list)
    cpu_of: dict[str, str] = field(default_factory=dict)  # a GPU -> the CPU it hangs below
    at: dict[str, str] = field(default_factory=dict)  # PCI address -> GPU
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # links of GPU pairs
    rates: dict[tuple[str, str], float] = field(default_factory=dict)  # of one such link
    said: dict[tuple[str, str], Element] = field(default_factory=dict)  # where
    switched: Counter[str] = field(default_factory=Counter)  # a GPU -> its links to NVSwitches

    @classmethod
    def of(cls, root: Element, cpus: list[Element]) -> _Drawn:
        drawn = cls(Plan())
        for cpu in cpus:
            drawn.names[id(cpu)] = drawn.plan.add(CPU, _processor(cpu), _threads(cpu))
        drawn.gpus, nics = _devices(root)
        for gpu in drawn.gpus:
            drawn.names[id(gpu)] = drawn.plan.add(GPU, _product(gpu))
            drawn.at[_address(gpu)] = drawn.names[id(gpu)]
        for nic in nics:
            drawn.names[id(nic)] = drawn.plan.add(NIC, _first_net(nic).get("name", ""))
        for cpu in cpus:
            drawn.hang(cpu)
        names = [drawn.names[id(cpu)] for cpu in cpus]
        drawn.plan.join_all(names, socket_bandwidth(_processor(cpus[0])))
        return drawn

    def hang(self, cpu: Element) -> None:
        """Everything below one CPU."""
        name = self.names[id(cpu)]
        for element in cpu.all():
            self.cpu_of[self.names.get(id(element), "")] = name
        for child in cpu.children:
            for branch in self.branches(child):
                self.plan.hang(name, branch)

    def branches(self, element: Element) -> list[Branch]:
        """A device, or a bridge above devices, with the link above it."""
        name = self.names.get(id(element), "")
        below = (
            []
            if name
            else [branch for child in element.children for branch in self.branches(child)]
        )
        return [Branch(_link_bandwidth(element), name, below)] if name or below else []

    def link(self, gpu: Element) -> None:
        """Count what a GPU is linked to besides PCIe; a target outside the file is no news."""
        name = self.names[id(gpu)]
        for link in (child for inner in _gpus_in(gpu) for child in inner.children):
            kind, count = link.attributes.get("tclass", ""), link.whole("count", 1, MOST_LINKS)
            if link.name == "c2c":
                rate = link.whole("bw", 0, MOST_BANDWIDTH) * 1e6
                self.to_cpu(name, rate, count)
            elif link.name in ("nvlink", "xgmi") and kind == POWER_CLASS:
                self.to_cpu(name, _rate(gpu, link), count)
            elif link.name in ("nvlink", "xgmi") and kind.startswith(NVSWITCH_CLASS):
                self.switched[name] += count
                self.rates[name, ""] = _rate(gpu, link)
            elif link.name in ("nvlink", "xgmi"):
                pair = name, self.at.get(_address(link, "target"), "")
                self.counts[pair] += count
                self.rates[pair], self.said[pair] = _rate(gpu, link), link

    def to_cpu(self, gpu: str, rate: float, count: int) -> None:
        """A link with the CPU that the GPU hangs below."""
        if rate > 0 and count > 0:
            self.plan.join(gpu, self.cpu_of[gpu], rate * count, "nvlink", count)

    def join(self) -> None:
        """The links between GPUs, direct or through switches."""
        for (a, b), count in self.counts.items():
            if b and count != self.counts[b, a]:
                raise InputError(
                    f"{self.said[a, b]}: {a} has {count} links to {b}, which has"
                    f" {self.counts[b, a]} back"
                )
            if b and a != b and count > 0:
                self.plan.join(a, b, self.rates[a, b] * count, "nvlink", count)
        counts = {gpu: count for gpu, count in self.switched.items() if count > 0}
        if counts:
            self.plan.nvswitch({gpu: self.rates[gpu, ""] * counts[gpu] for gpu in counts}, counts)


def _devices(root: Element) -> tuple[list[Element], list[Element]]:
    """The PCI elements that are GPUs, by their CUDA number, and those that are NICs.

    A network device that hangs on no PCI function, such as a virtual one, is its own element.
    """
    functions = [element for element in root.all() if element.name == "pci"]
    told = [element for element in functions if _gpus_in(element)]
    gpus = sorted(told, key=lambda e: _gpus_in(e)[0].whole("dev", 0, 1 << 20))
    nets = [element for element in (*functions, *_loose_nics(root)) if _first_net(element)]
    nics = sorted(nets, key=_net_number)
    classes = [(element.attributes.get("class", ""), element) for element in functions]
    return (
        gpus or [e for kind, e in classes if kind.startswith(GPU_CLASSES)],
        nics or [e for kind, e in classes if kind.startswith(NIC_CLASS)],
    )


def _loose_nics(root: Element) -> Iterator[Element]:
    for cpu in root.children:
        yield from (child for child in cpu.children if child.name == "nic")


def _gpus_in(element: Element) -> list[Element]:
    return [child for child in element.children if child.name == "gpu"]


def _first_net(element: Element) -> dict[str, str]:
    """The attributes of the first network device of a PCI function, {} when it has none."""
    nics = [element] if element.name == "nic" else element.children
    nets = (
        dict(net.attributes)
        for nic in nics
        if nic.name == "nic"
        for net in nic.children
        if net.name == "net"
    )
    return next(nets, {})


def _net_number(element: Element) -> int:
    """NCCL's number of a network device; 0 where there is none."""
    number = _first_net(element).get("dev", "")
    return int(number) if re.fullmatch("[0-9]{1,9}", number) else 0


def _address(element: Element, key: str = "busid") -> str:
    if not element.attributes.get(key):
        raise InputError(f"{element}: the attribute {key} is missing")
    return element.attributes[key].lower()


def _product(gpu: Element) -> str:
    """What NCCL knows of it: `sm80`, `gfx942`, or nothing."""
    told = next((inner.attributes for inner in _gpus_in(gpu)), {})
    if "gcn" in told:
        return f"gfx{told['gcn'].removeprefix('gfx')}"
    return f"sm{told['sm']}" if "sm" in told else ""


def _rate(gpu: Element, link: Element) -> float:
    """Bytes per second of one link of this GPU."""
    inner = _gpus_in(gpu)[0]
    if link.name == "xgmi":
        return XGMI.get(inner.attributes.get("gcn", "").removeprefix("gfx"), XGMI_OLDER)
    return nvlink_bandwidth(inner.whole("sm", 0, 1000))


def _processor(cpu: Element) -> str:
    return " ".join(cpu.attributes.get(key, "") for key in ("vendor", "arch")).strip()


def _threads(cpu: Element) -> int:
    """Hardware threads of a CPU: words of 32 bits in hexadecimal. Cores are not in the file."""
    text = cpu.attributes.get("affinity", "")
    if not re.fullmatch(r"([0-9a-f]{1,8},){0,500}[0-9a-f]{0,8}", text):
        raise InputError(f"{cpu}: affinity is written like 000000ff,ffff0000, not {quoted(text)}")
    return sum(int(word, 16).bit_count() for word in text.split(",") if word)


def _link_bandwidth(element: Element) -> float:
    """Bytes per second of the link above a PCI function; what is not told is as NCCL takes it."""
    lanes = element.whole("link_width", 0, MOST_LANES) or 16
    match = SPEED.fullmatch(element.attributes.get("link_speed", "").strip())
    transfers = float(match[1]) if match else 8.0
    if transfers not in PCIE_LANE:
        raise InputError(f"{element}: a PCIe link does not run at {transfers:g} GT/s")
    return lanes * PCIE_LANE[transfers]
