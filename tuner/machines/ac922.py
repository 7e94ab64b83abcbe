"""IBM AC922 nodes, POWER9 and V100: Summit and Sierra.

Costs are fits to ping-pongs on Summit (Spectrum MPI) and on Lassen (MVAPICH2-GDR), a smaller
machine of Sierra's nodes: raw data of the BenchPress study (arXiv 2010.10378).
"""

from __future__ import annotations

from tuner.machines.common import (
    EAGER_LIMIT,
    INCLUDED_IN_ALPHA,
    KIB,
    MULTICAST_SOURCE,
    SHARP_SOURCE,
    SWITCH_LATENCY,
    device_path_costs,
    host_path_costs,
    reduction_costs,
)
from tuner.machines.gpus import GPUS
from tuner.machines.machine_spec import MachineSpec, PathKey
from tuner.machines.node_parts import DeviceLink, LinkType, NodeSpec, pcie_tree, with_nvlink_mesh
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
from tuner.topology import CPU, CROSS_SOCKET, CUDA, HOST, NODE, NVLINK, Device
from tuner.topology.readers.fabrics import FatTree, NetworkCable

FITS_SOURCE = "fit to ping-pongs of the BenchPress study"
OLCF_GUIDE = "OLCF user guide"
NIC_RATE = gigabytes_per_s(11.5, f"{OLCF_GUIDE}: 23 GB/s injection over two rails", "published")
PCIE4_X8_LINK = LinkType(
    "pcie", gigabytes_per_s(14.0, "PCIe 4.0 x8 to each half of a shared adapter", "remembered")
)
X_BUS_LINK = LinkType(
    "socket", gigabytes_per_s(64.0, "X-bus, 4 bytes at 16 GT/s, WikiChip", "published")
)
STRIPE_FROM = SourcedValue(
    16.0 * KIB,
    "B",
    "BenchPress study, Summit: three senders on one socket together reach 19 to 21 GB/s, one 11",
    "computed",
)
MEMORY_BANDWIDTH = gigabytes_per_s(340.0, "eight DDR4 channels per socket", "remembered")


def _node_spec(per_socket: int, brick: SourcedValue, bricks: int) -> NodeSpec:
    """Return a node whose GPUs on one socket are linked to each other and to their CPU.

    per_socket  number of GPUs on each of the two sockets
    brick       bandwidth of one NVLink
    bricks      number of NVLinks of each such link
    """
    nvlink = LinkType("nvlink", brick)
    power9 = Device("", CPU, "POWER9", 22)
    found = pcie_tree(
        "V100",
        2 * per_socket,
        power9,
        2,
        2,
        gpu_link=nvlink,
        pcie=PCIE4_X8_LINK,
        nic_link=PCIE4_X8_LINK,
        socket=X_BUS_LINK,
    )
    edges = tuple(
        DeviceLink(e.a, e.b, e.link_type, bricks) if e.link_type.kind == "nvlink" else e
        for e in found.device_links
    )
    pairs = {
        (a, b): bricks
        for first in (0, per_socket)
        for a in range(first, first + per_socket)
        for b in range(a + 1, first + per_socket)
    }
    return with_nvlink_mesh(NodeSpec(found.devices, edges), pairs, nvlink)


def _fit(
    library: str, small: float, start: int, alpha: float, rate: float
) -> tuple[SourcedSegment, ...]:
    """Return a fit: constant for the smallest messages, a line from `start` bytes on.

    library     MPI library that was measured
    small       microseconds of the smallest message
    start       bytes from which the fitted line holds; below it a straight line joins the two
    alpha       microseconds of the fitted line
    rate        GB/s of the fitted line
    """
    told = f"{FITS_SOURCE}, {library}"
    large = SourcedSegment(
        start, microseconds(alpha, told, "computed"), gigabytes_per_s(rate, told, "computed")
    )
    return interpolated_segments(microseconds(small, told, "computed"), start, large)


def _paths(
    library: str,
    nvlink: SourcedPathCost,
    cross: SourcedPathCost,
    network: SourcedPathCost,
    host: SourcedPathCost,
    copy: SourcedPathCost,
) -> dict[PathKey, SourcedPathCost]:
    v100 = GPUS["V100"]
    alpha = nvlink.segments[0].alpha
    return {
        **host_path_costs(host),
        **device_path_costs(v100, alpha, network, copy),
        (NVLINK, CUDA): nvlink,
        (CROSS_SOCKET, CUDA): cross,
    }


def _summit_host_costs() -> dict[PathKey, SourcedPathCost]:
    """Return the costs of host messages within a node: on one socket and between sockets.

    Messages on one socket are between cores of different pairs.
    """
    told = "medians of ping-pongs of the BenchPress study, Spectrum MPI on Summit"

    def measured(small: float, below: float, points: dict[int, float]) -> SourcedPathCost:
        """Return costs from microseconds of the smallest message and GB/s below 16 KiB.

        points    seconds by message size, from 16 KiB on
        """
        first = SourcedSegment(
            0.0, microseconds(small, told, "verified"), gigabytes_per_s(below, told, "computed")
        )
        return SourcedPathCost(
            (first, *segments_through_points(points, told, "computed")), EAGER_LIMIT
        )

    near = {16 * KIB: 4.05e-6, 512 * KIB: 37.1e-6}
    far = {16 * KIB: 7.03e-6, 128 * KIB: 27.7e-6, 512 * KIB: 83.2e-6}
    return {(NODE, HOST): measured(0.5, 8.0, near), (CROSS_SOCKET, HOST): measured(0.95, 4.1, far)}


def summit() -> MachineSpec:
    """Return Summit (Oak Ridge): 6 GPUs per node, Spectrum MPI."""
    library = "Spectrum MPI on Summit"
    flat = ((17.4, 16.6, 51.0), (18.8, 18.0, 46.0))  # first NVLink, then across sockets
    told = f"{FITS_SOURCE}, {library}"
    near, cross = (
        SourcedPathCost(
            (
                SourcedSegment(
                    0.0,
                    microseconds(small, told, "computed"),
                    gigabytes_per_s(rate, told, "computed"),
                ),
                SourcedSegment(
                    16 * KIB,
                    microseconds(alpha, told, "computed"),
                    gigabytes_per_s(rate, told, "computed"),
                ),
            )
        )
        for small, alpha, rate in flat
    )
    large = SourcedSegment(
        512 * KIB,
        microseconds(60.6, f"{told}: 105.8 us at 512 KiB, all pairs alike", "computed"),
        gigabytes_per_s(11.6, f"{told}: as below 512 KiB, nothing larger was measured", "assumed"),
    )
    network = SourcedPathCost((*_fit(library, 6.2, 16 * KIB, 8.0, 11.6), large), EAGER_LIMIT)
    host = SourcedPathCost(_fit(library, 1.5, 16 * KIB, 6.2, 11.0), EAGER_LIMIT)
    copy = single_segment(
        microseconds(11.1, told, "computed"), gigabytes_per_s(48.5, told, "computed")
    )
    brick = gigabytes_per_s(25.0, f"{OLCF_GUIDE}: 50 GB/s over two bricks", "published")
    return MachineSpec(
        name="summit",
        title="Summit, IBM AC922",
        source=f"{OLCF_GUIDE}; {FITS_SOURCE}",
        nodes=SourcedValue(4608, "", "EE Times, Inside the Summit supercomputer", "published"),
        product="V100",
        node_spec=_node_spec(3, brick, 2),
        fabric=FatTree(
            NetworkCable(NIC_RATE.value),
            (18,),
            (18,),
            True,
            NetworkCable(NIC_RATE.value, SWITCH_LATENCY.value),
        ),
        fabric_source=(
            "EE Times: 256 racks of 18 nodes with two switches each, 18 racks of core switches"
            " (one here); non-blocking, OLCF user guide",
            "published",
        ),
        nic_rate=NIC_RATE,
        switch_latency=SWITCH_LATENCY,
        paths=_paths(library, near, cross, network, host, copy) | _summit_host_costs(),
        reduction=reduction_costs(GPUS["V100"]),
        memory_bandwidth=MEMORY_BANDWIDTH,
        stripe_from=STRIPE_FROM,
        pointer_query=INCLUDED_IN_ALPHA,
        library="Spectrum MPI",
        capabilities={"multicast": MULTICAST_SOURCE, "switch_reduction": SHARP_SOURCE},
    )


def sierra() -> MachineSpec:
    """Return Sierra (Livermore): 4 GPUs per node, MVAPICH2-GDR as measured on Lassen."""
    library = "MVAPICH2-GDR on Lassen"
    told = f"{FITS_SOURCE}, {library}"

    def ipc(small: float, below: float, why: str, alpha: float, rate: float) -> SourcedPathCost:
        """Return the costs of two protocols; this build switches to CUDA IPC at 256 KiB.

        small, below    microseconds and GB/s below 256 KiB
        why             source of `lower_value`
        alpha, rate     microseconds and GB/s from 256 KiB on
        """
        return SourcedPathCost(
            (
                SourcedSegment(
                    0.0,
                    microseconds(small, told, "computed"),
                    gigabytes_per_s(below, why, "computed"),
                ),
                SourcedSegment(
                    256 * KIB,
                    microseconds(alpha, told, "computed"),
                    gigabytes_per_s(rate, told, "computed"),
                ),
            )
        )

    near = ipc(0.73, 17.6, f"{told}: the two protocols would meet at 330 KiB", 15.0, 68.0)
    cross = ipc(1.1, 4.4, f"{told}: 30.9 us at 128 KiB", 16.0, 43.0)
    jump = SourcedSegment(
        4 * KIB,
        microseconds(6.17, f"{told}: 6.57 us at 4 KiB", "computed"),
        gigabytes_per_s(10.2, f"{told}: joins 4 KiB with the line from 16 KiB", "computed"),
    )
    network = SourcedPathCost(
        (
            SourcedSegment(
                0.0,
                microseconds(2.15, told, "computed"),
                gigabytes_per_s(2.03, f"{told}: 3.16 us at 2 KiB", "computed"),
            ),
            jump,
            SourcedSegment(
                16 * KIB,
                microseconds(6.9, told, "computed"),
                gigabytes_per_s(18.6, told, "computed"),
            ),
        ),
        SourcedValue(4.0 * KIB, "B", "the measured time jumps there", "computed"),
    )
    host = SourcedPathCost(_fit(library, 1.6, 16 * KIB, 6.8, 20.0), EAGER_LIMIT)
    copy = single_segment(
        microseconds(12.6, told, "computed"), gigabytes_per_s(71.0, told, "computed")
    )
    brick = gigabytes_per_s(25.0, "75 GB/s over three bricks", "remembered")
    return MachineSpec(
        name="sierra",
        title="Sierra, IBM AC922",
        source=FITS_SOURCE,
        nodes=SourcedValue(4320, "", "4,320 nodes", "remembered"),
        product="V100",
        node_spec=_node_spec(2, brick, 3),
        fabric=FatTree(
            NetworkCable(NIC_RATE.value),
            (18,),
            (9,),
            True,
            NetworkCable(NIC_RATE.value, SWITCH_LATENCY.value),
        ),
        fabric_source=(
            "fat tree of EDR switches (IBM J. Res. Dev., networks of Summit and Sierra); its"
            " 2:1 taper is common knowledge",
            "remembered",
        ),
        nic_rate=NIC_RATE,
        switch_latency=SWITCH_LATENCY,
        paths=_paths(library, near, cross, network, host, copy),
        reduction=reduction_costs(GPUS["V100"]),
        memory_bandwidth=MEMORY_BANDWIDTH,
        stripe_from=SourcedValue(
            16.0 * KIB,
            "B",
            "MVAPICH2-GDR user guide: MV2_RAIL_SHARING_LARGE_MSG_THRESHOLD",
            "verified",
        ),
        pointer_query=INCLUDED_IN_ALPHA,
        library="MVAPICH2-GDR",
        capabilities={"multicast": MULTICAST_SOURCE, "switch_reduction": SHARP_SOURCE},
    )
