"""Predictions of how long NCCL takes, which is longer than it expects itself.

NCCL's choice follows from its own expectation, its time does not. What is corrected was seen in
published results of nccl-tests (docs/experiments/0002-nccl-predictions.md):

- No algorithm gets more between nodes than the NICs reach (42.6 GB/s on NDR, of 48 expected).
- Nor do rings, trees and all-to-alls get more than the links between switches let through.
- Rings in LL on one node from Ampere on get half of what their links carry; NCCL caps them lower.
- GPUs differ in what a call, a hop and the Simple protocol take, where NCCL's constants are the
  same for all; and a rank of a ring copies its own part of the buffer (`NcclCosts`).
- A call takes longer that occupies all threads of a channel, as a ring in LL does from a size on.
- Simple begins and ends with buffers that are partly filled, in rings between nodes, NVLS, NVLSTree
  and CollNetDirect. This takes as long as `FILL_BYTES` more of each share of the buffer, or a
  fraction of all of it, or `MAX_FILL_SECONDS` for each share, whichever is least: a share belongs
  to a rank in rings and to a GPU of the node in the others. LL and LL128 have no such buffers.
- Broadcast and reduce pass every hop of a ring before the last rank is reached; NCCL counts one.

An all-to-all has a time of its own (`exchange`), as NCCL expects none of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl.constants import (
    ADA,
    AMPERE,
    BLACKWELL,
    BLACKWELL_PCIE,
    COLLNET_DIRECT,
    HOPPER,
    LL,
    NCCL_CHANNELS,
    NVLS,
    NVLS_TREE,
    PAIRWISE,
    RING,
    SIMPLE,
    AlgoProto,
    table_row,
)
from tuner.mpi_libraries.nccl.default_choice import cost_models, default_algo_proto, estimate_times
from tuner.mpi_libraries.nccl.exchange import (
    EVEN,
    EXCHANGE_WAYS,
    ExchangeLoad,
    channel_bandwidth,
    exchange_fill,
    exchange_hops,
    exchange_latency,
    exchange_way,
    is_spread,
)
from tuner.mpi_libraries.nccl.fabric import WIRE_BYTES
from tuner.mpi_libraries.nccl.formulas import formulas_of
from tuner.mpi_libraries.nccl.hardware_bounds import HardwareBounds
from tuner.mpi_libraries.nccl.model_v2_30 import hops_inside, ring_hops
from tuner.mpi_libraries.nccl.names import NCCL_COLLECTIVES, POINT_TO_POINT
from tuner.mpi_libraries.nccl.releases import CURRENT, CURRENT_VERSION, RELEASES
from tuner.mpi_libraries.nccl.system import nccl_system_of
from tuner.topology import NIC, NcclCosts, Placement

HEAD_ALGORITHMS = (NVLS, NVLS_TREE, COLLNET_DIRECT)  # whose channels have a head GPU each

FILL_BYTES = 4 << 20  # fitted, as is the next one; also the size of a channel's buffer in NCCL
MAX_FILL = 0.55
MAX_RING_FILL = 0.2  # 9 % at 16 GiB on 46 nodes of B200; training on 512 P100 needs 0.15 or more
SAME_RATE = 1.01  # times a rate that counts as the same one
LATENCY_PART, COPY_PART = "latency", "copy"  # parts of the time of a call besides its transfer
MAX_FILL_SECONDS = 25e-6  # the longest fill of a share to which the constants were fitted

# What NCCL counts for LL over NVLink, on all GPUs.
COUNTED_LAUNCH = CURRENT.latencies.base[AlgoProto(RING, LL)]
COUNTED_HOP = CURRENT.latencies.nvlink[AlgoProto(RING, LL)]

# By compute capability: fitted to results of A100, H100 and B200, 512 bytes to 512 MiB on 2, 4 and
# 8 GPUs (tests/bench/nccl_errors.py), and of L40S and RTX PRO 6000 to 64 KiB, where L40S has no
# calls in Simple: it has the cost of the other. Copies of these two are a fifth of the rate of the
# memory, as on A100 and H100. Nobody measured the GPUs before A100: for them it is what NCCL
# counts, and about the rate of A100; so it is for AMD's, with what RCCL counts.
COSTS_OF_GPUS = {
    0: NcclCosts(
        launch=COUNTED_LAUNCH, hop=COUNTED_HOP, simple=0.0, copy_rate=370e9, full_channel=0.0
    ),
    AMPERE: NcclCosts(
        launch=8.0e-6, hop=1.0e-6, simple=19.6e-6, copy_rate=375e9, full_channel=2.5e-6
    ),
    ADA: NcclCosts(launch=4.0e-6, hop=1.1e-6, simple=7.4e-6, copy_rate=170e9, full_channel=1.0e-6),
    HOPPER: NcclCosts(
        launch=4.7e-6, hop=0.84e-6, simple=6.8e-6, copy_rate=695e9, full_channel=0.76e-6
    ),
    BLACKWELL: NcclCosts(
        launch=7.15e-6, hop=1.38e-6, simple=6.9e-6, copy_rate=1000e9, full_channel=0.9e-6
    ),
    BLACKWELL_PCIE: NcclCosts(
        launch=4.1e-6, hop=1.1e-6, simple=7.4e-6, copy_rate=320e9, full_channel=0.15e-6
    ),
}


@dataclass(frozen=True)
class NcclTerms:
    """The parts that the time of a call consists of.

    latency     seconds that NCCL counts more than for a call in LL and its hops inside a node; of
                an all-to-all what `exchange_latency` returns, with the bytes of one part in Simple
    hops        hops inside a node, one after the other
    is_simple   whether the protocol is Simple
    own_bytes   bytes that a rank copies as its own part; none of an all-to-all, whose transfer has
                them
    is_full     whether an all-to-all or a ring in LL occupies all threads of a channel; others'
                latencies contain that
    transfer    seconds in which all bytes pass and buffers fill
    bounds      bytes of the buffer per second that each lets through: NCCL_CHANNELS, SWITCH_LINKS
                and kinds of links. The lowest one bounds the transfer
    """

    latency: float
    hops: float
    is_simple: bool
    own_bytes: float
    is_full: bool
    transfer: float
    bounds: Mapping[str, float]

    def seconds(self, costs: NcclCosts, latency_factor: float = 1.0) -> float:
        return sum(self.parts(costs, latency_factor))

    def parts(self, costs: NcclCosts, latency_factor: float = 1.0) -> tuple[float, float, float]:
        """Return the seconds of latency, of the copy of the own part, and of the transfer."""
        of_gpus = costs.launch + costs.hop * self.hops + costs.simple * self.is_simple
        of_gpus += (costs.full_channel or 0.0) * self.is_full
        latency = latency_factor * (self.latency + of_gpus)
        return latency, self.own_bytes / costs.copy_rate, self.transfer


@dataclass(frozen=True)
class NcclLimits:
    """The parts of the time of a call, and what could bound its transfer.

    shares  fractions of the time: LATENCY_PART, COPY_PART, and each that bounds the transfer, all
            of it where several do at the same rate
    rates   bytes per second by what could bound the transfer, as in `NcclTerms.bounds`: of each
            NIC, or on one node of the bus bandwidth of nccl-tests
    """

    shares: Mapping[str, float]
    rates: Mapping[str, float]


class NcclPredictor:
    """A predictor of the times that NCCL expects of its algorithms, and of those that they take.

    collnet         switches may reduce
    latency_factor  factor of all of NCCL's latencies in predictions
    rate_factor     factor of the rates per channel in NCCL's tables in predictions
    costs           those of the GPUs; None: the topology's, or those of their generation
    version         of those whose choice is known; an algorithm takes as long in each, but for
                    all-to-alls in LL

    Raises InputError as `nccl_system_of` does.
    """

    def __init__(
        self,
        placement: Placement,
        collnet: bool = False,
        latency_factor: float = 1.0,
        rate_factor: float = 1.0,
        costs: NcclCosts | None = None,
        version: str = CURRENT_VERSION,
    ) -> None:
        self._release = release = RELEASES.get(version, CURRENT)
        self.version = version
        self.system = nccl_system_of(placement, collnet, release=release)
        same = rate_factor == 1.0 and release is CURRENT
        self._predicted = (
            self.system if same else nccl_system_of(placement, collnet, False, rate_factor)
        )
        self.formulas = formulas_of(self.system)
        self._hardware = HardwareBounds(placement, self._predicted, self.formulas)
        self._latency_factor = latency_factor
        known = table_row(COSTS_OF_GPUS, self.system.compute_capability)
        own = costs or placement.topology.nccl or known
        full = known.full_channel if own.full_channel is None else own.full_channel
        self.costs = replace(own, full_channel=full)

    def algo_protos(self, collective: Collective) -> tuple[AlgoProto, ...]:
        """Return the pairs that NCCL has for a collective on these GPUs."""
        if self._is_exchange(collective):
            return EXCHANGE_WAYS
        if collective not in NCCL_COLLECTIVES:
            return ()
        return tuple(cost_models(self.system, collective, self.version))

    def run_algo_proto(self, collective: Collective, algorithm: str, nbytes: int) -> AlgoProto:
        """Return an algorithm with the protocol in which the library runs it."""
        if algorithm == PAIRWISE:
            return exchange_way(self.system, nbytes, self._release)
        expected = self.expected_seconds(collective, nbytes)
        own = [way for way in expected if way.algorithm == algorithm]
        best = min(own, key=expected.__getitem__)
        return self.formulas.run_algo_proto(self.system, collective, best, nbytes)

    def chosen_algo_proto(self, collective: Collective, nbytes: int) -> AlgoProto:
        """Return what the library runs by itself; raises as `estimate_times`."""
        if self._is_exchange(collective):
            return exchange_way(self.system, nbytes, self._release)
        return default_algo_proto(self.system, collective, nbytes, self.version)

    def expected_seconds(self, collective: Collective, nbytes: int) -> dict[AlgoProto, float]:
        """Return NCCL's own expectation, none of an all-to-all; see `estimate_times`."""
        if self._is_exchange(collective):
            return {}
        return estimate_times(self.system, collective, nbytes, self.version)

    def _is_exchange(self, collective: Collective) -> bool:
        """Return whether a collective is sends and receives whose time is known; RCCL's is not."""
        is_known = self.version in RELEASES and not self.system.architecture
        return collective in POINT_TO_POINT and is_known

    def predicted_seconds(self, collective: Collective, nbytes: int) -> dict[AlgoProto, float]:
        return {way: self.seconds(collective, way, nbytes) for way in self.algo_protos(collective)}

    def seconds(
        self, collective: Collective, way: AlgoProto, nbytes: int, load: ExchangeLoad = EVEN
    ) -> float:
        """Return the predicted seconds of a call; `load` as for `terms`."""
        terms = self.terms(collective, way, nbytes, load)
        return terms.seconds(self.costs, self._latency_factor)

    def terms(
        self, collective: Collective, way: AlgoProto, nbytes: int, load: ExchangeLoad = EVEN
    ) -> NcclTerms:
        """Return what the time of a call consists of.

        load    of the busiest rank of an all-to-all
        """
        if way.algorithm == PAIRWISE:
            return self._exchange_terms(way.protocol, nbytes, load)
        system, known = self._predicted, self.formulas
        carried = known.sustained_bandwidth(system, collective, way)
        of_latency, of_bandwidth = known.sustained_factors(system, collective, way, nbytes)
        bounds = {
            **self._hardware.bandwidths(collective, way, of_bandwidth),
            NCCL_CHANNELS: carried * of_bandwidth,
        }
        bandwidth = min(bounds.values())
        latency = known.sustained_latency(system, collective, way) * of_latency
        hops = hops_inside(system, collective, way.algorithm) * of_latency
        copies = way.algorithm == RING and not collective.is_rooted
        part = nbytes / system.p if copies else 0.0
        return NcclTerms(
            latency - COUNTED_LAUNCH - COUNTED_HOP * hops,
            hops,
            way.protocol == SIMPLE,
            WIRE_BYTES[way.protocol] * part,
            way.protocol == LL and part >= known.full_part,
            nbytes / bandwidth + self._fill_seconds(collective, way, nbytes, bandwidth),
            bounds,
        )

    def _exchange_terms(self, protocol: str, nbytes: int, load: ExchangeLoad) -> NcclTerms:
        """Return what the time of an all-to-all consists of."""
        system = self._predicted
        spread = is_spread(system, protocol, nbytes, self._release)
        bounds = self._exchange_bounds(protocol, spread, load)
        transfer, fill = nbytes / min(bounds.values()), 0.0
        if system.nodes == 1 and spread:
            even = self._exchange_bounds(protocol, spread, EVEN)
            fill = exchange_fill(transfer, min(even.values()))
        return NcclTerms(
            exchange_latency(system, protocol, spread, nbytes),
            exchange_hops(system),
            False,  # the cost of Simple is that of rings
            0.0,  # the channels copy it among their messages
            True,  # at every size: scheduleP2pTasksToPlan in src/enqueue.cc
            transfer + fill,
            bounds,
        )

    def _exchange_bounds(self, protocol: str, spread: bool, load: ExchangeLoad) -> dict[str, float]:
        """Return the bytes of the buffer per second that each lets through in an all-to-all."""
        return {
            **self._hardware.exchange_bandwidths(protocol, load),
            NCCL_CHANNELS: channel_bandwidth(self._predicted, protocol, spread, load),
        }

    def limits(self, collective: Collective, way: AlgoProto, nbytes: int) -> NcclLimits:
        """Return what limits a call of some bytes."""
        terms = self.terms(collective, way, nbytes)
        latency, copy, transfer = terms.parts(self.costs, self._latency_factor)
        parts = {LATENCY_PART: latency, COPY_PART: copy}
        parts |= dict.fromkeys(_binding(terms.bounds), transfer)
        total, bounds, p = latency + copy + transfer, terms.bounds, self.system.p
        if NIC in bounds:
            scale = self._hardware.rate_of_nic / bounds[NIC]
        else:
            scale = ring_hops(collective, p) / p
        return NcclLimits(
            {name: seconds / total for name, seconds in parts.items()},
            {name: bandwidth * scale for name, bandwidth in bounds.items()},
        )

    def _fill_seconds(
        self, collective: Collective, way: AlgoProto, nbytes: int, bandwidth: float
    ) -> float:
        """Return how long filling and draining the buffers takes."""
        system = self._predicted
        between = way.algorithm == RING and way.protocol == SIMPLE and system.nodes > 1
        fills = self.formulas.fills_buffers and not collective.is_rooted
        if not (fills and (between or way.algorithm in HEAD_ALGORITHMS)):
            return 0.0
        shares, most = (system.p, MAX_RING_FILL) if between else (system.ppn, MAX_FILL)
        of_share = min(FILL_BYTES / bandwidth, MAX_FILL_SECONDS)
        return min(most * nbytes / bandwidth, of_share * shares)


def _binding(bounds: Mapping[str, float]) -> list[str]:
    """Return what has the lowest bound: of equal ones those of hardware, not NCCL's channels."""
    lowest = SAME_RATE * min(bounds.values())
    hardware = [name for name in bounds if name != NCCL_CHANNELS and bounds[name] <= lowest]
    return hardware or [NCCL_CHANNELS]
