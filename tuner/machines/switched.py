"""Servers whose GPUs meet in NVSwitches: DGX-2, DGX A100, DGX H100, HGX H200."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.machines.common import (
    ABCI,
    CONTAINED,
    EDR,
    HOP,
    KIB,
    MULTICAST,
    NCCL,
    NDR,
    NEVER,
    NVLS,
    PCIE3,
    QUERY,
    SHARP,
    TACCL,
    copies,
    device_paths,
    edr_host,
    gpu_cable,
    host_paths,
    nvlink,
    reductions,
)
from tuner.machines.dgx import GPU_DIRECT, RAILS
from tuner.machines.gpus import GPUS
from tuner.machines.machine_spec import Design
from tuner.machines.node_parts import Cable, Inside, nvswitched, tree
from tuner.machines.provenance import Costs, Line, Sourced, giga, joined, line, micros, through
from tuner.topology import CPU, CUDA, NVLINK, Device
from tuner.topology.readers.fabrics import FatTree, Wire

HDR = giga(23.6, f"{ABCI}: 94.27 GB/s of host memory over 4 NICs", "computed")
RNDV = Sourced(8.0 * KIB + 1, "B", f"{ABCI}: the time jumps between 8 and 16 KiB", "computed")
SUPERPOD = "DGX SuperPOD reference architecture"
NVSWITCH_ALPHA = micros(
    1.8725, "ASTRA-sim's validated HGX-H100: 936.25 ns per half link", "verified"
)
# osu_multi_lat of one pair, microseconds per bytes, medians
HOST_TIMES = {0: 1.47, 8192: 4.24, 16384: 6.21, 65536: 9.62, 1048576: 28.94, 4194304: 97.56}
DEVICE_TIMES = {0: 3.29, 8192: 4.88, 16384: 7.61, 65536: 10.67, 1048576: 74.45, 4194304: 280.76}


def _seconds(points: Mapping[int, float]) -> dict[int, float]:
    return {size: time * 1e-6 for size, time in points.items()}


def hopper_network() -> Costs:
    """Device memory over NDR: the rate of later machines, the latencies of an A100 machine."""
    why = f"{ABCI}; not measured on newer NICs"
    large = Line(16 * KIB, micros(6.9, "as MVAPICH2-GDR on Lassen; not measured", "assumed"), NDR)
    return Costs(joined(micros(3.29, why, "assumed"), 16 * KIB, large), RNDV)


def _eight(product: str, cpu: Device, pcie: Sourced, socket: Cable, links: int, fan: int) -> Inside:
    """Two sockets; PCIe switches with `fan` GPUs and as many NICs each."""
    cable = Cable("pcie", pcie)
    inside = tree(
        product,
        8,
        cpu,
        2,
        8,
        gpu_link=gpu_cable(product),
        pcie=cable,
        nic_link=cable,
        socket=socket,
        socket_links=links,
        fan=(fan,),
    )
    return nvswitched(inside, GPUS[product].bricks, nvlink(product))


def dgx_2() -> Design:
    """DGX-2: 16 V100 on NVSwitches of the first generation."""
    v100 = GPUS["V100"]
    brick = Cable("nvlink", giga(125 / 6, f"{TACCL}: 8 us per MB over 6 bricks", "verified"))
    upi = Cable("socket", giga(20.8, "UPI at 10.4 GT/s, nominal", "remembered"))
    inside = tree(
        "V100",
        16,
        Device("", CPU, "Xeon Platinum 8168", 24),
        2,
        8,
        gpu_link=gpu_cable("V100"),
        pcie=PCIE3,
        nic_link=PCIE3,
        socket=upi,
        socket_links=3,
        fan=(2, 2),
    )
    near = line(
        micros(0.3, f"{TACCL}: 0.3 us at the scale of 1 MB", "verified"),
        giga(125.0, f"{TACCL}: 8 us per MB", "verified"),
    )
    host = edr_host(giga(11.0, "one EDR port, as on Summit", "assumed"))
    return Design(
        name="dgx-2",
        title="NVIDIA DGX-2",
        source=f"{TACCL}; {NCCL}",
        nodes=Sourced(96, "", "DGX SuperPOD of 2019", "remembered"),
        product="V100",
        inside=nvswitched(inside, 6, brick),
        fabric=FatTree(Wire(EDR.value), (18,), (18,), True, Wire(EDR.value, HOP.value)),
        shape=RAILS,
        port=EDR,
        hop=HOP,
        paths={
            **host_paths(host),
            (NVLINK, CUDA): near,
            **device_paths(v100, near.lines[0].alpha, GPU_DIRECT, copies(v100.pcie)),
        },
        reduction=reductions(v100),
        memory=giga(256.0, "two sockets with six DDR4-2666 channels each", "remembered"),
        stripe_from=NEVER,
        pointer_query=QUERY,
        library="MPI or NCCL",
        offers={"multicast": MULTICAST, "switch_reduction": SHARP},
    )


def dgx_a100() -> Design:
    """DGX A100; costs from ABCI, whose nodes have the same GPUs and half of the NICs."""
    a100 = GPUS["A100"]
    xgmi = Cable("socket", giga(16.0, f"{NCCL}: between AMD CPUs; taken for each link", "assumed"))
    rome = Device("", CPU, "EPYC 7742", 64)
    near = line(
        micros(3.2, f"{ABCI}: GPU-timed peer latency", "verified"),
        giga(273.8, f"{ABCI}: median of 56 ordered pairs", "verified"),
    )
    host = Costs(through(_seconds(HOST_TIMES), ABCI, "computed"), RNDV)
    device = Costs(through(_seconds(DEVICE_TIMES), ABCI, "computed"), RNDV)
    return Design(
        name="dgx-a100",
        title="NVIDIA DGX A100",
        source=f"{ABCI}; {SUPERPOD}",
        nodes=Sourced(140, "", f"{SUPERPOD}: 7 units of 20 nodes", "remembered"),
        product="A100",
        inside=_eight("A100", rome, a100.pcie, xgmi, 3, 2),
        fabric=FatTree(Wire(HDR.value), (20,), (20,), True, Wire(HDR.value, HOP.value)),
        shape=(f"{SUPERPOD}: one rail per NIC, 20 nodes under a leaf of 40 ports", "remembered"),
        port=HDR,
        hop=HOP,
        paths={
            **host_paths(host),
            (NVLINK, CUDA): near,
            **device_paths(a100, near.lines[0].alpha, device, copies(a100.pcie)),
        },
        reduction=reductions(a100),
        memory=giga(409.6, "two sockets with eight DDR4-3200 channels each", "remembered"),
        stripe_from=NEVER,
        pointer_query=CONTAINED,
        library="Open MPI with UCX",
        offers={"multicast": MULTICAST, "switch_reduction": SHARP},
    )


def _hopper(
    name: str, title: str, product: str, nodes: Sourced, source: str, peer: Sourced
) -> Design:
    gpu = GPUS[product]
    told = f"{NCCL}: between Sapphire Rapids; taken for each link"
    upi = Cable("socket", giga(22.0, told, "assumed"))
    near = line(peer, giga(370.8, f"{NCCL}: 20.6 GB/s for each of 18 links", "computed"))
    host = edr_host(giga(42.6, "as device memory over NDR", "assumed"))
    return Design(
        name=name,
        title=title,
        source=source,
        nodes=nodes,
        product=product,
        inside=_eight(product, Device("", CPU, "Xeon Platinum 8480C", 56), gpu.pcie, upi, 3, 1),
        fabric=FatTree(Wire(NDR.value), (32,), (32,), True, Wire(NDR.value, HOP.value)),
        shape=(
            f"{SUPERPOD}: units of 32 nodes, eight leaves each; 32 leaves and 16 spines for"
            " 128 nodes (32 spines with half of the cables here)",
            "published",
        ),
        port=NDR,
        hop=HOP,
        paths={
            **host_paths(host),
            (NVLINK, CUDA): near,
            **device_paths(gpu, near.lines[0].alpha, hopper_network(), copies(gpu.pcie)),
        },
        reduction=reductions(gpu),
        memory=giga(614.4, "two sockets with eight DDR5-4800 channels each", "remembered"),
        stripe_from=NEVER,
        pointer_query=QUERY,
        library="MPI or NCCL",
        offers={"multicast": MULTICAST, "switch_reduction": SHARP, "nvswitch_reduction": NVLS},
    )


def dgx_h100() -> Design:
    """DGX H100: third generation of NVSwitch, which reduces."""
    nodes = Sourced(128, "", f"{SUPERPOD}: 4 units of 32 nodes", "published")
    source = f"{SUPERPOD}; {NCCL}; ASTRA-sim"
    return _hopper("dgx-h100", "NVIDIA DGX H100", "H100", nodes, source, NVSWITCH_ALPHA)


def hgx_h200() -> Design:
    """HGX H200 on the fabric of DGX H100; NVIDIA's MLPerf entry has two further NICs per node."""
    nodes = Sourced(128, "", f"{SUPERPOD}: 4 units of 32 nodes, as with H100", "assumed")
    source = f"{SUPERPOD}; {NCCL}; MLPerf system description"
    return _hopper("hgx-h200", "HGX H200", "H200", nodes, source, NVSWITCH_ALPHA.elsewhere())
