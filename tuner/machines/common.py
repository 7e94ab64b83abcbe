"""Numbers and costs that several machines share."""

from __future__ import annotations

import math

from tuner.machines.gpus import GPU, GPUS
from tuner.machines.machine_spec import PathKey
from tuner.machines.node_parts import Cable
from tuner.machines.provenance import Costs, Line, Reduction, Sourced, giga, joined, line, micros
from tuner.topology import CROSS_SOCKET, CUDA, HOST, NODE, NODE_OVERSUBSCRIBED, SAME_GPU

NCCL = "NCCL 2.30.7, src/graph/topo.h"
GDRCOPY = "GDRCopy README"
TACCL = "TACCL topology files"
TARTAN = "Tartan benchmark, raw data"
ABCI = "ABCI 2.0 benchmark, A100 nodes, Open MPI 4.0.5 with UCX, raw data"
MPI_CHOICE = "MVAPICH2-GDR 2.3.7 user guide"
NOT_MEASURED = "no measurement was found"
KIB = 1024

EDR = giga(12.0, f"{NCCL}: a NIC of 100 Gb/s", "verified")
FDR = giga(6.5, "56 Gb/s less 64b/66b coding, and 96 % of it as for EDR", "computed")
NDR = giga(42.6, "sendrecv per NIC on 2 nodes, B200 cluster, NCCL 2.29.7", "published")
HOP = micros(0.1, "90 to 130 ns per InfiniBand switch, data sheets", "remembered")
NEVER = Sourced(math.inf, "B", "no source says that a message is striped over NICs", "assumed")
CONTAINED = Sourced(0.0, "s", "contained in the measured alpha", "computed")
QUERY = micros(0.5, f"{NOT_MEASURED}; some tenths of a microsecond per driver call", "assumed")
MULTICAST = ("InfiniBand switches replicate unreliable datagrams", "published")
SHARP = ("Switch-IB 2 and Quantum switches reduce (SHARP)", "published")
NVLS = ("NVSwitch of the third generation reduces (NVLS)", "published")

PCIE3 = Cable("pcie", giga(12.0, f"{NCCL}: PCIe 3.0 x16", "verified"))
QPI = Cable("socket", giga(19.2, "QPI at 9.6 GT/s, nominal", "remembered"))


def gpu_cable(product: str) -> Cable:
    """The PCIe connection of a GPU."""
    return Cable("pcie", GPUS[product].pcie)


def nvlink(product: str) -> Cable:
    """One NVLink brick."""
    return Cable("nvlink", GPUS[product].brick)


def host_paths(network: Costs, sockets: int = 2) -> dict[PathKey, Costs]:
    """Messages between CPUs: shared memory inside the node, as nobody measured it there."""
    why = f"{NOT_MEASURED}; shared-memory copies on servers of this kind"
    near = line(micros(0.5, why, "assumed"), giga(10.0, why, "assumed"))
    far = line(micros(0.8, why, "assumed"), giga(8.0, why, "assumed"))
    crowded = line(
        micros(10.0, f"{NOT_MEASURED}; ranks wait for one another's time slices", "assumed"),
        giga(5.0, f"{NOT_MEASURED}; half of an undisturbed copy", "assumed"),
    )
    copy = line(micros(0.1, why, "assumed"), giga(10.0, why, "assumed"))
    found = {
        ("self", HOST): copy,
        (NODE, HOST): near,
        (NODE_OVERSUBSCRIBED, HOST): crowded,
        ("network", HOST): network,
    }
    return found | ({(CROSS_SOCKET, HOST): far} if sockets > 1 else {})


def device_paths(gpu: GPU, alpha: Sourced, network: Costs, staging: Costs) -> dict[PathKey, Costs]:
    """Copies on one GPU, between GPU and host, and between the GPUs of nodes."""
    rate = Sourced(
        gpu.memory.value * 0.8 / 2,
        "B/s",
        "read and write at 80 % of the memory's nominal rate",
        "computed",
    )
    return {
        ("self", CUDA): line(gpu.launch, rate),
        (SAME_GPU, CUDA): line(alpha, rate),
        ("network", CUDA): network,
        ("staging", CUDA): staging,
    }


def copies(rate: Sourced) -> Costs:
    """cudaMemcpy between device and pinned host memory."""
    return line(micros(6.5, f"{GDRCOPY}: cudaMemcpy costs 6 to 7 us", "published"), rate)


def reductions(gpu: GPU) -> dict[str, Reduction]:
    """On one core; by a kernel; by the CPU through a window onto device memory."""
    core = f"{NOT_MEASURED}; one core that adds floats from memory"
    return {
        "host": Reduction(micros(0.05, core, "assumed"), giga(8.0, core, "assumed")),
        "cuda": gpu.reduction,
        "cuda_by_cpu": Reduction(
            micros(0.1, f"{GDRCOPY}: small writes 0.09 us", "published"),
            giga(0.53, f"{GDRCOPY}: reads through the window", "published"),
        ),
    }


EAGER = Sourced(16.0 * KIB, "B", "where the measured lines change", "computed")


def edr_host(rate: Sourced) -> Costs:
    """Host memory over InfiniBand, latencies as on Summit."""
    why = "as measured on Summit, an EDR machine; not measured here"
    return Costs(
        joined(
            micros(1.5, why, "assumed"), 16 * KIB, Line(16 * KIB, micros(6.2, why, "assumed"), rate)
        ),
        EAGER,
    )


def direct_then_staged(rate: Sourced) -> Costs:
    """GPUDirect for small messages, a pipeline through host memory for the others."""
    direct = "GPUDirect RDMA of 1 B on JUWELS Booster (A100), 4.27 us; not measured here"
    slow = "1 B without GPUDirect on JUWELS Booster (A100), 24.56 us; not measured here"
    told = "JUWELS Booster: 16,400 MiB/s staged against 24,000 direct"
    share = Sourced(rate.value * 16.4 / 24.0, "B/s", told, "computed")
    return Costs(
        (
            Line(
                0.0,
                micros(4.27, direct, "assumed"),
                giga(3.0, f"{NOT_MEASURED}; reads from a GPU across PCIe are slow", "assumed"),
            ),
            Line(8 * KIB + 1, micros(24.56, slow, "assumed"), share, staged=True),
        ),
        Sourced(8.0 * KIB + 1, "B", f"{MPI_CHOICE}: MV2_GPUDIRECT_LIMIT 8192", "verified"),
    )
