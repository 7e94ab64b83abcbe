"""GB200 NVL72: one rack is one NVLink domain, and one node of the topology."""

from __future__ import annotations

from tuner.machines.common import (
    HOP,
    MULTICAST,
    NCCL,
    NDR,
    NEVER,
    NOT_MEASURED,
    NVLS,
    QUERY,
    SHARP,
    device_paths,
    edr_host,
    host_paths,
    nvlink,
    reductions,
)
from tuner.machines.gpus import GPUS
from tuner.machines.machine_spec import Design
from tuner.machines.node_parts import NVSWITCH, Cable, Edge, Inside, dealt, nvswitched
from tuner.machines.provenance import Sourced, giga, line, micros
from tuner.machines.switched import NVSWITCH_ALPHA, SUPERPOD, hopper_network
from tuner.topology import CPU, CUDA, GPU, NIC, NVLINK, Device
from tuner.topology.readers.fabrics import FatTree, Wire

TRAYS = 18
C2C = giga(450.0, "NVLink-C2C, 900 GB/s in both directions, nominal", "remembered")
EXTENDED = "Grace memory reached through the GPUs over NVLink (extended GPU memory)"


def _rack() -> Inside:
    """18 trays of two Grace CPUs, each with two B200 and two NICs; rail by rail the NICs."""
    cpus, gpus = [f"cpu{i}" for i in range(2 * TRAYS)], [f"gpu{i}" for i in range(4 * TRAYS)]
    nics = [f"nic{i}" for i in range(4 * TRAYS)]
    rails = [nics[i] for rail in range(4) for i in range(rail, len(nics), 4)]
    inside = Inside(
        (
            *(Device(name, CPU, "Grace", 72) for name in cpus),
            *(Device(name, GPU, "B200") for name in gpus),
            *(Device(name, NIC) for name in rails),
        ),
        (
            *dealt(gpus, cpus, Cable("nvlink", C2C)),
            *dealt(nics, cpus, Cable("pcie", GPUS["B200"].pcie)),
        ),
    )
    switched = nvswitched(inside, GPUS["B200"].bricks, nvlink("B200"), "NVSwitch trays")
    bus = Cable("socket", giga(400.0, f"{EXTENDED}; its rate is not known", "assumed"))
    return switched.with_edges(Edge(name, NVSWITCH, bus) for name in cpus)


def gb200_nvl72() -> Design:
    """Racks of 72 B200 and 36 Grace; eight make a SuperPOD unit."""
    b200 = GPUS["B200"]
    near = line(
        NVSWITCH_ALPHA.elsewhere(),
        giga(b200.bricks * 40.1, f"{NCCL}: 40.1 GB/s per link of 18", "computed"),
    )
    staging = line(
        micros(6.5, f"{NOT_MEASURED}; cudaMemcpy as on PCIe machines", "assumed"),
        giga(360.0, f"{NOT_MEASURED}; 80 % of NVLink-C2C's nominal rate", "assumed"),
    )
    return Design(
        name="gb200-nvl72",
        title="NVIDIA GB200 NVL72",
        source=f"{NCCL}; {SUPERPOD}, GB200",
        nodes=Sourced(8, "", f"{SUPERPOD}, GB200: a scalable unit has 8 racks", "remembered"),
        product="B200",
        inside=_rack(),
        fabric=FatTree(Wire(NDR.value), (TRAYS,), (TRAYS,), False, Wire(NDR.value, HOP.value)),
        shape=("a leaf per rail and rack, non-blocking", "assumed"),
        port=NDR,
        hop=HOP,
        paths={
            **host_paths(edr_host(giga(42.6, "as device memory over NDR", "assumed"))),
            (NVLINK, CUDA): near,
            **device_paths(b200, near.lines[0].alpha, hopper_network(), staging),
        },
        reduction=reductions(b200),
        memory=giga(36 * 500.0, "36 CPUs with LPDDR5X of 500 GB/s each", "remembered"),
        stripe_from=NEVER,
        pointer_query=QUERY,
        library="MPI or NCCL",
        offers={"multicast": MULTICAST, "switch_reduction": SHARP, "nvswitch_reduction": NVLS},
    )
