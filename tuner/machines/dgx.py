"""NVIDIA's servers with NVLink meshes: DGX-1 with P100 and with V100."""

from __future__ import annotations

from tuner.machines.common import (
    EDR_RATE,
    KIB,
    MULTICAST_SOURCE,
    NEVER_STRIPED,
    NOT_MEASURED,
    PCIE3_LINK,
    POINTER_QUERY,
    QPI_LINK,
    SHARP_SOURCE,
    SWITCH_LATENCY,
    TACCL_SOURCE,
    TARTAN_SOURCE,
    device_path_costs,
    edr_host_costs,
    gpu_nvlink,
    gpu_pcie_link,
    host_path_costs,
    memcpy_costs,
    reduction_costs,
)
from tuner.machines.gpus import GPUS
from tuner.machines.machine_spec import MachineSpec
from tuner.machines.node_parts import NodeSpec, pcie_tree, with_nvlink_mesh
from tuner.machines.provenance import (
    SourcedPathCost,
    SourcedSegment,
    SourcedValue,
    gigabytes_per_s,
    microseconds,
    single_segment,
)
from tuner.topology import CPU, CROSS_SOCKET, CUDA, NVLINK, Device
from tuner.topology.readers.fabrics import FatTree, NetworkCable

# The hybrid cube mesh in TACCL's numbering: double links form a ring of eight.
DOUBLE_NVLINKS = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
SINGLE_NVLINKS = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))
RAIL_FABRIC_SOURCE = (
    "one rail per NIC and 18 nodes under a leaf of 36 ports, as later SuperPODs",
    "assumed",
)
GPUDIRECT_COSTS = SourcedPathCost(
    (
        SourcedSegment(
            0.0,
            microseconds(2.6, f"{TACCL_SOURCE}, DGX-1V and DGX-2", "verified"),
            gigabytes_per_s(9.5, f"{TACCL_SOURCE}, DGX-1V and DGX-2: 105 us per MB", "verified"),
        ),
    ),
    SourcedValue(
        8.0 * KIB, "B", f"{NOT_MEASURED}; as MVAPICH2-GDR's MV2_GPUDIRECT_LIMIT", "assumed"
    ),
)
NOT_ADJACENT_COSTS = single_segment(
    microseconds(24.0, f"{TARTAN_SOURCE}: 22 to 26 us, DGX-1P", "verified"),
    gigabytes_per_s(9.19, f"{TARTAN_SOURCE}: GPUs that are not adjacent, DGX-1P", "verified"),
)
BROADWELL = Device("", CPU, "Xeon E5-2698 v4", 20)


def cube_mesh(product: str, ring_nvlinks: int) -> NodeSpec:
    """Return a DGX-1 node: two sockets, four PCIe switches with two GPUs and a NIC each.

    product         product of the GPUs
    ring_nvlinks    number of NVLinks of each edge on the ring of eight
    """
    inside = pcie_tree(
        product,
        8,
        BROADWELL,
        2,
        4,
        gpu_link=gpu_pcie_link(product),
        pcie=PCIE3_LINK,
        nic_link=PCIE3_LINK,
        socket=QPI_LINK,
        socket_links=2,
        switch_fanout=(2,),
    )
    bricks = dict.fromkeys(DOUBLE_NVLINKS, ring_nvlinks) | dict.fromkeys(SINGLE_NVLINKS, 1)
    return with_nvlink_mesh(inside, bricks, gpu_nvlink(product))


def _dgx1(
    name: str,
    title: str,
    product: str,
    nodes: SourcedValue,
    double: int,
    *,
    near: SourcedPathCost,
    far: SourcedPathCost,
    network: SourcedPathCost,
) -> MachineSpec:
    gpu = GPUS[product]
    return MachineSpec(
        name=name,
        title=title,
        source=f"{TARTAN_SOURCE}; {TACCL_SOURCE}; DGX-1 white paper WP-08437-001",
        nodes=nodes,
        product=product,
        node_spec=cube_mesh(product, double),
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
            **host_path_costs(
                edr_host_costs(gigabytes_per_s(11.0, "one EDR port, as on Summit", "assumed"))
            ),
            **device_path_costs(gpu, near.segments[0].alpha, network, memcpy_costs(gpu.pcie_rate)),
            (NVLINK, CUDA): near,
            (CROSS_SOCKET, CUDA): far,
        },
        reduction=reduction_costs(gpu),
        memory_bandwidth=gigabytes_per_s(
            153.6, "two sockets with four DDR4-2400 channels each", "remembered"
        ),
        stripe_from=NEVER_STRIPED,
        pointer_query=POINTER_QUERY,
        library="MPI or NCCL",
        capabilities={"multicast": MULTICAST_SOURCE, "switch_reduction": SHARP_SOURCE},
    )


def dgx_1p() -> MachineSpec:
    """Return DGX-1 with P100: one NVLink per adjacent pair."""
    near = single_segment(
        microseconds(9.7, f"{TARTAN_SOURCE}: adjacent pair, 9.1 to 10.3 us", "verified"),
        gigabytes_per_s(18.41, f"{TARTAN_SOURCE}: adjacent pair", "verified"),
    )
    nodes = SourcedValue(124, "", "DGX SATURNV of 2016", "remembered")
    return _dgx1(
        "dgx-1p",
        "NVIDIA DGX-1, P100",
        "P100",
        nodes,
        1,
        near=near,
        far=NOT_ADJACENT_COSTS,
        network=GPUDIRECT_COSTS.as_assumed(),
    )


def dgx_1v() -> MachineSpec:
    """Return DGX-1 with V100: two NVLinks on a ring of eight, one on the other edges."""
    near = single_segment(
        microseconds(0.3, f"{TACCL_SOURCE}: 0.3 us at the scale of 1 MB", "verified"),
        gigabytes_per_s(43.5, f"{TACCL_SOURCE}: 23 us per MB on a double link", "verified"),
    )
    nodes = SourcedValue(660, "", "DGX SATURNV of 2017", "remembered")
    return _dgx1(
        "dgx-1v",
        "NVIDIA DGX-1, V100",
        "V100",
        nodes,
        2,
        near=near,
        far=NOT_ADJACENT_COSTS.as_assumed(),
        network=GPUDIRECT_COSTS,
    )
