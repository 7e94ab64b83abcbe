"""Servers whose GPUs are connected by NVSwitches: DGX-2, DGX A100, DGX H100, HGX H200."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.machines.common import (
    ABCI_SOURCE,
    EDR_RATE,
    INCLUDED_IN_ALPHA,
    KIB,
    MULTICAST_SOURCE,
    NCCL_SOURCE,
    NDR_RATE,
    NEVER_STRIPED,
    NVLS_SOURCE,
    PCIE3_LINK,
    POINTER_QUERY,
    SHARP_SOURCE,
    SWITCH_LATENCY,
    TACCL_SOURCE,
    device_path_costs,
    edr_host_costs,
    gpu_nvlink,
    gpu_pcie_link,
    host_path_costs,
    memcpy_costs,
    reduction_costs,
)
from tuner.machines.dgx import GPUDIRECT_COSTS, RAIL_FABRIC_SOURCE
from tuner.machines.gpus import GPUS
from tuner.machines.machine_spec import MachineSpec
from tuner.machines.node_parts import LinkType, NodeSpec, pcie_tree, with_nvswitch
from tuner.machines.provenance import (
    SourcedPathCost,
    SourcedSegment,
    SourcedValue,
    gigabytes_per_s,
    interpolated_segments,
    microseconds,
    segments_through_points,
    single_segment,
)
from tuner.topology import CPU, CUDA, NVLINK, Device
from tuner.topology.readers.fabrics import FatTree, NetworkCable

HDR_RATE = gigabytes_per_s(
    23.6, f"{ABCI_SOURCE}: 94.27 GB/s of host memory over 4 NICs", "computed"
)
RENDEZVOUS_FROM = SourcedValue(
    8.0 * KIB + 1, "B", f"{ABCI_SOURCE}: the time jumps between 8 and 16 KiB", "computed"
)
SUPERPOD_SOURCE = "DGX SuperPOD reference architecture"
NVSWITCH_ALPHA = microseconds(
    1.8725, "ASTRA-sim's validated HGX-H100: 936.25 ns per half link", "verified"
)
# osu_multi_lat with one pair: medians in microseconds by message size in bytes
HOST_TIMES_US = {0: 1.47, 8192: 4.24, 16384: 6.21, 65536: 9.62, 1048576: 28.94, 4194304: 97.56}
DEVICE_TIMES_US = {0: 3.29, 8192: 4.88, 16384: 7.61, 65536: 10.67, 1048576: 74.45, 4194304: 280.76}


def _seconds(points: Mapping[int, float]) -> dict[int, float]:
    return {size: time * 1e-6 for size, time in points.items()}


def ndr_device_costs() -> SourcedPathCost:
    """Return the cost of device memory over NDR.

    The rate is of later machines, the latencies are of an A100 machine.
    """
    why = f"{ABCI_SOURCE}; not measured on newer NICs"
    large = SourcedSegment(
        16 * KIB, microseconds(6.9, "as MVAPICH2-GDR on Lassen; not measured", "assumed"), NDR_RATE
    )
    return SourcedPathCost(
        interpolated_segments(microseconds(3.29, why, "assumed"), 16 * KIB, large), RENDEZVOUS_FROM
    )


def _eight_gpu_node(
    product: str, cpu: Device, pcie: SourcedValue, socket: LinkType, links: int, fan: int
) -> NodeSpec:
    """Return a node with 8 GPUs on two sockets; each PCIe switch has `fan` GPUs and NICs."""
    cable = LinkType("pcie", pcie)
    inside = pcie_tree(
        product,
        8,
        cpu,
        2,
        8,
        gpu_link=gpu_pcie_link(product),
        pcie=cable,
        nic_link=cable,
        socket=socket,
        socket_links=links,
        switch_fanout=(fan,),
    )
    return with_nvswitch(inside, GPUS[product].nvlinks, gpu_nvlink(product))


def dgx_2() -> MachineSpec:
    """Return DGX-2: 16 V100 on first-generation NVSwitches."""
    v100 = GPUS["V100"]
    brick = LinkType(
        "nvlink", gigabytes_per_s(125 / 6, f"{TACCL_SOURCE}: 8 us per MB over 6 bricks", "verified")
    )
    upi = LinkType("socket", gigabytes_per_s(20.8, "UPI at 10.4 GT/s, nominal", "remembered"))
    inside = pcie_tree(
        "V100",
        16,
        Device("", CPU, "Xeon Platinum 8168", 24),
        2,
        8,
        gpu_link=gpu_pcie_link("V100"),
        pcie=PCIE3_LINK,
        nic_link=PCIE3_LINK,
        socket=upi,
        socket_links=3,
        switch_fanout=(2, 2),
    )
    near = single_segment(
        microseconds(0.3, f"{TACCL_SOURCE}: 0.3 us at the scale of 1 MB", "verified"),
        gigabytes_per_s(125.0, f"{TACCL_SOURCE}: 8 us per MB", "verified"),
    )
    host = edr_host_costs(gigabytes_per_s(11.0, "one EDR port, as on Summit", "assumed"))
    return MachineSpec(
        name="dgx-2",
        title="NVIDIA DGX-2",
        source=f"{TACCL_SOURCE}; {NCCL_SOURCE}",
        nodes=SourcedValue(96, "", "DGX SuperPOD of 2019", "remembered"),
        product="V100",
        node_spec=with_nvswitch(inside, 6, brick),
        fabric=FatTree(
            NetworkCable(EDR_RATE.value),
            (18,),
            (18,),
            True,
            NetworkCable(EDR_RATE.value, SWITCH_LATENCY.value),
        ),
        fabric_source=RAIL_FABRIC_SOURCE,
        nic_rate=EDR_RATE,
        switch_latency=SWITCH_LATENCY,
        paths={
            **host_path_costs(host),
            (NVLINK, CUDA): near,
            **device_path_costs(
                v100, near.segments[0].alpha, GPUDIRECT_COSTS, memcpy_costs(v100.pcie_rate)
            ),
        },
        reduction=reduction_costs(v100),
        memory_bandwidth=gigabytes_per_s(
            256.0, "two sockets with six DDR4-2666 channels each", "remembered"
        ),
        stripe_from=NEVER_STRIPED,
        pointer_query=POINTER_QUERY,
        library="MPI or NCCL",
        capabilities={"multicast": MULTICAST_SOURCE, "switch_reduction": SHARP_SOURCE},
    )


def dgx_a100() -> MachineSpec:
    """Return DGX A100, with costs from ABCI.

    ABCI has nodes with the same GPUs and half of the NICs.
    """
    a100 = GPUS["A100"]
    xgmi = LinkType(
        "socket",
        gigabytes_per_s(16.0, f"{NCCL_SOURCE}: between AMD CPUs; taken for each link", "assumed"),
    )
    rome = Device("", CPU, "EPYC 7742", 64)
    near = single_segment(
        microseconds(3.2, f"{ABCI_SOURCE}: GPU-timed peer latency", "verified"),
        gigabytes_per_s(273.8, f"{ABCI_SOURCE}: median of 56 ordered pairs", "verified"),
    )
    host = SourcedPathCost(
        segments_through_points(_seconds(HOST_TIMES_US), ABCI_SOURCE, "computed"), RENDEZVOUS_FROM
    )
    device = SourcedPathCost(
        segments_through_points(_seconds(DEVICE_TIMES_US), ABCI_SOURCE, "computed"), RENDEZVOUS_FROM
    )
    return MachineSpec(
        name="dgx-a100",
        title="NVIDIA DGX A100",
        source=f"{ABCI_SOURCE}; {SUPERPOD_SOURCE}",
        nodes=SourcedValue(140, "", f"{SUPERPOD_SOURCE}: 7 units of 20 nodes", "remembered"),
        product="A100",
        node_spec=_eight_gpu_node("A100", rome, a100.pcie_rate, xgmi, 3, 2),
        fabric=FatTree(
            NetworkCable(HDR_RATE.value),
            (20,),
            (20,),
            True,
            NetworkCable(HDR_RATE.value, SWITCH_LATENCY.value),
        ),
        fabric_source=(
            f"{SUPERPOD_SOURCE}: one rail per NIC, 20 nodes under a leaf of 40 ports",
            "remembered",
        ),
        nic_rate=HDR_RATE,
        switch_latency=SWITCH_LATENCY,
        paths={
            **host_path_costs(host),
            (NVLINK, CUDA): near,
            **device_path_costs(a100, near.segments[0].alpha, device, memcpy_costs(a100.pcie_rate)),
        },
        reduction=reduction_costs(a100),
        memory_bandwidth=gigabytes_per_s(
            409.6, "two sockets with eight DDR4-3200 channels each", "remembered"
        ),
        stripe_from=NEVER_STRIPED,
        pointer_query=INCLUDED_IN_ALPHA,
        library="Open MPI with UCX",
        capabilities={"multicast": MULTICAST_SOURCE, "switch_reduction": SHARP_SOURCE},
    )


def _hopper(
    name: str, title: str, product: str, nodes: SourcedValue, source: str, peer: SourcedValue
) -> MachineSpec:
    gpu = GPUS[product]
    told = f"{NCCL_SOURCE}: between Sapphire Rapids; taken for each link"
    upi = LinkType("socket", gigabytes_per_s(22.0, told, "assumed"))
    near = single_segment(
        peer, gigabytes_per_s(370.8, f"{NCCL_SOURCE}: 20.6 GB/s for each of 18 links", "computed")
    )
    host = edr_host_costs(gigabytes_per_s(42.6, "as device memory over NDR", "assumed"))
    return MachineSpec(
        name=name,
        title=title,
        source=source,
        nodes=nodes,
        product=product,
        node_spec=_eight_gpu_node(
            product, Device("", CPU, "Xeon Platinum 8480C", 56), gpu.pcie_rate, upi, 3, 1
        ),
        fabric=FatTree(
            NetworkCable(NDR_RATE.value),
            (32,),
            (32,),
            True,
            NetworkCable(NDR_RATE.value, SWITCH_LATENCY.value),
        ),
        fabric_source=(
            f"{SUPERPOD_SOURCE}: units of 32 nodes, eight leaves each; 32 leaves and 16 spines for"
            " 128 nodes (32 spines with half of the cables here)",
            "published",
        ),
        nic_rate=NDR_RATE,
        switch_latency=SWITCH_LATENCY,
        paths={
            **host_path_costs(host),
            (NVLINK, CUDA): near,
            **device_path_costs(
                gpu, near.segments[0].alpha, ndr_device_costs(), memcpy_costs(gpu.pcie_rate)
            ),
        },
        reduction=reduction_costs(gpu),
        memory_bandwidth=gigabytes_per_s(
            614.4, "two sockets with eight DDR5-4800 channels each", "remembered"
        ),
        stripe_from=NEVER_STRIPED,
        pointer_query=POINTER_QUERY,
        library="MPI or NCCL",
        capabilities={
            "multicast": MULTICAST_SOURCE,
            "switch_reduction": SHARP_SOURCE,
            "nvswitch_reduction": NVLS_SOURCE,
        },
    )


def dgx_h100() -> MachineSpec:
    """Return DGX H100, whose third-generation NVSwitches can reduce."""
    nodes = SourcedValue(128, "", f"{SUPERPOD_SOURCE}: 4 units of 32 nodes", "published")
    source = f"{SUPERPOD_SOURCE}; {NCCL_SOURCE}; ASTRA-sim"
    return _hopper("dgx-h100", "NVIDIA DGX H100", "H100", nodes, source, NVSWITCH_ALPHA)


def hgx_h200() -> MachineSpec:
    """Return HGX H200 on the fabric of DGX H100.

    NVIDIA's MLPerf entry has two further NICs per node.
    """
    nodes = SourcedValue(
        128, "", f"{SUPERPOD_SOURCE}: 4 units of 32 nodes, as with H100", "assumed"
    )
    source = f"{SUPERPOD_SOURCE}; {NCCL_SOURCE}; MLPerf system description"
    return _hopper("hgx-h200", "HGX H200", "H200", nodes, source, NVSWITCH_ALPHA.as_assumed())
