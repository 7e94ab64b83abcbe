"""GPU products: the numbers that change in a machine when its GPUs are replaced."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.base.errors import InputError, shortened_repr
from tuner.machines.provenance import SourcedReduction, SourcedValue, gigabytes_per_s, microseconds

NCCL_SOURCE = "NCCL 2.30.7, src/graph/topo.h and tuning.cc: effective rate of a link"
MEMORY_PASSES = 3  # a reduction reads two values and writes one
MEMORY_EFFICIENCY = 0.8  # share of the memory's nominal rate that this kernel reaches
KERNEL_LAUNCH = microseconds(
    3.0, "null kernels on recent hardware, NVIDIA developer forum, thread 233645", "published"
)
PCIE3_KERNEL_LAUNCH = microseconds(
    5.0, "PCIe 3 hosts are slower than the 3 us of recent hardware", "assumed"
)


@dataclass(frozen=True)
class GpuSpec:
    """A GPU product; rates are per direction and effective (not nominal), except `memory_rate`.

    nvlinks         number of NVLinks of one GPU; 0 without NVLink
    nvlink_rate     rate of one NVLink
    pcie_rate       rate of its PCIe connection
    memory_rate     nominal rate of its memory
    kernel_launch   time of an empty kernel, from launch to completion
    """

    product: str
    nvlinks: int
    nvlink_rate: SourcedValue
    pcie_rate: SourcedValue
    memory_rate: SourcedValue
    kernel_launch: SourcedValue

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


def _pcie(generation: int, rate: float, source: str, certainty: str) -> SourcedValue:
    return gigabytes_per_s(rate, f"PCIe {generation}.0 x16: {source}", certainty)


_PCIE3 = _pcie(3, 12.0, "NCCL 2.30.7, src/graph/topo.h", "verified")
_DATASHEET = "NVIDIA data sheet"
_TABLE = "product comparison, acecloud.ai, nvidia-b200-vs-h200-h100-a100"

GPUS = {
    gpu.product: gpu
    for gpu in (
        GpuSpec(
            "K80",
            0,
            gigabytes_per_s(0.0, "no NVLink before Pascal", "published"),
            _PCIE3,
            gigabytes_per_s(240.0, f"{_DATASHEET}: 480 GB/s of a card with two GPUs", "remembered"),
            PCIE3_KERNEL_LAUNCH,
        ),
        GpuSpec(
            "P100",
            4,
            gigabytes_per_s(18.41, "adjacent pair on DGX-1P, Tartan benchmark", "verified"),
            _PCIE3,
            gigabytes_per_s(732.0, _DATASHEET, "remembered"),
            PCIE3_KERNEL_LAUNCH,
        ),
        GpuSpec(
            "V100",
            6,
            gigabytes_per_s(21.7, "46 us per MB on a single link of DGX-1V, TACCL", "verified"),
            _PCIE3,
            gigabytes_per_s(900.0, _DATASHEET, "remembered"),
            PCIE3_KERNEL_LAUNCH,
        ),
        GpuSpec(
            "A100",
            12,
            gigabytes_per_s(273.8 / 12, "ABCI peer to peer: median 273.8 GB/s of 12", "computed"),
            _pcie(4, 26.3, "host to device, Azure guide", "published"),
            gigabytes_per_s(1555.0, f"{_DATASHEET}, 40 GB; 2039 with 80 GB", "remembered"),
            KERNEL_LAUNCH,
        ),
        GpuSpec(
            "H100",
            18,
            gigabytes_per_s(20.6, NCCL_SOURCE, "verified"),
            _pcie(5, 51.0, "host to device, Azure guide", "published"),
            gigabytes_per_s(3350.0, _TABLE, "published"),
            KERNEL_LAUNCH,
        ),
        GpuSpec(
            "H200",
            18,
            gigabytes_per_s(20.6, NCCL_SOURCE, "verified"),
            _pcie(5, 52.0, "host to device, Azure guide", "published"),
            gigabytes_per_s(4800.0, _TABLE, "published"),
            KERNEL_LAUNCH,
        ),
        GpuSpec(
            "B200",
            18,
            gigabytes_per_s(40.1, NCCL_SOURCE, "verified"),
            _pcie(5, 52.0, "as H200 on the same generation of PCIe", "assumed"),
            gigabytes_per_s(8000.0, _TABLE, "published"),
            KERNEL_LAUNCH,
        ),
    )
}


def find_gpu(product: str) -> GpuSpec:
    """Return a GPU product by name; raise InputError for an unknown one."""
    if product not in GPUS:
        raise InputError(f"there is no GPU {shortened_repr(product)}; known: {', '.join(GPUS)}")
    return GPUS[product]
