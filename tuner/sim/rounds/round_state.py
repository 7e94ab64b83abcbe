"""Arrays that the compiled round engine works on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, FloatArray, Int32Array, IntArray
from tuner.sim.cost_arrays import CostArrays

Records = NDArray[np.void]

# State of a receiving port: when it is free, when the last message joined its queue and when that
# one began to pass; the first two also as they were before that message.
PORT_DTYPE = np.dtype(
    [
        ("free", "f8"),
        ("joined", "f8"),
        ("last", "f8"),
        ("free_before", "f8"),
        ("joined_before", "f8"),
    ]
)
SOME_CHUNKS_LONGER = 3  # value of `longer_kind`: some of a row's chunks are longer, some are not


class MachineArrays(NamedTuple):
    """Costs and routes of connections, as compiled code reads them.

    kind            kind of each connection
    send_port,      its ports, of two per rank
    recv_port
    path_bandwidth  bytes per second of its uncontended links, shape (modes, connections), for the
                    modes up to the last one that is used
    slot_start      shape (modes, connections + 1): contended resources of connection c in mode m
                    are slots slot_start[m, c] .. slot_start[m, c + 1] - 1
    slot, slot_load resource, and bytes that cross it per byte sent
    capacity        bytes per second of each resource
    reduction_costs launch (s) and gamma (s/byte) of the ways to reduce in host and in device
                    memory, shape (2, lines, 2)
    copy_costs      copies within host memory, within device memory, between them: three kinds
    """

    kind: Int32Array
    send_port: Int32Array
    recv_port: Int32Array
    costs: CostArrays
    path_bandwidth: FloatArray
    slot_start: Int32Array
    slot: Int32Array
    slot_load: FloatArray
    capacity: FloatArray
    reduction_costs: FloatArray
    copy_costs: CostArrays


class MessageSizes(NamedTuple):
    """The lengths of chunks for each message size, shape (sizes,).

    chunk_elements  elements of a shorter chunk
    more_elements   by how many longer chunks are longer
    longer_chunks   number of longer chunks, which come first
    itemsize        bytes of an element
    n_chunks        number of chunks of the buffer
    """

    chunk_elements: IntArray
    more_elements: IntArray
    longer_chunks: IntArray
    itemsize: int
    n_chunks: int


class RoundState(NamedTuple):
    """The state of each message size, and scratch space for one round.

    By message size:

    time            when each rank entered the present round, shape (sizes, p)
    port            state of each receiving port (`PORT_DTYPE`), shape (sizes, 2 p)
    busy_until      until when each resource carries bytes, shape (sizes, resources)
    is_valid        whether the size can be simulated round by round
    has_eager       whether the size may have eager messages

    By row of the round:

    ready               when both sides are ready
    flows               when it begins to flow, or for how long it flows
    sent, arrived       when the sender goes on, and when the message arrives
    completion_delay    seconds from the arrival until the sender goes on
    rate, nbytes, alpha bytes per second, bytes, seconds
    bytes_left          bytes left at `since`
    fair_rate,          rates being computed, and the rate without contention
    solo_rate
    longer_count,       how many of its chunks are longer ones; none (0), all (1) or some (3)
    longer_kind
    mode                transfer mode
    unfinished,         places in `ContentionGroups.rows` of flows that have not ended, that flow,
    flowing, growing    and whose rates grow
    order, merged       rows in the order in which they join queues, while that is found
    """

    time: FloatArray
    port: Records
    busy_until: FloatArray
    is_valid: BoolArray
    has_eager: BoolArray
    ready: FloatArray
    flows: FloatArray
    sent: FloatArray
    arrived: FloatArray
    completion_delay: FloatArray
    rate: FloatArray
    nbytes: FloatArray
    alpha: FloatArray
    bytes_left: FloatArray
    since: FloatArray
    fair_rate: FloatArray
    solo_rate: FloatArray
    port_start: FloatArray
    next_event: FloatArray
    send_free: FloatArray
    latest_ready: FloatArray
    local_seconds: FloatArray
    free_capacity: FloatArray
    demand: FloatArray
    longer_count: IntArray
    longer_kind: IntArray
    mode: IntArray
    unfinished: IntArray
    flowing: IntArray
    growing: IntArray
    order: IntArray
    merged: IntArray


FLOAT_ROW_FIELDS = (
    "ready",
    "flows",
    "sent",
    "arrived",
    "completion_delay",
    "rate",
    "nbytes",
    "alpha",
    "bytes_left",
    "since",
    "fair_rate",
    "solo_rate",
    "port_start",
    "next_event",
)
INT_ROW_FIELDS = (
    "longer_count",
    "longer_kind",
    "mode",
    "unfinished",
    "flowing",
    "growing",
    "order",
    "merged",
)


class ContentionGroups(NamedTuple):
    """Groups of rows that compete for links, directly or through others.

    rows, start     rows of group g are rows[start[g]:start[g + 1]]
    slot_start      shape (modes, len(rows) + 1): resources that rows[k] shares with others are
                    slots slot_start[m, k] .. slot_start[m, k + 1] - 1
    slot, slot_load as in `MachineArrays`; of resources that the same rows share only the one with
                    the smallest capacity
    """

    rows: IntArray
    start: IntArray
    slot_start: IntArray
    slot: Int32Array
    slot_load: FloatArray
