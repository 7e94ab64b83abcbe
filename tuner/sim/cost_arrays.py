"""Costs of messages as arrays for compiled code: a row for each kind of connection."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.base.compiled import compiled
from tuner.core.calibration import Calibration, PathCost

DIRECT, STAGED, STRIPED = range(3)  # transfer modes


class ConnectionCost(NamedTuple):
    """The cost of a kind of connection, seconds to add to alpha, and the latency of its links.

    from_links      whether beta is that of the narrowest link of the path
    """

    cost: PathCost
    extra_alpha: float = 0.0
    link_latency: float = 0.0
    from_links: bool = False


class CostArrays(NamedTuple):
    """Segments of the costs of every kind of connection, as compiled code reads them.

    start_bytes, alpha, beta, latency_per_byte, mode
                            shape (kinds, most segments); `start_bytes` is infinite where there is
                            no segment
    overhead                shape (kinds,)
    eager_limit             messages of fewer bytes do not wait for the receiver, shape (kinds,)
    recv_wait_from          senders of this many bytes or more wait for its receive, shape (kinds,)
    sync_ack_threshold      and from this many bytes on for an acknowledgement, shape (kinds,)
    ack_latency             seconds that an acknowledgement takes, shape (kinds,)
    striping_threshold      bytes, shape (kinds,): infinite where nothing is striped
    port_sharing_threshold, header_bytes
                            those of the calibration
    """

    start_bytes: FloatArray
    alpha: FloatArray
    beta: FloatArray
    latency_per_byte: FloatArray
    mode: IntArray
    overhead: FloatArray
    eager_limit: FloatArray
    recv_wait_from: FloatArray
    sync_ack_threshold: FloatArray
    ack_latency: FloatArray
    striping_threshold: FloatArray
    port_sharing_threshold: float
    header_bytes: float


@compiled()
def find_segment(lo: FloatArray, kind: int, size: float) -> int:
    """Return the segment of a message of `size` bytes; `lo` is `CostArrays.start_bytes`."""
    at = 0
    while at + 1 < lo.shape[1] and lo[kind, at + 1] <= size:
        at += 1
    return at


@compiled()
def transfer_mode(
    mode: IntArray, striping_threshold: FloatArray, kind: int, segment: int, size: float
) -> int:
    """Return the mode of a message; what is staged through host memory is not striped."""
    own = mode[kind, segment]
    return STRIPED if own == DIRECT and size >= striping_threshold[kind] else own


@compiled()
def completion_delay(costs: CostArrays, kind: int, size: float) -> float:
    """Return the seconds from the arrival of a message until its sender goes on.

    -inf if the sender does not wait for the arrival.
    """
    if size >= costs.sync_ack_threshold[kind]:
        return float(costs.ack_latency[kind])
    return -np.inf if size < costs.recv_wait_from[kind] else 0.0


def pack_costs(
    calibration: Calibration, connection_costs: list[ConnectionCost], between_nodes: BoolArray
) -> CostArrays:
    """Return the costs as arrays, one kind for each of `connection_costs`.

    between_nodes   which kinds are of connections between nodes, the only ones that are striped
    """
    most = max((len(price.cost.segments) for price in connection_costs), default=1)
    lo = np.full((len(connection_costs), most), math.inf)
    alpha, beta = (
        np.zeros_like(lo),
        np.full_like(lo, math.inf),
    )  # unused segments are infinitely slow
    lag, way = np.zeros_like(lo), np.full(lo.shape, DIRECT)
    for number, (cost, more, *_) in enumerate(connection_costs):
        own = slice(0, len(cost.segments))
        lo[number, own] = [s.start_bytes for s in cost.segments]
        alpha[number, own] = [s.alpha.value + more for s in cost.segments]
        beta[number, own] = [s.beta.value for s in cost.segments]
        lag[number, own] = [s.latency_per_byte.value for s in cost.segments]
        way[number, own] = [STAGED if s.staged else DIRECT for s in cost.segments]
    striped = np.where(between_nodes, calibration.striping_threshold, math.inf)
    return CostArrays(
        lo,
        alpha,
        beta,
        lag,
        way,
        np.array([price.cost.overhead.value for price in connection_costs]),
        np.array(
            [max(price.cost.eager_limit, price.cost.early_push_limit) for price in connection_costs]
        ),
        np.array([price.cost.eager_limit for price in connection_costs]),
        np.array([price.cost.sync_ack_threshold for price in connection_costs]),
        np.array([price.link_latency for price in connection_costs]),
        striped,
        calibration.port_sharing_threshold,
        calibration.header_bytes,
    )


@compiled()
def lookup_costs(
    costs: CostArrays, kind: IntArray, size: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    """Return alpha with lag, beta, completion delay and mode of messages of these sizes."""
    alpha, beta, acknowledgement = np.empty((3, len(kind)))
    way = np.empty(len(kind), np.int64)
    for i in range(len(kind)):
        at = find_segment(costs.start_bytes, kind[i], size[i])
        alpha[i] = costs.alpha[kind[i], at] + costs.latency_per_byte[kind[i], at] * size[i]
        beta[i] = costs.beta[kind[i], at]
        acknowledgement[i] = completion_delay(costs, kind[i], size[i])
        way[i] = transfer_mode(costs.mode, costs.striping_threshold, kind[i], at, size[i])
    return alpha, beta, acknowledgement, way
