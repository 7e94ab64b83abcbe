"""NVIDIA's own servers with NVLink meshes: DGX-1 with P100 and with V100."""

from __future__ import annotations

from tuner.machines.common import (
    EDR,
    HOP,
    KIB,
    MULTICAST,
    NEVER,
    NOT_MEASURED,
    PCIE3,
    QPI,
    QUERY,
    SHARP,
    TACCL,
    TARTAN,
    copies,
    device_paths,
    edr_host,
    gpu_cable,
    host_paths,
    nvlink,
    reductions,
)
from tuner.machines.gpus import GPUS
from tuner.machines.machine_spec import Design
from tuner.machines.node_parts import Inside, nvlink_mesh, tree
from tuner.machines.provenance import Costs, Line, Sourced, giga, line, micros
from tuner.topology import CPU, CROSS_SOCKET, CUDA, NVLINK, Device
from tuner.topology.readers.fabrics import FatTree, Wire

# The hybrid cube mesh in TACCL's numbering: double links form a ring of eight.
DOUBLE = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
SINGLE = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))
RAILS = ("one rail per NIC and 18 nodes under a leaf of 36 ports, as later SuperPODs", "assumed")
GPU_DIRECT = Costs(
    (
        Line(
            0.0,
            micros(2.6, f"{TACCL}, DGX-1V and DGX-2", "verified"),
            giga(9.5, f"{TACCL}, DGX-1V and DGX-2: 105 us per MB", "verified"),
        ),
    ),
    Sourced(8.0 * KIB, "B", f"{NOT_MEASURED}; as MVAPICH2-GDR's MV2_GPUDIRECT_LIMIT", "assumed"),
)
NOT_ADJACENT = line(
    micros(24.0, f"{TARTAN}: 22 to 26 us, DGX-1P", "verified"),
    giga(9.19, f"{TARTAN}: GPUs that are not adjacent, DGX-1P", "verified"),
)
BROADWELL = Device("", CPU, "Xeon E5-2698 v4", 20)


def cube_mesh(product: str, double: int) -> Inside:
    """Two sockets, four PCIe switches with two GPUs and a NIC each; `double` bricks on the ring."""
    inside = tree(
        product,
        8,
        BROADWELL,
        2,
        4,
        gpu_link=gpu_cable(product),
        pcie=PCIE3,
        nic_link=PCIE3,
        socket=QPI,
        socket_links=2,
        fan=(2,),
    )
    bricks = dict.fromkeys(DOUBLE, double) | dict.fromkeys(SINGLE, 1)
    return nvlink_mesh(inside, bricks, nvlink(product))


def _dgx1(
    name: str,
    title: str,
    product: str,
    nodes: Sourced,
    double: int,
    *,
    near: Costs,
    far: Costs,
    network: Costs,
) -> Design:
    gpu = GPUS[product]
    return Design(
        name=name,
        title=title,
        source=f"{TARTAN}; {TACCL}; DGX-1 white paper WP-08437-001",
        nodes=nodes,
        product=product,
        inside=cube_mesh(product, double),
        fabric=FatTree(Wire(EDR.value), (18,), (18,), True, Wire(EDR.value, HOP.value)),
        shape=RAILS,
        port=EDR,
        hop=HOP,
        paths={
            **host_paths(edr_host(giga(11.0, "one EDR port, as on Summit", "assumed"))),
            **device_paths(gpu, near.lines[0].alpha, network, copies(gpu.pcie)),
            (NVLINK, CUDA): near,
            (CROSS_SOCKET, CUDA): far,
        },
        reduction=reductions(gpu),
        memory=giga(153.6, "two sockets with four DDR4-2400 channels each", "remembered"),
        stripe_from=NEVER,
        pointer_query=QUERY,
        library="MPI or NCCL",
        offers={"multicast": MULTICAST, "switch_reduction": SHARP},
    )


def dgx_1p() -> Design:
    """DGX-1 with P100: one brick per adjacent pair."""
    near = line(
        micros(9.7, f"{TARTAN}: adjacent pair, 9.1 to 10.3 us", "verified"),
        giga(18.41, f"{TARTAN}: adjacent pair", "verified"),
    )
    nodes = Sourced(124, "", "DGX SATURNV of 2016", "remembered")
    return _dgx1(
        "dgx-1p",
        "NVIDIA DGX-1, P100",
        "P100",
        nodes,
        1,
        near=near,
        far=NOT_ADJACENT,
        network=GPU_DIRECT.elsewhere(),
    )


def dgx_1v() -> Design:
    """DGX-1 with V100: two bricks on a ring of eight, one on the other edges."""
    near = line(
        micros(0.3, f"{TACCL}: 0.3 us at the scale of 1 MB", "verified"),
        giga(43.5, f"{TACCL}: 23 us per MB on a double link", "verified"),
    )
    nodes = Sourced(660, "", "DGX SATURNV of 2017", "remembered")
    return _dgx1(
        "dgx-1v",
        "NVIDIA DGX-1, V100",
        "V100",
        nodes,
        2,
        near=near,
        far=NOT_ADJACENT.elsewhere(),
        network=GPU_DIRECT,
    )
