"""Clusters without NVLink (RI2, KESCH, Piz Daint, Comet); few of their costs were measured."""

from __future__ import annotations

from tuner.machines.common import (
    EDR_RATE,
    FDR_RATE,
    KIB,
    MULTICAST_SOURCE,
    MVAPICH2_GUIDE,
    NCCL_SOURCE,
    NEVER_STRIPED,
    PCIE3_LINK,
    POINTER_QUERY,
    QPI_LINK,
    SWITCH_LATENCY,
    device_path_costs,
    edr_host_costs,
    gpu_pcie_link,
    gpudirect_then_staged_costs,
    host_path_costs,
    memcpy_costs,
    reduction_costs,
)
from tuner.machines.gpus import GPUS
from tuner.machines.machine_spec import MachineSpec, PathKey
from tuner.machines.node_parts import pcie_tree
from tuner.machines.provenance import (
    SourcedPathCost,
    SourcedValue,
    gigabytes_per_s,
    microseconds,
    single_segment,
)
from tuner.topology import CPU, CROSS_SOCKET, CUDA, PCIE, Device
from tuner.topology.readers.fabrics import Dragonfly, FatTree, NetworkCable, OneSwitch

SDSC_GUIDE = "SDSC user guide"
MULTICAST_ONLY = {"multicast": MULTICAST_SOURCE}
PEER_SOURCE = "adjacent GPUs on DGX-1P, Tartan, 9.1 to 10.3 us; not measured over PCIe"
PCIE_OVERHEAD_SOURCE = (
    f"{NCCL_SOURCE}: PCIe 3.0 x16 less its peer-to-peer overhead on Intel CPUs, 12 / 1.2"
)
NOT_ADJACENT_SOURCE = "GPUs that are not adjacent on DGX-1P, Tartan, raw data"
HASWELL = Device("", CPU, "Xeon E5-2680 v3", 12)


def _paths(product: str, port: SourcedValue, sockets: int = 2) -> dict[PathKey, SourcedPathCost]:
    gpu = GPUS[product]
    return {
        **host_path_costs(edr_host_costs(port), sockets),
        **device_path_costs(
            gpu,
            microseconds(9.7, PEER_SOURCE, "assumed"),
            gpudirect_then_staged_costs(port),
            memcpy_costs(gpu.pcie_rate),
        ),
    }


def _multi_gpu_paths(product: str, port: SourcedValue) -> dict[PathKey, SourcedPathCost]:
    """Return the costs of paths with several GPUs on one socket and on different sockets."""
    near = single_segment(
        microseconds(9.7, PEER_SOURCE, "assumed"),
        gigabytes_per_s(10.0, PCIE_OVERHEAD_SOURCE, "computed"),
    )
    far = single_segment(
        microseconds(24.0, NOT_ADJACENT_SOURCE, "assumed"),
        gigabytes_per_s(9.19, NOT_ADJACENT_SOURCE, "assumed"),
    )
    return {**_paths(product, port), (PCIE, CUDA): near, (CROSS_SOCKET, CUDA): far}


def ri2() -> MachineSpec:
    """Return RI2 (Ohio State University): one K80 card per node, EDR."""
    broadwell = Device("", CPU, "Xeon E5-2680 v4", 14)
    inside = pcie_tree(
        "K80",
        2,
        broadwell,
        2,
        1,
        gpu_link=gpu_pcie_link("K80"),
        pcie=PCIE3_LINK,
        nic_link=PCIE3_LINK,
        socket=QPI_LINK,
        socket_links=2,
        switch_fanout=(2,),
        nic_level=1,
    )
    paths = _multi_gpu_paths("K80", EDR_RATE)
    del paths[CROSS_SOCKET, CUDA]  # both GPUs are on one card
    return MachineSpec(
        name="ri2",
        title="RI2-like: one K80 card, EDR",
        source=f"MVAPICH2 tuning tables; {NCCL_SOURCE}",
        nodes=SourcedValue(
            32, "", "MVAPICH2 tuning tables have rows for up to 32 nodes", "verified"
        ),
        product="K80",
        node_spec=inside,
        fabric=OneSwitch(NetworkCable(EDR_RATE.value)),
        fabric_source=("32 nodes fit on one switch of 36 ports", "assumed"),
        nic_rate=EDR_RATE,
        switch_latency=SWITCH_LATENCY,
        paths=paths,
        reduction=reduction_costs(GPUS["K80"]),
        memory_bandwidth=gigabytes_per_s(
            153.6, "two sockets with four DDR4-2400 channels each", "remembered"
        ),
        stripe_from=NEVER_STRIPED,
        pointer_query=POINTER_QUERY,
        library="MVAPICH2-GDR",
        capabilities=MULTICAST_ONLY,
    )


def kesch() -> MachineSpec:
    """Return KESCH (MeteoSwiss): 8 K80 cards (16 GPUs) per node, two FDR ports."""
    cpu = Device("", CPU, "Xeon E5-2690 v3", 12)
    inside = pcie_tree(
        "K80",
        16,
        cpu,
        2,
        2,
        gpu_link=gpu_pcie_link("K80"),
        pcie=PCIE3_LINK,
        nic_link=PCIE3_LINK,
        socket=QPI_LINK,
        socket_links=2,
        switch_fanout=(2, 2),
        nic_level=2,
    )
    return MachineSpec(
        name="kesch",
        title="KESCH-like: 16 K80, two FDR",
        source="12 nodes, 96 K80 cards, 24 Haswell CPUs, published by CSCS",
        nodes=SourcedValue(12, "", "12 nodes, 96 K80 cards, 24 Haswell CPUs", "published"),
        product="K80",
        node_spec=inside,
        fabric=OneSwitch(NetworkCable(FDR_RATE.value)),
        fabric_source=("24 ports fit on one switch of 36", "assumed"),
        nic_rate=FDR_RATE,
        switch_latency=SWITCH_LATENCY,
        paths=_multi_gpu_paths("K80", FDR_RATE),
        reduction=reduction_costs(GPUS["K80"]),
        memory_bandwidth=gigabytes_per_s(
            136.5, "two sockets with four DDR4-2133 channels each", "remembered"
        ),
        stripe_from=SourcedValue(
            16.0 * KIB, "B", f"{MVAPICH2_GUIDE}: MV2_RAIL_SHARING_LARGE_MSG_THRESHOLD", "verified"
        ),
        pointer_query=POINTER_QUERY,
        library="MVAPICH2-GDR",
        capabilities=MULTICAST_ONLY,
    )


def piz_daint() -> MachineSpec:
    """Return the XC50 nodes of Piz Daint (CSCS): one P100 each, Cray Aries."""
    port = gigabytes_per_s(10.0, "injection of an Aries NIC", "remembered")
    lanes = "links of three lanes, NeSI description of the XC50 network"
    green = gigabytes_per_s(5.25, f"{lanes}: 14 Gb/s per lane, 15 links in a chassis", "computed")
    black = gigabytes_per_s(
        15.75, f"{lanes}: three links of 14 Gb/s lanes to each other chassis", "computed"
    )
    blue = gigabytes_per_s(
        4.6875, f"{lanes}: 12.5 Gb/s per lane, 10 links out of a router", "computed"
    )
    hop = microseconds(0.1, "about 100 ns per Aries router", "remembered")
    inside = pcie_tree(
        "P100",
        1,
        Device("", CPU, "Xeon E5-2690 v3", 12),
        1,
        1,
        gpu_link=gpu_pcie_link("P100"),
        pcie=PCIE3_LINK,
        nic_link=PCIE3_LINK,
        socket=QPI_LINK,
    )
    return MachineSpec(
        name="piz-daint",
        title="Piz Daint-like: one P100, Aries",
        source="NeSI description of the XC50 network; CSCS",
        nodes=SourcedValue(
            5704, "", "about 5,000 GPU nodes are published; 5,704 XC50", "remembered"
        ),
        product="P100",
        node_spec=inside,
        fabric=Dragonfly(
            NetworkCable(port.value),
            group_shape=(16, 6),
            nodes_per_router=4,
            global_ports=10,
            local_cables=(
                NetworkCable(green.value, hop.value),
                NetworkCable(black.value, hop.value),
            ),
            global_cable=NetworkCable(blue.value, hop.value),
        ),
        fabric_source=(
            "NeSI: 4 nodes per router, 16 routers per chassis, 6 chassis per group",
            "published",
        ),
        switch_link_rates={"in a chassis": green, "in a group": black, "between groups": blue},
        nic_rate=port,
        switch_latency=hop,
        paths=_paths("P100", port, 1),
        reduction=reduction_costs(GPUS["P100"]),
        memory_bandwidth=gigabytes_per_s(68.3, "four DDR4-2133 channels", "remembered"),
        stripe_from=NEVER_STRIPED,
        pointer_query=POINTER_QUERY,
        library="Cray MPICH",
    )


def comet() -> MachineSpec:
    """Return the GPU nodes of Comet (San Diego) with four P100, FDR."""
    inside = pcie_tree(
        "P100",
        4,
        HASWELL,
        2,
        1,
        gpu_link=gpu_pcie_link("P100"),
        pcie=PCIE3_LINK,
        nic_link=PCIE3_LINK,
        socket=QPI_LINK,
        socket_links=2,
    )
    return MachineSpec(
        name="comet",
        title="Comet-like: four P100, FDR",
        source=SDSC_GUIDE,
        nodes=SourcedValue(
            72, "", "72 GPU nodes, half of them with K80; zonca.dev, Compute at SDSC", "published"
        ),
        product="P100",
        node_spec=inside,
        fabric=FatTree(
            NetworkCable(FDR_RATE.value),
            (72,),
            (18,),
            uplink_cable=NetworkCable(FDR_RATE.value, SWITCH_LATENCY.value),
        ),
        fabric_source=(
            f"{SDSC_GUIDE}: full bisection in a rack, 4:1 across racks; a rack, of 72 nodes, is one"
            " switch here",
            "published",
        ),
        nic_rate=FDR_RATE,
        switch_latency=SWITCH_LATENCY,
        paths=_multi_gpu_paths("P100", FDR_RATE),
        reduction=reduction_costs(GPUS["P100"]),
        memory_bandwidth=gigabytes_per_s(
            120.0, f"{SDSC_GUIDE}: memory bandwidth of a node", "published"
        ),
        stripe_from=NEVER_STRIPED,
        pointer_query=POINTER_QUERY,
        library="MVAPICH2-GDR",
        capabilities=MULTICAST_ONLY,
    )
