"""GB200 NVL72: one rack is one NVLink domain and one node of the topology."""

from __future__ import annotations

from tuner.machines.common import (
    MULTICAST_SOURCE,
    NCCL_SOURCE,
    NDR_RATE,
    NEVER_STRIPED,
    NOT_MEASURED,
    NVLS_SOURCE,
    POINTER_QUERY,
    SHARP_SOURCE,
    SWITCH_LATENCY,
    device_path_costs,
    edr_host_costs,
    gpu_nvlink,
    host_path_costs,
    reduction_costs,
)
from tuner.machines.gpus import GPUS
from tuner.machines.machine_spec import MachineSpec
from tuner.machines.node_parts import (
    NVSWITCH,
    DeviceLink,
    LinkType,
    NodeSpec,
    distribute,
    with_nvswitch,
)
from tuner.machines.provenance import SourcedValue, gigabytes_per_s, microseconds, single_segment
from tuner.machines.switched import NVSWITCH_ALPHA, SUPERPOD_SOURCE, ndr_device_costs
from tuner.topology import CPU, CUDA, GPU, NIC, NVLINK, Device
from tuner.topology.readers.fabrics import FatTree, NetworkCable

N_TRAYS = 18
NVLINK_C2C_RATE = gigabytes_per_s(
    450.0, "NVLink-C2C, 900 GB/s in both directions, nominal", "remembered"
)
EXTENDED_MEMORY_SOURCE = "Grace memory reached through the GPUs over NVLink (extended GPU memory)"


def _rack_spec() -> NodeSpec:
    """Return a rack of 18 trays with two Grace CPUs, each of which has two B200 and two NICs.

    The NICs are listed rail by rail.
    """
    cpus, gpus = [f"cpu{i}" for i in range(2 * N_TRAYS)], [f"gpu{i}" for i in range(4 * N_TRAYS)]
    nics = [f"nic{i}" for i in range(4 * N_TRAYS)]
    rails = [nics[i] for rail in range(4) for i in range(rail, len(nics), 4)]
    inside = NodeSpec(
        (
            *(Device(name, CPU, "Grace", 72) for name in cpus),
            *(Device(name, GPU, "B200") for name in gpus),
            *(Device(name, NIC) for name in rails),
        ),
        (
            *distribute(gpus, cpus, LinkType("nvlink", NVLINK_C2C_RATE)),
            *distribute(nics, cpus, LinkType("pcie", GPUS["B200"].pcie_rate)),
        ),
    )
    switched = with_nvswitch(inside, GPUS["B200"].nvlinks, gpu_nvlink("B200"), "NVSwitch trays")
    bus = LinkType(
        "socket",
        gigabytes_per_s(400.0, f"{EXTENDED_MEMORY_SOURCE}; its rate is not known", "assumed"),
    )
    return switched.with_links(DeviceLink(name, NVSWITCH, bus) for name in cpus)


def gb200_nvl72() -> MachineSpec:
    """Return racks of 72 B200 and 36 Grace; eight of them make a SuperPOD unit."""
    b200 = GPUS["B200"]
    near = single_segment(
        NVSWITCH_ALPHA.as_assumed(),
        gigabytes_per_s(
            b200.nvlinks * 40.1, f"{NCCL_SOURCE}: 40.1 GB/s per link of 18", "computed"
        ),
    )
    staging = single_segment(
        microseconds(6.5, f"{NOT_MEASURED}; cudaMemcpy as on PCIe machines", "assumed"),
        gigabytes_per_s(360.0, f"{NOT_MEASURED}; 80 % of NVLink-C2C's nominal rate", "assumed"),
    )
    return MachineSpec(
        name="gb200-nvl72",
        title="NVIDIA GB200 NVL72",
        source=f"{NCCL_SOURCE}; {SUPERPOD_SOURCE}, GB200",
        nodes=SourcedValue(
            8, "", f"{SUPERPOD_SOURCE}, GB200: a scalable unit has 8 racks", "remembered"
        ),
        product="B200",
        node_spec=_rack_spec(),
        fabric=FatTree(
            NetworkCable(NDR_RATE.value),
            (N_TRAYS,),
            (N_TRAYS,),
            False,
            NetworkCable(NDR_RATE.value, SWITCH_LATENCY.value),
        ),
        fabric_source=("a leaf per rail and rack, non-blocking", "assumed"),
        nic_rate=NDR_RATE,
        switch_latency=SWITCH_LATENCY,
        paths={
            **host_path_costs(
                edr_host_costs(gigabytes_per_s(42.6, "as device memory over NDR", "assumed"))
            ),
            (NVLINK, CUDA): near,
            **device_path_costs(b200, near.segments[0].alpha, ndr_device_costs(), staging),
        },
        reduction=reduction_costs(b200),
        memory_bandwidth=gigabytes_per_s(
            36 * 500.0, "36 CPUs with LPDDR5X of 500 GB/s each", "remembered"
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
