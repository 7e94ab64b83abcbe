"""Texts about the inside of nodes, as hwloc and NCCL write them."""

from __future__ import annotations

from collections.abc import Mapping


def pci(kind: str, what: str, gp: int, inner: str = "", speed: float = 15.75) -> str:
    return (
        f'<object type="{kind}" gp_index="{gp}" pci_type="{what} a1 00"'
        f' pci_link_speed="{speed}" bridge_type="1-1">{inner}</object>\n'
    )


def gpu(name: str, gp: int) -> str:
    driver = f'<object type="OSDev" gp_index="{gp + 500}" name="{name}" osdev_type="1">'
    told = '<info name="GPUModel" value="Own GPU"/>'
    return pci("PCIDev", "0302 [10de:1db8] [10de:131d]", gp, f"{driver}{told}</object>")


def nic(name: str, gp: int, kind: str = "3", what: str = "0207") -> str:
    driver = f'<object type="OSDev" gp_index="{gp + 500}" name="{name}" osdev_type="{kind}"/>'
    return pci("PCIDev", f"{what} [15b3:1017] [15b3:0000]", gp, driver)


def bridge(gp: int, inner: str, speed: float = 15.75) -> str:
    return pci("Bridge", "0604 [8086:2030] [8086:0000]", gp, inner, speed)


def host_bridge(inner: str) -> str:
    return f'<object type="Bridge" gp_index="1" bridge_type="0-1">{inner}</object>'


def computer(first: str, second: str, after: str = "", version: str = "2.0") -> str:
    """Two packages of two cores with these PCI trees, and what follows the machine."""
    cores = '<object type="Core"/>' * 2
    return f"""<?xml version="1.0"?>
<topology version="{version}">
<object type="Machine" gp_index="1">
<object type="Package" gp_index="10">{cores}{first}</object>
<object type="Package" gp_index="20">{cores}{second}</object>
</object>
{after}</topology>"""


SWITCHED = host_bridge(
    bridge(30, bridge(31, gpu("nvml1", 40), 7.9) + bridge(32, gpu("nvml0", 41)) + nic("mlx5_3", 42))
)


def table(names: str, cells: list[str], after: list[str] | None = None, between: str = "\t") -> str:
    """A matrix as the driver prints it; `after` what stands behind the cells of each row."""
    columns = names.split()
    rows = [
        between.join([name, *row.split(), *([] if after is None else [after[i]])])
        for i, (name, row) in enumerate(zip(columns, cells, strict=True))
    ]
    header = between.join(["", *columns, "CPU Affinity", "NUMA Affinity"])
    return "\n".join([header, *rows, "", "Legend:", "", "  X    = Self", "  NV#  = NVLinks"])


def eight(nvlinks: int, near: str) -> str:
    """Eight GPUs in pairs, each pair beside two NICs (`correlation`), with NUMA ids and a
    legend.
    """
    names = [f"GPU{i}" for i in range(8)] + [f"NIC{i}" for i in range(8)]

    def cell(a: int, b: int) -> str:
        if a == b:
            return "X"
        if a < 8 and b < 8:
            return f"NV{nvlinks}"
        if a % 8 // 2 != b % 8 // 2:
            return "NODE" if a % 8 // 4 == b % 8 // 4 else "SYS"
        return "PIX" if a >= 8 and b >= 8 else near

    rows = [" ".join(cell(a, b) for b in range(16)) for a in range(16)]
    after = ["0-47\t0\t\tN/A"] * 4 + ["48-95\t1\t\tN/A"] * 4 + [""] * 8
    legend = "".join(f"\n  NIC{i}: mlx5_{i + 2}" for i in range(8))
    return table(" ".join(names), rows, after) + f"\n\nNIC Legend:\n{legend}\n"


def nccl(*cpus: str, version: str = "1") -> str:
    numbered = "".join(
        f'<cpu numaid="{i}" affinity="000000{"f" * (i + 1)},0000ffff" arch="x86_64"'
        f' vendor="GenuineIntel" familyid="6" modelid="85">\n{inner}</cpu>\n'
        for i, inner in enumerate(cpus)
    )
    return f'<system version="{version}">\n{numbered}</system>\n'


def function(bus: str, kind: str, inner: str = "", speed: str = "16.0 GT/s PCIe") -> str:
    return (
        f'<pci busid="0000:{bus}:00.0" class="{kind}" link_speed="{speed}" link_width="16">'
        f"{inner}</pci>\n"
    )


def card(bus: str, dev: int, links: str = "", sm: str = 'sm="80"') -> str:
    return function(bus, "0x030200", f'<gpu dev="{dev}" {sm} rank="{dev}" gdr="1">{links}</gpu>')


def adapter(bus: str, name: str, dev: int) -> str:
    return function(bus, "0x020700", f'<nic><net name="{name}" dev="{dev}" speed="200000"/></nic>')


GPUS_OF_AMD = """
============= ROCm System Management Interface =============
================== Weight between two GPUs =================
       GPU0         GPU1         GPU2
GPU0   0            15           30
GPU1   15           0            40
GPU2   30           40           0

=================== Hops between two GPUs ==================
       GPU0         GPU1         GPU2
GPU0   0            1            2
GPU1   1            0            2
GPU2   2            2            0

================ Link Type between two GPUs ================
       GPU0         GPU1         GPU2
GPU0   0            XGMI         XGMI
GPU1   XGMI         0            PCIE
GPU2   XGMI         PCIE         0

======================== Numa Nodes ========================
GPU[0]\t\t: (Topology) Numa Node: 0
GPU[0]\t\t: (Topology) Numa Affinity: 0
GPU[1]\t\t: (Topology) Numa Node: 0
GPU 2          : (Topology) Numa Node: 1
=================== End of ROCm SMI Log ====================
"""


BUSES = ("0000:03:00.0", "0000:0c:00.0", "0000:83:00.0")
GPU_TABLES: Mapping[
    tuple[str, str], tuple[tuple[str, ...], ...]
] = {  # of amd-smi: title and key -> cells
    ("ACCESS TABLE", "link_status"): (("ENABLED",) * 3,) * 3,
    ("WEIGHT TABLE", "weight"): (("0", "15", "15"), ("15", "0", "30"), ("15", "30", "0")),
    ("HOPS TABLE", "num_hops"): (("0", "1", "1"), ("1", "0", "1"), ("1", "1", "0")),
    ("LINK TYPE TABLE", "link_type"): (
        ("SELF", "XGMI", "XGMI"),
        ("XGMI", "SELF", "XGMI"),
        ("XGMI", "XGMI", "SELF"),
    ),
    ("NUMA BW TABLE", "bandwidth"): (
        ("N/A", "50000-100000", "50000-50000"),
        ("50000-100000", "N/A", "0-0"),
        ("50000-50000", "0-0", "N/A"),
    ),
}


def amd_smi(tables: Mapping[tuple[str, str], tuple[tuple[str, ...], ...]] = GPU_TABLES) -> str:
    """Return the output of `amd-smi topology` for three GPUs."""
    lines = list[str]()
    for (title, _), cells in tables.items():
        lines += [f"{title}:", " " * 13 + " ".join(BUSES)]
        lines += [
            f"{bus} " + "".join(cell.ljust(13) for cell in row)
            for bus, row in zip(BUSES, cells, strict=True)
        ]
    return "\n".join([*lines, "", "Legend:", "  SELF = Current GPU", ""])
