"""GPU products: the numbers that change in a machine when its GPUs are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.base.errors import InputError
from tuner.base.file_settings import parse_flag, parse_int, parse_name, require_keys
from tuner.base.spelling import unknown_name
from tuner.machines.provenance import SourcedReduction, SourcedValue
from tuner.machines.sourced_fields import SourcedReader
from tuner.topology import NVLINK, XGMI_LINK

MEMORY_PASSES = 3  # a reduction reads two values and writes one
COPY_PASSES = 2  # a copy reads and writes
MEMORY_EFFICIENCY = 0.8  # share of the memory's nominal rate that a kernel reaches
MAX_LINKS = 1024  # of one GPU
NO_LINKS = SourcedValue(0.0, "B/s", "this product has no links to other GPUs", "published")
LINK_KEYS = {NVLINK: ("nvlinks", "nvlink_rate"), XGMI_LINK: ("xgmi_links", "xgmi_rate")}
RATES = {"pcie_rate", "memory_rate", "kernel_launch"}
GPU_KEYS = RATES.union(*LINK_KEYS.values(), {"nvlink_sharp", "memory_size"})


@dataclass(frozen=True)
class GpuSpec:
    """A GPU product; rates are per direction and effective (not nominal), except `memory_rate`.

    link_kind       kind of its links to other GPUs, of `GPU_LINK_KINDS`; "" without such links
    links           number of these links of one GPU
    link_rate       rate of one of them
    pcie_rate       rate of its PCIe connection
    memory_rate     nominal rate of its memory
    kernel_launch   time of an empty kernel, from launch to completion
    nvlink_sharp    whether the NVSwitches of its generation reduce
    memory_size     bytes of its memory; None where its file does not say
    """

    product: str
    link_kind: str
    links: int
    link_rate: SourcedValue
    pcie_rate: SourcedValue
    memory_rate: SourcedValue
    kernel_launch: SourcedValue
    nvlink_sharp: bool = False
    memory_size: SourcedValue | None = None

    @property
    def copy_rate(self) -> SourcedValue:
        return SourcedValue(
            self.memory_rate.value * MEMORY_EFFICIENCY / COPY_PASSES,
            "B/s",
            "read and write at 80 % of the memory's nominal rate",
            "computed",
        )

    @property
    def reduction(self) -> SourcedReduction:
        """Cost of a kernel that reduces received data into a buffer."""
        rate = SourcedValue(
            self.memory_rate.value * MEMORY_EFFICIENCY / MEMORY_PASSES,
            "B/s",
            f"{MEMORY_PASSES} passes over memory at {MEMORY_EFFICIENCY:.0%} of its nominal rate",
            "computed",
        )
        return SourcedReduction(self.kernel_launch, rate)

    def parts(self) -> dict[str, SourcedValue | SourcedReduction]:
        """Return what a machine with these GPUs can name in its file."""
        links = {f"gpu.{LINK_KEYS[self.link_kind][1]}": self.link_rate} if self.links else {}
        return {
            **links,
            "gpu.pcie_rate": self.pcie_rate,
            "gpu.copy_rate": self.copy_rate,
            "gpu.kernel_launch": self.kernel_launch,
            "gpu.reduction": self.reduction,
        }


def parse_gpus(record: Any, parts: Mapping[str, Any]) -> dict[str, GpuSpec]:
    """Return the GPU products of a mapping by name; raise InputError for an invalid one.

    parts   what the numbers may name
    """
    if not isinstance(record, dict):
        raise InputError("gpus must be a mapping of products")
    reader = SourcedReader(parts)
    return {
        product: _parse_gpu(parse_name("gpus: each name", product), entry, reader)
        for product, entry in record.items()
    }


def _parse_gpu(product: str, entry: Any, reader: SourcedReader) -> GpuSpec:
    what = f"gpus: {product}"
    require_keys(what, entry, GPU_KEYS, RATES)
    sharp = parse_flag(f"{what}: nvlink_sharp", entry.get("nvlink_sharp", False))

    def rate(key: str) -> SourcedValue:
        return reader.number(f"{what}: {key}", entry[key], "B/s")

    return GpuSpec(
        product,
        *_parse_links(what, entry, reader),
        rate("pcie_rate"),
        rate("memory_rate"),
        reader.number(f"{what}: kernel_launch", entry["kernel_launch"], "s"),
        sharp,
        reader.number(f"{what}: memory_size", entry["memory_size"], "B")
        if "memory_size" in entry
        else None,
    )


def _parse_links(
    what: str, entry: Mapping[str, Any], reader: SourcedReader
) -> tuple[str, int, SourcedValue]:
    """Return kind, number and rate of the links of a GPU to others."""
    kinds = [kind for kind, (number, _) in LINK_KEYS.items() if number in entry]
    if len(kinds) != 1:
        raise InputError(f"{what}: give either nvlinks (0 on PCIe alone) or xgmi_links")
    number_key, rate_key = LINK_KEYS[kinds[0]]
    number = parse_int(f"{what}: {number_key}", entry[number_key], MAX_LINKS, 0)
    if [key for _, key in LINK_KEYS.values() if key in entry] != [rate_key] * (number > 0):
        raise InputError(
            f"{what}: give {rate_key} if {number_key} is not 0, and no other rate of links"
        )
    if not number:
        return "", 0, NO_LINKS
    return kinds[0], number, reader.number(f"{what}: {rate_key}", entry[rate_key], "B/s")


def find_gpu(product: str, known: Mapping[str, GpuSpec]) -> GpuSpec:
    """Return a GPU product by name; raise InputError for an unknown one."""
    if product not in known:
        raise InputError(unknown_name("GPU", product, known))
    return known[product]
