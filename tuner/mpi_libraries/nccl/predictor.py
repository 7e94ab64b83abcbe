"""Predictions of how long the current NCCL takes, which is longer than it expects itself.

NCCL's choice follows from its own expectation, its time does not. Four corrections, the first three
of which published results of nccl-tests call for (docs/experiments/0002-nccl-predictions.md):

- Rings and NVLSTree get no more between nodes than the NICs reach (42.6 GB/s on NDR, of 48
  expected).
- Nor do rings and trees get more than the links between switches let through.
- A collective without a root begins and ends with buffers that are partly filled. This takes as
  long as `FILL_BYTES` more of each share of the buffer, or `MAX_FILL` of all of it, or
  `MAX_FILL_SECONDS` for each share, whichever is least: a share belongs to a rank in rings and to a
  GPU of the node in NVLS and CollNetDirect.
- Broadcast and reduce pass every hop of a ring before the last rank is reached; NCCL counts one.
"""

from __future__ import annotations

from dataclasses import replace

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl.constants import COLLNET_DIRECT, NVLS, NVLS_TREE, RING, AlgoProto
from tuner.mpi_libraries.nccl.default_choice import cost_models, estimate_times, size_factors
from tuner.mpi_libraries.nccl.fabric import FabricBound
from tuner.mpi_libraries.nccl.model_v2_30 import LatencyBandwidth, latency_of_all_hops
from tuner.mpi_libraries.nccl.names import NCCL_COLLECTIVES
from tuner.mpi_libraries.nccl.system import (
    ChannelGraph,
    NcclSystem,
    nccl_system_of,
    reached_network_rate,
)
from tuner.topology import Placement

FILL_BYTES = 4 << 20  # fitted, as is the next one; also the size of a channel's buffer in NCCL
MAX_FILL = 0.65
MAX_FILL_SECONDS = 25e-6  # the longest fill of a share to which the constants were fitted


class NcclPredictor:
    """What NCCL expects of its algorithms on a placement, and what it is predicted to take.

    collnet         switches may reduce
    latency_factor  factor of all of NCCL's latencies in predictions
    rate_factor     factor of the rates per channel in NCCL's tables in predictions

    Raises InputError as `nccl_system_of` does.
    """

    def __init__(
        self,
        placement: Placement,
        collnet: bool = False,
        latency_factor: float = 1.0,
        rate_factor: float = 1.0,
    ) -> None:
        self.system = nccl_system_of(placement, collnet)
        faster = rate_factor != 1.0
        system = nccl_system_of(placement, collnet, False, rate_factor) if faster else self.system
        self._reached = _with_reached_rates(system, placement)
        self._fabric = FabricBound(placement)
        self._latency_factor = latency_factor

    def algo_protos(self, collective: Collective) -> tuple[AlgoProto, ...]:
        """Return the pairs that NCCL has for a collective on these GPUs."""
        if collective not in NCCL_COLLECTIVES:
            return ()
        return tuple(cost_models(self.system, collective))

    def expected_seconds(self, collective: Collective, nbytes: int) -> dict[AlgoProto, float]:
        """Return NCCL's own expectation; see `estimate_times`."""
        return estimate_times(self.system, collective, nbytes)

    def predicted_seconds(self, collective: Collective, nbytes: int) -> dict[AlgoProto, float]:
        return {
            way: self._predict(collective, way, model, nbytes)
            for way, model in cost_models(self._reached, collective).items()
        }

    def _predict(
        self, collective: Collective, way: AlgoProto, model: LatencyBandwidth, nbytes: int
    ) -> float:
        factors = size_factors(self._reached, collective, way, nbytes)
        bandwidth = min(model.bandwidth * factors[1], self._fabric.bandwidth(collective, way))
        latency = model.latency * factors[0]
        if collective.is_rooted and way.algorithm == RING:
            latency = latency_of_all_hops(self._reached, collective, way)
        latency *= self._latency_factor
        fill = self._fill_seconds(collective, way.algorithm, nbytes, bandwidth)
        return latency + nbytes / bandwidth + fill

    def _fill_seconds(
        self, collective: Collective, algorithm: str, nbytes: int, bandwidth: float
    ) -> float:
        """Return how long filling and draining the buffers takes."""
        if collective.is_rooted or algorithm not in (RING, NVLS, NVLS_TREE, COLLNET_DIRECT):
            return 0.0
        shares = self._reached.p if algorithm == RING else self._reached.ppn
        of_share = min(FILL_BYTES / bandwidth, MAX_FILL_SECONDS)
        return min(MAX_FILL * nbytes / bandwidth, of_share * shares)


def _with_reached_rates(system: NcclSystem, placement: Placement) -> NcclSystem:
    """Return the system with no more between nodes than its NICs reach."""
    if system.nodes == 1:
        return system
    rate, heads = reached_network_rate(placement), system.head_channels
    ring = _capped(system.ring, rate / system.ring.channels)
    if heads is None:
        return replace(system, ring=ring)
    between = min(heads.bw_inter, rate / heads.channels)
    return replace(system, ring=ring, head_channels=replace(heads, bw_inter=between))


def _capped(graph: ChannelGraph, rate: float) -> ChannelGraph:
    return replace(graph, bw_intra=min(graph.bw_intra, rate), bw_inter=min(graph.bw_inter, rate))
