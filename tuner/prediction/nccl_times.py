"""The times of NCCL's own algorithms, which stand in for simulations of them.

A simulation of NCCL's rings and trees knows neither its protocols nor how many channels it opens.
NCCL's own cost model does, and predictions from it are nearer to published results
(docs/experiments/0002-nccl-predictions.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.mpi_libraries import nccl
from tuner.mpi_libraries.nccl.constants import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    NVLS,
    NVLS_TREE,
    PAIRWISE,
    PAT,
    RING,
    TREE,
)
from tuner.topology import CUDA, SWITCH_REDUCTION, Placement

NCCL_PAIRWISE = "nccl_pairwise"  # the sends and receives that NCCL makes of an all-to-all
NCCL_NAMES = {  # registered algorithm -> NCCL's name
    "nccl_ring": RING,
    "nccl_tree": TREE,
    "nvls": NVLS,
    "nvls_tree": NVLS_TREE,
    "collnet_direct": COLLNET_DIRECT,
    "collnet_chain": COLLNET_CHAIN,
    "pat": PAT,
    NCCL_PAIRWISE: PAIRWISE,
}
# Nodes from which on NCCL needs SHARP for an algorithm.
SHARP_NODES = {"collnet_direct": 1, "collnet_chain": 1, "nvls": 2}
EXPLAINED_NOTE = (
    "NCCL's model does not divide its times: --runner schedule simulates and explains a schedule of"
    " the same algorithm"
)


def nccl_note(calls: Collection[tuple[str, int]], *, simulates: bool) -> str:
    """Return a note on the algorithms of NCCL in some calls, which have predicted times.

    calls       algorithms, also of others, and the nodes on which they run
    simulates   whether other algorithms beside them are simulated
    """
    own = [name for name in NCCL_NAMES if any(name == algorithm for algorithm, _ in calls)]
    collnet = [
        f"{name} on several nodes" if least > 1 else name
        for name, least in SHARP_NODES.items()
        if any(name == algorithm and nodes >= least for algorithm, nodes in calls)
    ]
    model = f"the cost model of NCCL {nccl.CURRENT_VERSION}, on AMD's GPUs of RCCL"
    sources = [model] * (own != [NCCL_PAIRWISE])
    sources += ["measured times of all-to-alls"] * (NCCL_PAIRWISE in own)
    note = (
        f"Times of {', '.join(own)} are predicted from {' and '.join(sources)}, as in `tuner nccl"
        f" estimate`{'; all others are simulated' * simulates}."
    )
    if not collnet:
        return note
    return (
        f"{note} NCCL uses {', '.join(collnet)} only with NCCL_COLLNET_ENABLE=1 and SHARP in the"
        " network."
    )


def nccl_absence(names: Collection[str], placement: Placement) -> str:
    """Return a caution if algorithms of NCCL among `names` are simulated, as NCCL cannot run."""
    own = [name for name in NCCL_NAMES if name in names]
    try:
        nccl.nccl_system_of(placement)
    except InputError as reason:
        told = (
            f"caution: {', '.join(own)}: simulated as a schedule, since NCCL cannot do it: {reason}"
        )
        return told if own else ""
    return ""


class NcclTimes:
    """The predicted times of NCCL's algorithms on one placement.

    An algorithm has the protocol that NCCL expects to be its best, or takes at the size.

    latency_factor  factor of all of NCCL's latencies
    rate_factor     factor of the rates per channel that NCCL has as constants
    version         of those whose choice is known

    Raises InputError as `nccl_system_of` does.
    """

    def __init__(
        self,
        placement: Placement,
        latency_factor: float = 1.0,
        rate_factor: float = 1.0,
        version: str = nccl.CURRENT_VERSION,
    ) -> None:
        self._placement, self.version = placement, version
        collnet = SWITCH_REDUCTION in placement.topology.capabilities
        self._predictor = nccl.NcclPredictor(
            placement, collnet, latency_factor, rate_factor, version=version
        )

    @property
    def compute_capability(self) -> int:
        """Return ten times the compute capability of the GPUs, such as 90."""
        return self._predictor.system.compute_capability

    def algorithms(self, collective: Collective, *, collnet: bool = True) -> tuple[str, ...]:
        """Return the registered algorithms that NCCL has for a collective on these GPUs.

        collnet     with those in which the network's switches reduce
        """
        predictor = self._predictor if collnet else self._by_itself
        there = {way.algorithm for way in predictor.algo_protos(collective)}
        return tuple(name for name, own in NCCL_NAMES.items() if own in there)

    def seconds(
        self, collective: Collective, name: str, nbytes: int, load: nccl.ExchangeLoad = nccl.EVEN
    ) -> float:
        """Return the time of one of `algorithms` on `nbytes` of the whole buffer.

        load    of the busiest rank of an all-to-all, relative to equal blocks
        """
        way = self._predictor.run_algo_proto(collective, NCCL_NAMES[name], max(1, nbytes))
        return self._predictor.seconds(collective, way, max(1, nbytes), load)

    def limits(self, collective: Collective, name: str, nbytes: int) -> nccl.NcclLimits:
        """Return what the time of `seconds` goes into, and what could bound it."""
        way = self._predictor.run_algo_proto(collective, NCCL_NAMES[name], max(1, nbytes))
        return self._predictor.limits(collective, way, max(1, nbytes))

    def choice(self, collective: Collective, names: Iterable[str], nbytes: int) -> str:
        """Return which of some `algorithms` NCCL chooses by itself, "" if it is offered none.

        By itself it does not let the network's switches reduce.
        """
        offered = {NCCL_NAMES[name]: name for name in names}
        if PAIRWISE in offered:  # there is no other one then
            return offered[PAIRWISE]
        expected = self._by_itself.expected_seconds(collective, max(1, nbytes))
        own = [way for way in expected if way.algorithm in offered]
        best = min(own, key=lambda way: expected[way], default=None)
        return offered[best.algorithm] if best else ""

    @cached_property
    def _by_itself(self) -> nccl.NcclPredictor:
        """A predictor of NCCL without switches of the network that reduce."""
        return nccl.NcclPredictor(self._placement, version=self.version)


def nccl_times(
    placement: Placement,
    memory: str,
    latency_factor: float = 1.0,
    rate_factor: float = 1.0,
    version: str = nccl.CURRENT_VERSION,
) -> NcclTimes | None:
    """Return NCCL's times for buffers in `memory`; None where NCCL cannot run or is not known.

    latency_factor  factor of all of NCCL's latencies
    rate_factor     factor of the rates per channel that NCCL has as constants
    version         of those whose choice is known
    """
    if memory != CUDA:
        return None
    try:
        return NcclTimes(placement, latency_factor, rate_factor, version)
    except InputError:
        return None
