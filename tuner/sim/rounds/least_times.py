"""Times that a call takes at least, found without simulating it.

Two sums are bounds, whichever engine simulates the call:

- A rank goes through its rounds one after another, and in each of them it takes at least the time
  of its longest message alone, and of its reductions. An eager message takes no time of its
  receiver, for whom it may be there already.
- A port passes its messages one after another.

Rounds of one type have the same costs, so that each type is looked at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray, Int32Array
from tuner.sim.cost_arrays import completion_delay, find_segment, transfer_mode
from tuner.sim.jit import njit_no_alloc
from tuner.sim.rounds.round_engine import Bytes, reduction_seconds, uncontended_rate

ROUNDING = 1e-9  # relative error of sums in another order


class LeastTimes:
    """Sums of what rounds take at least.

    at_rank     of each rank, shape (sizes, p)
    at_port     of each port that sends (0) or receives (1), shape (sizes, 2, 2 p)
    """

    def __init__(self, machine: Any, sizes: Any, keeps_ports: BoolArray, p: int) -> None:
        self._machine, self._sizes, self._keeps_ports = machine, sizes, keeps_ports
        self.at_rank = np.zeros((len(sizes.chunk_elements), p))
        self.at_port = np.zeros((len(sizes.chunk_elements), 2, 2 * p))
        self._longest, self._local = np.zeros((2, p))

    def add(self, times: int, round_type: Any, count: Int32Array, reduce: Bytes) -> None:
        """Add so many rounds of a type that have the same columns `count` and `reduce`."""
        _add_rounds(
            self._machine,
            self._sizes,
            self._keeps_ports,
            times,
            round_type.src,
            round_type.dst,
            round_type.connection,
            round_type.memory,
            count,
            reduce,
            self.at_rank,
            self.at_port,
            self._longest,
            self._local,
        )

    def seconds(self) -> FloatArray:
        """Return the seconds that the call takes at least, shape (sizes,)."""
        least = np.maximum(self.at_rank.max(axis=1), self.at_port.max(axis=(1, 2)))
        found: FloatArray = least * (1.0 - ROUNDING)
        return found


@njit_no_alloc()
def _add_rounds(
    machine: Any,
    sizes: Any,
    keeps_ports: BoolArray,
    times: int,
    src: Int32Array,
    dst: Int32Array,
    connection: Int32Array,
    memory: Bytes,
    count: Int32Array,
    reduce: Bytes,
    at_rank: FloatArray,
    at_port: FloatArray,
    longest: FloatArray,
    local: FloatArray,
) -> None:
    """Add rounds to the sums; `longest` and `local` are zeros before and after, one per rank."""
    for z in range(len(sizes.chunk_elements)):
        more = sizes.itemsize * sizes.more_elements[z] if sizes.longer_chunks[z] > 0 else 0
        for i in range(len(src)):
            low = float(count[i] * sizes.chunk_elements[z] * sizes.itemsize)
            if low == 0.0:
                continue
            if reduce[i] != 0:
                local[dst[i]] += reduction_seconds(machine.reduction_costs, min(1, memory[i]), low)
            if src[i] == dst[i]:
                continue
            flow, sent, arrived = _message_seconds(
                machine, connection[i], low, low + count[i] * more
            )
            longest[src[i]] = max(longest[src[i]], sent)
            longest[dst[i]] = max(longest[dst[i]], arrived)
            if keeps_ports[connection[i]]:
                at_port[z, 0, machine.send_port[connection[i]]] += times * flow
                at_port[z, 1, machine.recv_port[connection[i]]] += times * flow
        for i in range(len(src)):
            for rank in (src[i], dst[i]):
                at_rank[z, rank] += times * (longest[rank] + local[rank])
                longest[rank] = local[rank] = 0.0


@njit_no_alloc()
def _message_seconds(
    machine: Any, connection: int, low: float, high: float
) -> tuple[float, float, float]:
    """Return how long a message alone takes its ports, its sender and its receiver.

    low     bytes of the message where all chunks are of the shorter length
    high    the same where all are of the longer one

    All are 0 where costs may be others between `low` and `high`.
    """
    costs, kind = machine.costs, machine.kind[connection]
    at = find_segment(costs.start_bytes, kind, low)
    way = transfer_mode(costs.mode, costs.striping_threshold, kind, at, low)
    delay = completion_delay(costs, kind, low)
    if (
        at != find_segment(costs.start_bytes, kind, high)
        or way != transfer_mode(costs.mode, costs.striping_threshold, kind, at, high)
        or delay != completion_delay(costs, kind, high)
        or (low < costs.eager_limit[kind] <= high)
    ):
        return 0.0, 0.0, 0.0
    rate = uncontended_rate(machine, kind, at, way, connection)
    flow = costs.overhead[kind] + (low + costs.header_bytes) / rate
    arrived = flow + costs.alpha[kind, at] + costs.latency_per_byte[kind, at] * low
    return flow, max(flow, arrived + delay), arrived if low >= costs.eager_limit[kind] else 0.0
