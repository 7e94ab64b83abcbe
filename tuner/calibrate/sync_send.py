"""Which messages are acknowledged before their senders go on.

A ping-pong does not show it, for the acknowledgement is under way as long as the next message. Two
ranks that send to one another at the same time do: they then take a latency longer than one message
(MPICH over TCP, from some hundred bytes on; docs/adr/0033-acknowledged.md).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tuner.calibrate.bootstrap import estimate
from tuner.calibrate.latency_curve import drawn_at
from tuner.calibrate.point_to_point import Fitted
from tuner.calibrate.series_index import Series
from tuner.topology import NETWORK

PAIR = 2  # ranks: two alone keep in step
CALLS = 2  # of an exchange: everything is started, and waited for
VISIBLE = 0.2  # of a message's time: what the links' latency must be to be told from noise
LEAST, MOST = 0.5, 2.0  # latencies that an acknowledgement takes; what takes more is something else
FEWEST = 2  # sizes that must show it: one alone may be off


def acknowledged(one: Fitted, begin: float) -> Fitted:
    """The same, its messages of `begin` bytes and more acknowledged."""
    return replace(one, cost=replace(one.cost, acknowledged_from=begin))


def acknowledged_from(series: Series, alone: Fitted) -> tuple[float, str]:
    """Bytes, infinite if nobody waits for it, and a sentence if the series do not show it.

    alone       price of messages between the hosts that exchanged them, with nobody else about

    Where it begins is the size that the fewest other sizes contradict.
    """
    seen = _seen(series, alone)
    if len(seen) < FEWEST:
        why = "no topology says how long those are under way"
        if alone.latency > 0.0:
            why = "no exchanges of two hosts at sizes that take at most five latencies"
        return math.inf, f"{NETWORK}: whether senders wait for acknowledgements, {why}"
    sizes, waits = [size for size, _ in seen], [wait for _, wait in seen]
    contradicted = [sum(waits[:k]) + waits[k:].count(False) for k in range(len(seen) + 1)]
    begin = min(range(len(seen), -1, -1), key=contradicted.__getitem__)
    if sum(waits[begin:]) < FEWEST:
        return math.inf, ""
    return (math.sqrt(sizes[begin - 1] * sizes[begin]) if begin else 0.0), ""


def _seen(series: Series, alone: Fitted) -> list[tuple[float, bool]]:
    """(bytes, whether an exchange of two takes an acknowledgement longer than one message).

    Ascending; of sizes at which the latency of the links is more than noise.
    """
    found = []
    for one in series.of("exchange", NETWORK, alone.ladder.memory):
        size = np.array([float(one[0].nbytes)])
        message = drawn_at(alone.ladder, size)[:, 0]
        if one[0].p != PAIR or alone.latency < VISIBLE * message[0]:
            continue
        longer = estimate(series.median(one) - CALLS * np.asarray(series.call) - message)
        low, high = LEAST * alone.latency, MOST * alone.latency
        found.append((float(size[0]), longer.low > low and longer.value < high))
    return sorted(found)
