"""Clusters without NVLink: RI2, KESCH, Piz Daint, Comet. Hardly anything was measured on them."""

from __future__ import annotations

from tuner.machines.common import (
    EDR,
    FDR,
    HOP,
    KIB,
    MPI_CHOICE,
    MULTICAST,
    NCCL,
    NEVER,
    PCIE3,
    QPI,
    QUERY,
    copies,
    device_paths,
    direct_then_staged,
    edr_host,
    gpu_cable,
    host_paths,
    reductions,
)
from tuner.machines.gpus import GPUS
from tuner.machines.machine_spec import Design, PathKey
from tuner.machines.node_parts import tree
from tuner.machines.provenance import Costs, Sourced, giga, line, micros
from tuner.topology import CPU, CROSS_SOCKET, CUDA, PCIE, Device
from tuner.topology.readers.fabrics import Dragonfly, FatTree, OneSwitch, Wire

SDSC = "SDSC user guide"
MULTICAST_ONLY = {"multicast": MULTICAST}
PEER = "adjacent GPUs on DGX-1P, Tartan, 9.1 to 10.3 us; not measured over PCIe"
OVERHEAD = f"{NCCL}: PCIe 3.0 x16 less its peer-to-peer overhead on Intel CPUs, 12 / 1.2"
ACROSS = "GPUs that are not adjacent on DGX-1P, Tartan, raw data"
HASWELL = Device("", CPU, "Xeon E5-2680 v3", 12)


def _paths(product: str, port: Sourced, sockets: int = 2) -> dict[PathKey, Costs]:
    gpu = GPUS[product]
    return {
        **host_paths(edr_host(port), sockets),
        **device_paths(
            gpu, micros(9.7, PEER, "assumed"), direct_then_staged(port), copies(gpu.pcie)
        ),
    }


def _peers(product: str, port: Sourced) -> dict[PathKey, Costs]:
    """Several GPUs: under one socket, and across."""
    near = line(micros(9.7, PEER, "assumed"), giga(10.0, OVERHEAD, "computed"))
    far = line(micros(24.0, ACROSS, "assumed"), giga(9.19, ACROSS, "assumed"))
    return {**_paths(product, port), (PCIE, CUDA): near, (CROSS_SOCKET, CUDA): far}


def ri2() -> Design:
    """RI2, Ohio State University: one K80 card per node, EDR."""
    broadwell = Device("", CPU, "Xeon E5-2680 v4", 14)
    inside = tree(
        "K80",
        2,
        broadwell,
        2,
        1,
        gpu_link=gpu_cable("K80"),
        pcie=PCIE3,
        nic_link=PCIE3,
        socket=QPI,
        socket_links=2,
        fan=(2,),
        nics_at=1,
    )
    paths = _peers("K80", EDR)
    del paths[CROSS_SOCKET, CUDA]  # both GPUs are on one card
    return Design(
        name="ri2",
        title="RI2-like: one K80 card, EDR",
        source=f"MVAPICH2 tuning tables; {NCCL}",
        nodes=Sourced(32, "", "MVAPICH2 tuning tables have rows for up to 32 nodes", "verified"),
        product="K80",
        inside=inside,
        fabric=OneSwitch(Wire(EDR.value)),
        shape=("32 nodes fit on one switch of 36 ports", "assumed"),
        port=EDR,
        hop=HOP,
        paths=paths,
        reduction=reductions(GPUS["K80"]),
        memory=giga(153.6, "two sockets with four DDR4-2400 channels each", "remembered"),
        stripe_from=NEVER,
        pointer_query=QUERY,
        library="MVAPICH2-GDR",
        offers=MULTICAST_ONLY,
    )


def kesch() -> Design:
    """KESCH, MeteoSwiss: 8 K80 cards (16 GPUs) per node, two FDR ports."""
    cpu = Device("", CPU, "Xeon E5-2690 v3", 12)
    inside = tree(
        "K80",
        16,
        cpu,
        2,
        2,
        gpu_link=gpu_cable("K80"),
        pcie=PCIE3,
        nic_link=PCIE3,
        socket=QPI,
        socket_links=2,
        fan=(2, 2),
        nics_at=2,
    )
    return Design(
        name="kesch",
        title="KESCH-like: 16 K80, two FDR",
        source="12 nodes, 96 K80 cards, 24 Haswell CPUs, published by CSCS",
        nodes=Sourced(12, "", "12 nodes, 96 K80 cards, 24 Haswell CPUs", "published"),
        product="K80",
        inside=inside,
        fabric=OneSwitch(Wire(FDR.value)),
        shape=("24 ports fit on one switch of 36", "assumed"),
        port=FDR,
        hop=HOP,
        paths=_peers("K80", FDR),
        reduction=reductions(GPUS["K80"]),
        memory=giga(136.5, "two sockets with four DDR4-2133 channels each", "remembered"),
        stripe_from=Sourced(
            16.0 * KIB, "B", f"{MPI_CHOICE}: MV2_RAIL_SHARING_LARGE_MSG_THRESHOLD", "verified"
        ),
        pointer_query=QUERY,
        library="MVAPICH2-GDR",
        offers=MULTICAST_ONLY,
    )


def piz_daint() -> Design:
    """Piz Daint, CSCS, the XC50 nodes: one P100 each, Cray Aries."""
    port = giga(10.0, "injection of an Aries NIC", "remembered")
    lanes = "links of three lanes, NeSI description of the XC50 network"
    green = giga(5.25, f"{lanes}: 14 Gb/s per lane, 15 links in a chassis", "computed")
    black = giga(15.75, f"{lanes}: three links of 14 Gb/s lanes to each other chassis", "computed")
    blue = giga(4.6875, f"{lanes}: 12.5 Gb/s per lane, 10 links out of a router", "computed")
    hop = micros(0.1, "about 100 ns per Aries router", "remembered")
    inside = tree(
        "P100",
        1,
        Device("", CPU, "Xeon E5-2690 v3", 12),
        1,
        1,
        gpu_link=gpu_cable("P100"),
        pcie=PCIE3,
        nic_link=PCIE3,
        socket=QPI,
    )
    return Design(
        name="piz-daint",
        title="Piz Daint-like: one P100, Aries",
        source="NeSI description of the XC50 network; CSCS",
        nodes=Sourced(5704, "", "about 5,000 GPU nodes are published; 5,704 XC50", "remembered"),
        product="P100",
        inside=inside,
        fabric=Dragonfly(
            Wire(port.value),
            routers=(16, 6),
            per_router=4,
            outward=10,
            local=(Wire(green.value, hop.value), Wire(black.value, hop.value)),
            across=Wire(blue.value, hop.value),
        ),
        shape=(
            "NeSI: 4 nodes per router, 16 routers per chassis, 6 chassis per group",
            "published",
        ),
        wires={"in a chassis": green, "in a group": black, "between groups": blue},
        port=port,
        hop=hop,
        paths=_paths("P100", port, 1),
        reduction=reductions(GPUS["P100"]),
        memory=giga(68.3, "four DDR4-2133 channels", "remembered"),
        stripe_from=NEVER,
        pointer_query=QUERY,
        library="Cray MPICH",
    )


def comet() -> Design:
    """Comet, San Diego: the GPU nodes with four P100, FDR."""
    inside = tree(
        "P100",
        4,
        HASWELL,
        2,
        1,
        gpu_link=gpu_cable("P100"),
        pcie=PCIE3,
        nic_link=PCIE3,
        socket=QPI,
        socket_links=2,
    )
    return Design(
        name="comet",
        title="Comet-like: four P100, FDR",
        source=SDSC,
        nodes=Sourced(
            72, "", "72 GPU nodes, half of them with K80; zonca.dev, Compute at SDSC", "published"
        ),
        product="P100",
        inside=inside,
        fabric=FatTree(Wire(FDR.value), (72,), (18,), trunk=Wire(FDR.value, HOP.value)),
        shape=(
            f"{SDSC}: full bisection in a rack, 4:1 across racks; a rack, of 72 nodes, is one"
            " switch here",
            "published",
        ),
        port=FDR,
        hop=HOP,
        paths=_peers("P100", FDR),
        reduction=reductions(GPUS["P100"]),
        memory=giga(120.0, f"{SDSC}: memory bandwidth of a node", "published"),
        stripe_from=NEVER,
        pointer_query=QUERY,
        library="MVAPICH2-GDR",
        offers=MULTICAST_ONLY,
    )
