"""Numbers and costs that several machines share."""

from __future__ import annotations

import math

from tuner.machines.gpus import GPUS, GpuSpec
from tuner.machines.machine_spec import PathKey
from tuner.machines.node_parts import LinkType
from tuner.machines.provenance import (
    SourcedPathCost,
    SourcedReduction,
    SourcedSegment,
    SourcedValue,
    gigabytes_per_s,
    interpolated_segments,
    microseconds,
    single_segment,
)
from tuner.topology import CROSS_SOCKET, CUDA, HOST, NODE, NODE_OVERSUBSCRIBED, SAME_GPU

NCCL_SOURCE = "NCCL 2.30.7, src/graph/topo.h"
GDRCOPY_SOURCE = "GDRCopy README"
TACCL_SOURCE = "TACCL topology files"
TARTAN_SOURCE = "Tartan benchmark, raw data"
ABCI_SOURCE = "ABCI 2.0 benchmark, A100 nodes, Open MPI 4.0.5 with UCX, raw data"
MVAPICH2_GUIDE = "MVAPICH2-GDR 2.3.7 user guide"
NOT_MEASURED = "no measurement was found"
KIB = 1024

EDR_RATE = gigabytes_per_s(12.0, f"{NCCL_SOURCE}: a NIC of 100 Gb/s", "verified")
FDR_RATE = gigabytes_per_s(
    6.5, "56 Gb/s less 64b/66b coding, and 96 % of it as for EDR", "computed"
)
NDR_RATE = gigabytes_per_s(
    42.6, "sendrecv per NIC on 2 nodes, B200 cluster, NCCL 2.29.7", "published"
)
SWITCH_LATENCY = microseconds(0.1, "90 to 130 ns per InfiniBand switch, data sheets", "remembered")
NEVER_STRIPED = SourcedValue(
    math.inf, "B", "no source says that a message is striped over NICs", "assumed"
)
INCLUDED_IN_ALPHA = SourcedValue(0.0, "s", "contained in the measured alpha", "computed")
POINTER_QUERY = microseconds(
    0.5, f"{NOT_MEASURED}; some tenths of a microsecond per driver call", "assumed"
)
MULTICAST_SOURCE = ("InfiniBand switches replicate unreliable datagrams", "published")
SHARP_SOURCE = ("Switch-IB 2 and Quantum switches reduce (SHARP)", "published")
NVLS_SOURCE = ("NVSwitch of the third generation reduces (NVLS)", "published")

PCIE3_LINK = LinkType("pcie", gigabytes_per_s(12.0, f"{NCCL_SOURCE}: PCIe 3.0 x16", "verified"))
QPI_LINK = LinkType("socket", gigabytes_per_s(19.2, "QPI at 9.6 GT/s, nominal", "remembered"))


def gpu_pcie_link(product: str) -> LinkType:
    """Return the PCIe link of a GPU."""
    return LinkType("pcie", GPUS[product].pcie_rate)


def gpu_nvlink(product: str) -> LinkType:
    """Return one NVLink of a GPU."""
    return LinkType("nvlink", GPUS[product].nvlink_rate)


def host_path_costs(network: SourcedPathCost, sockets: int = 2) -> dict[PathKey, SourcedPathCost]:
    """Return the costs of messages between CPUs.

    Costs inside the node are assumed values for shared memory, since no measurement was found.
    """
    why = f"{NOT_MEASURED}; shared-memory copies on servers of this kind"
    near = single_segment(microseconds(0.5, why, "assumed"), gigabytes_per_s(10.0, why, "assumed"))
    far = single_segment(microseconds(0.8, why, "assumed"), gigabytes_per_s(8.0, why, "assumed"))
    crowded = single_segment(
        microseconds(10.0, f"{NOT_MEASURED}; ranks wait for one another's time slices", "assumed"),
        gigabytes_per_s(5.0, f"{NOT_MEASURED}; half of an undisturbed copy", "assumed"),
    )
    copy = single_segment(microseconds(0.1, why, "assumed"), gigabytes_per_s(10.0, why, "assumed"))
    found = {
        ("self", HOST): copy,
        (NODE, HOST): near,
        (NODE_OVERSUBSCRIBED, HOST): crowded,
        ("network", HOST): network,
    }
    return found | ({(CROSS_SOCKET, HOST): far} if sockets > 1 else {})


def device_path_costs(
    gpu: GpuSpec, alpha: SourcedValue, network: SourcedPathCost, staging: SourcedPathCost
) -> dict[PathKey, SourcedPathCost]:
    """Return the costs of copies on one GPU, between GPU and host, and between GPUs of two nodes.

    gpu         product of the GPUs
    alpha       latency of a message between two ranks on one GPU
    network     cost of messages between nodes
    staging     cost of copies between GPU and host
    """
    rate = SourcedValue(
        gpu.memory_rate.value * 0.8 / 2,
        "B/s",
        "read and write at 80 % of the memory's nominal rate",
        "computed",
    )
    return {
        ("self", CUDA): single_segment(gpu.kernel_launch, rate),
        (SAME_GPU, CUDA): single_segment(alpha, rate),
        ("network", CUDA): network,
        ("staging", CUDA): staging,
    }


def memcpy_costs(rate: SourcedValue) -> SourcedPathCost:
    """Return the cost of cudaMemcpy between device and pinned host memory."""
    return single_segment(
        microseconds(6.5, f"{GDRCOPY_SOURCE}: cudaMemcpy costs 6 to 7 us", "published"), rate
    )


def reduction_costs(gpu: GpuSpec) -> dict[str, SourcedReduction]:
    """Return the costs of reductions by one CPU core, by a GPU kernel, and by a CPU on GPU memory.

    "cuda_by_cpu" is a CPU that accesses device memory through a mapped window.
    """
    core = f"{NOT_MEASURED}; one core that adds floats from memory"
    return {
        "host": SourcedReduction(
            microseconds(0.05, core, "assumed"), gigabytes_per_s(8.0, core, "assumed")
        ),
        "cuda": gpu.reduction,
        "cuda_by_cpu": SourcedReduction(
            microseconds(0.1, f"{GDRCOPY_SOURCE}: small writes 0.09 us", "published"),
            gigabytes_per_s(0.53, f"{GDRCOPY_SOURCE}: reads through the window", "published"),
        ),
    }


EAGER_LIMIT = SourcedValue(16.0 * KIB, "B", "where the measured lines change", "computed")


def edr_host_costs(rate: SourcedValue) -> SourcedPathCost:
    """Return the cost of host messages over InfiniBand, with the latencies of Summit."""
    why = "as measured on Summit, an EDR machine; not measured here"
    return SourcedPathCost(
        interpolated_segments(
            microseconds(1.5, why, "assumed"),
            16 * KIB,
            SourcedSegment(16 * KIB, microseconds(6.2, why, "assumed"), rate),
        ),
        EAGER_LIMIT,
    )


def gpudirect_then_staged_costs(rate: SourcedValue) -> SourcedPathCost:
    """Return the cost of GPUDirect for small messages, and of staging through the host above it."""
    direct = "GPUDirect RDMA of 1 B on JUWELS Booster (A100), 4.27 us; not measured here"
    slow = "1 B without GPUDirect on JUWELS Booster (A100), 24.56 us; not measured here"
    told = "JUWELS Booster: 16,400 MiB/s staged against 24,000 direct"
    share = SourcedValue(rate.value * 16.4 / 24.0, "B/s", told, "computed")
    return SourcedPathCost(
        (
            SourcedSegment(
                0.0,
                microseconds(4.27, direct, "assumed"),
                gigabytes_per_s(
                    3.0, f"{NOT_MEASURED}; reads from a GPU across PCIe are slow", "assumed"
                ),
            ),
            SourcedSegment(8 * KIB + 1, microseconds(24.56, slow, "assumed"), share, staged=True),
        ),
        SourcedValue(8.0 * KIB + 1, "B", f"{MVAPICH2_GUIDE}: MV2_GPUDIRECT_LIMIT 8192", "verified"),
    )
