"""IBM AC922 nodes, POWER9 and V100: Summit and Sierra.

Costs are fits to ping-pongs on Summit (Spectrum MPI) and on Lassen (MVAPICH2-GDR), a smaller
machine of Sierra's nodes: raw data of the BenchPress study (arXiv 2010.10378).
"""

from __future__ import annotations

from tuner.machines.common import (
    CONTAINED,
    EAGER,
    HOP,
    KIB,
    MULTICAST,
    SHARP,
    device_paths,
    host_paths,
    reductions,
)
from tuner.machines.gpus import GPUS
from tuner.machines.machine_spec import Design, PathKey
from tuner.machines.node_parts import Cable, Edge, Inside, nvlink_mesh, tree
from tuner.machines.provenance import Costs, Line, Sourced, giga, joined, line, micros, through
from tuner.topology import CPU, CROSS_SOCKET, CUDA, HOST, NODE, NVLINK, Device
from tuner.topology.readers.fabrics import FatTree, Wire

FITS = "fit to ping-pongs of the BenchPress study"
GUIDE = "OLCF user guide"
PORT = giga(11.5, f"{GUIDE}: 23 GB/s injection over two rails", "published")
PCIE4_X8 = Cable("pcie", giga(14.0, "PCIe 4.0 x8 to each half of a shared adapter", "remembered"))
X_BUS = Cable("socket", giga(64.0, "X-bus, 4 bytes at 16 GT/s, WikiChip", "published"))
STRIPED = Sourced(
    16.0 * KIB,
    "B",
    "BenchPress study, Summit: three senders on one socket together reach 19 to 21 GB/s, one 11",
    "computed",
)
MEMORY = giga(340.0, "eight DDR4 channels per socket", "remembered")


def _inside(per_socket: int, brick: Sourced, bricks: int) -> Inside:
    """GPUs of one socket joined with one another and with their CPU by so many bricks."""
    nvlink = Cable("nvlink", brick)
    power9 = Device("", CPU, "POWER9", 22)
    found = tree(
        "V100",
        2 * per_socket,
        power9,
        2,
        2,
        gpu_link=nvlink,
        pcie=PCIE4_X8,
        nic_link=PCIE4_X8,
        socket=X_BUS,
    )
    edges = tuple(
        Edge(e.a, e.b, e.cable, bricks) if e.cable.kind == "nvlink" else e for e in found.edges
    )
    pairs = {
        (a, b): bricks
        for first in (0, per_socket)
        for a in range(first, first + per_socket)
        for b in range(a + 1, first + per_socket)
    }
    return nvlink_mesh(Inside(found.devices, edges), pairs, nvlink)


def _fit(library: str, small: float, start: int, alpha: float, rate: float) -> tuple[Line, ...]:
    """Microseconds and GB/s as fitted: constant for small messages, a line from `start` bytes."""
    told = f"{FITS}, {library}"
    large = Line(start, micros(alpha, told, "computed"), giga(rate, told, "computed"))
    return joined(micros(small, told, "computed"), start, large)


def _paths(
    library: str, nvlink: Costs, cross: Costs, network: Costs, host: Costs, copy: Costs
) -> dict[PathKey, Costs]:
    v100 = GPUS["V100"]
    alpha = nvlink.lines[0].alpha
    return {
        **host_paths(host),
        **device_paths(v100, alpha, network, copy),
        (NVLINK, CUDA): nvlink,
        (CROSS_SOCKET, CUDA): cross,
    }


def _inside_summit() -> dict[PathKey, Costs]:
    """Host messages within a node, between cores of different pairs and between sockets."""
    told = "medians of ping-pongs of the BenchPress study, Spectrum MPI on Summit"

    def measured(small: float, below: float, points: dict[int, float]) -> Costs:
        """Microseconds of the smallest message, GB/s below 16 KiB, seconds from there on."""
        first = Line(0.0, micros(small, told, "verified"), giga(below, told, "computed"))
        return Costs((first, *through(points, told, "computed")), EAGER)

    near = {16 * KIB: 4.05e-6, 512 * KIB: 37.1e-6}
    far = {16 * KIB: 7.03e-6, 128 * KIB: 27.7e-6, 512 * KIB: 83.2e-6}
    return {(NODE, HOST): measured(0.5, 8.0, near), (CROSS_SOCKET, HOST): measured(0.95, 4.1, far)}


def summit() -> Design:
    """Summit, Oak Ridge: 6 GPUs per node, Spectrum MPI."""
    library = "Spectrum MPI on Summit"
    flat = ((17.4, 16.6, 51.0), (18.8, 18.0, 46.0))  # NVLink and cross socket
    told = f"{FITS}, {library}"
    near, cross = (
        Costs(
            (
                Line(0.0, micros(small, told, "computed"), giga(rate, told, "computed")),
                Line(16 * KIB, micros(alpha, told, "computed"), giga(rate, told, "computed")),
            )
        )
        for small, alpha, rate in flat
    )
    large = Line(
        512 * KIB,
        micros(60.6, f"{told}: 105.8 us at 512 KiB, all pairs alike", "computed"),
        giga(11.6, f"{told}: as below 512 KiB, nothing larger was measured", "assumed"),
    )
    network = Costs((*_fit(library, 6.2, 16 * KIB, 8.0, 11.6), large), EAGER)
    host = Costs(_fit(library, 1.5, 16 * KIB, 6.2, 11.0), EAGER)
    copy = line(micros(11.1, told, "computed"), giga(48.5, told, "computed"))
    brick = giga(25.0, f"{GUIDE}: 50 GB/s over two bricks", "published")
    return Design(
        name="summit",
        title="Summit, IBM AC922",
        source=f"{GUIDE}; {FITS}",
        nodes=Sourced(4608, "", "EE Times, Inside the Summit supercomputer", "published"),
        product="V100",
        inside=_inside(3, brick, 2),
        fabric=FatTree(Wire(PORT.value), (18,), (18,), True, Wire(PORT.value, HOP.value)),
        shape=(
            "EE Times: 256 racks of 18 nodes with two switches each, 18 racks of core switches"
            " (one here); non-blocking, OLCF user guide",
            "published",
        ),
        port=PORT,
        hop=HOP,
        paths=_paths(library, near, cross, network, host, copy) | _inside_summit(),
        reduction=reductions(GPUS["V100"]),
        memory=MEMORY,
        stripe_from=STRIPED,
        pointer_query=CONTAINED,
        library="Spectrum MPI",
        offers={"multicast": MULTICAST, "switch_reduction": SHARP},
    )


def sierra() -> Design:
    """Sierra, Livermore: 4 GPUs per node, MVAPICH2-GDR as measured on Lassen."""
    library = "MVAPICH2-GDR on Lassen"
    told = f"{FITS}, {library}"

    def ipc(small: float, below: float, why: str, alpha: float, rate: float) -> Costs:
        """Two protocols, the second from 256 KiB, where this build switches to CUDA IPC."""
        return Costs(
            (
                Line(0.0, micros(small, told, "computed"), giga(below, why, "computed")),
                Line(256 * KIB, micros(alpha, told, "computed"), giga(rate, told, "computed")),
            )
        )

    near = ipc(0.73, 17.6, f"{told}: the two protocols would meet at 330 KiB", 15.0, 68.0)
    cross = ipc(1.1, 4.4, f"{told}: 30.9 us at 128 KiB", 16.0, 43.0)
    jump = Line(
        4 * KIB,
        micros(6.17, f"{told}: 6.57 us at 4 KiB", "computed"),
        giga(10.2, f"{told}: joins 4 KiB with the line from 16 KiB", "computed"),
    )
    network = Costs(
        (
            Line(
                0.0,
                micros(2.15, told, "computed"),
                giga(2.03, f"{told}: 3.16 us at 2 KiB", "computed"),
            ),
            jump,
            Line(16 * KIB, micros(6.9, told, "computed"), giga(18.6, told, "computed")),
        ),
        Sourced(4.0 * KIB, "B", "the measured time jumps there", "computed"),
    )
    host = Costs(_fit(library, 1.6, 16 * KIB, 6.8, 20.0), EAGER)
    copy = line(micros(12.6, told, "computed"), giga(71.0, told, "computed"))
    brick = giga(25.0, "75 GB/s over three bricks", "remembered")
    return Design(
        name="sierra",
        title="Sierra, IBM AC922",
        source=FITS,
        nodes=Sourced(4320, "", "4,320 nodes", "remembered"),
        product="V100",
        inside=_inside(2, brick, 3),
        fabric=FatTree(Wire(PORT.value), (18,), (9,), True, Wire(PORT.value, HOP.value)),
        shape=(
            "fat tree of EDR switches (IBM J. Res. Dev., networks of Summit and Sierra); its"
            " 2:1 taper is common knowledge",
            "remembered",
        ),
        port=PORT,
        hop=HOP,
        paths=_paths(library, near, cross, network, host, copy),
        reduction=reductions(GPUS["V100"]),
        memory=MEMORY,
        stripe_from=Sourced(
            16.0 * KIB,
            "B",
            "MVAPICH2-GDR user guide: MV2_RAIL_SHARING_LARGE_MSG_THRESHOLD",
            "verified",
        ),
        pointer_query=CONTAINED,
        library="MVAPICH2-GDR",
        offers={"multicast": MULTICAST, "switch_reduction": SHARP},
    )
