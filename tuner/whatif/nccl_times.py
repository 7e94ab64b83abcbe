"""The times that NCCL expects of its own algorithms, which stand in for simulations of them.

A simulation of NCCL's rings and trees knows neither its protocols nor how many channels it opens.
NCCL's own cost model does, and its predictions are nearer to published results
(docs/experiments/0001-nccl-estimate.md).
"""

from __future__ import annotations

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.mpi_libraries import nccl
from tuner.mpi_libraries.nccl.constants import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    NVLS,
    NVLS_TREE,
    PAT,
    RING,
    TREE,
)
from tuner.topology import CUDA, SWITCH_REDUCTION, Placement

SIMULATION, NCCL = "simulation", "nccl"  # what predicts a time
NCCL_NAMES = {  # registered algorithm -> NCCL's name
    "nccl_ring": RING,
    "nccl_tree": TREE,
    "nvls": NVLS,
    "nvls_tree": NVLS_TREE,
    "collnet_direct": COLLNET_DIRECT,
    "collnet_chain": COLLNET_CHAIN,
    "pat": PAT,
}
LINK_NAMES = {
    "nic": "the NIC",
    "pcie": "PCIe between GPU and NIC",
    "nvlink": "NVLink between GPU and NIC",
    "socket": "the bus between CPUs",
}
OPTIONAL_ALGORITHMS = ("collnet_direct", "collnet_chain")  # used with NCCL_COLLNET_ENABLE=1 alone
NCCL_NOTE = (
    f"Times of {', '.join(NCCL_NAMES)} are those that NCCL {nccl.CURRENT_VERSION} expects of them,"
    " as in `tuner nccl estimate`; all others are simulated. In published results NCCL takes 1.2 to"
    " 1.6 times as long as it expects at 1 and 16 MiB, and is mostly within 15 % from 1 GiB on."
    " NCCL's model takes NICs at the rate of their kind, and links between switches as wide enough."
)
EXPLAINED_NOTE = (
    "NCCL's model does not divide its times: --runner schedule simulates and explains a schedule of"
    " the same algorithm"
)


class NcclTimes:
    """The times that NCCL expects on one placement, with the protocol that suits each size best.

    Raises InputError as `nccl_system_of` does.
    """

    def __init__(self, placement: Placement) -> None:
        collnet = SWITCH_REDUCTION in placement.topology.capabilities
        self._system = nccl.nccl_system_of(placement, collnet)
        self._placement = placement

    def algorithms(self, collective: Collective) -> tuple[str, ...]:
        """Return the registered algorithms that NCCL has for a collective on these GPUs."""
        there = {way.algorithm for way in self._estimate(collective, 1)}
        return tuple(name for name, own in NCCL_NAMES.items() if own in there)

    def seconds(self, collective: Collective, name: str, nbytes: int) -> float:
        """Return the time of one of `algorithms` on `nbytes` of the whole buffer."""
        found = self._estimate(collective, nbytes)
        return min(found[way] for way in found if way.algorithm == NCCL_NAMES[name])

    def network_limit(self) -> str:
        """Return what bounds a GPU's traffic between nodes, such as `the NIC (48 GB/s)`.

        It is empty for a single node.
        """
        if self._system.nodes == 1:
            return ""
        kind, rate = nccl.network_limit(self._placement)
        return f"{LINK_NAMES.get(kind, kind)} ({rate / 1e9:.3g} GB/s)"

    def _estimate(self, collective: Collective, nbytes: int) -> dict[nccl.AlgoProto, float]:
        if collective not in nccl.SUPPORTED_COLLECTIVES:
            return {}
        return nccl.estimate_times(self._system, collective, max(1, nbytes))


def nccl_times(placement: Placement, memory: str) -> NcclTimes | None:
    """Return NCCL's times for buffers in `memory`; None where NCCL cannot run or is not known."""
    if memory != CUDA:
        return None
    try:
        return NcclTimes(placement)
    except InputError:
        return None
