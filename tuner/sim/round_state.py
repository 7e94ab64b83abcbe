"""What compiled code knows while a call is played round by round."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.sim.cost_arrays import CostArrays

Records = NDArray[np.void]

# What went through a receiving port: when it is free, when the last message joined its queue and
# when that one began to pass; the first two again as they were before that message.
PORT_DTYPE = np.dtype(
    [
        ("free", "f8"),
        ("joined", "f8"),
        ("last", "f8"),
        ("free_before", "f8"),
        ("joined_before", "f8"),
    ]
)
SOME_CHUNKS_LONGER = 3  # some of a message's chunks are longer ones, and some are not


class MachineArrays(NamedTuple):
    """What lanes cost and cross, as compiled code reads it.

    kind            of each lane
    out, back       its ports, of two per rank
    width           bytes per second of links for which nobody competes, shape (ways, lanes)
    slot_start      shape (ways, lanes + 1): meeting resources of a lane are slots slot_start[w, l]
                    .. slot_start[w, l + 1] - 1
    slot, slot_use  resource, and bytes that cross it per byte sent
    capacity        bytes per second of each resource
    folding         launch (s) and gamma (s/byte) of the ways to reduce in host and in device
                    memory, shape (2, lines, 2)
    copying         within host memory, within device memory, between them: its three kinds
    """

    kind: IntArray
    send_port: IntArray
    recv_port: IntArray
    costs: CostArrays
    path_bandwidth: FloatArray
    slot_start: IntArray
    slot: IntArray
    slot_load: FloatArray
    capacity: FloatArray
    reduction_costs: FloatArray
    copy_costs: CostArrays


class MessageSizes(NamedTuple):
    """Of each message size: elements per chunk, how many chunks have one more; bytes of one."""

    chunk_elements: IntArray
    longer_chunks: IntArray
    itemsize: int
    n_chunks: int


class RoundState(NamedTuple):
    """One row per size; and room for the rows of one round, for ranks, for resources.

    time        when each rank entered the present round, shape (sizes, p)
    port        what went through each receiving port (see `PASSED`), shape (sizes, 2 p)
    busy        until when a resource carries bytes, shape (sizes, resources)
    alive       whether the size can be played so
    eager       whether the size has eager messages

    Of a row: when both sides are ready, when it begins to flow (or for how long it will), when it
    frees its sender and arrives, how long after that its sender hears of it; bytes per second,
    bytes, alpha; bytes left at `since` and shares being worked out; how many of its chunks are
    longer ones (`whole`: none, all, some); its way; and lists of places in `Groups.rows`: of flows
    that have not ended, that flow, whose rates grow.
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
INT_ROW_FIELDS = ("longer_count", "longer_kind", "mode", "unfinished", "flowing", "growing")


class ContentionGroups(NamedTuple):
    """Rows that compete for links, directly or through others: rows[start[g]:start[g + 1]].

    slot_start      shape (ways, len(rows) + 1): what the row at place k of `rows` shares with
                    others are slots slot_start[w, k] .. slot_start[w, k + 1] - 1
    slot, use       as in `Machine`; of resources that the same rows share only the narrowest
    """

    rows: IntArray
    start: IntArray
    slot_start: IntArray
    slot: IntArray
    slot_load: FloatArray
