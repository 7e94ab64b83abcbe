"""From which size on a sender goes on only when it hears that its message arrived.

A ping-pong does not show it, for the answer is under way as long as the next message. Two ranks
that send to one another at the same time do: they then take a latency longer than one message
(MPICH over UCX and TCP, from some hundred bytes on; docs/decisions/0033-acknowledged.md).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tuner.calibrate.distances import Distances
from tuner.calibrate.ladders import Ladder, drawn_at
from tuner.calibrate.messages import Fitted
from tuner.calibrate.series import Series
from tuner.topology import NETWORK

PAIR = 2  # ranks: two alone keep in step
VISIBLE = 0.1  # of a message's time: what the links' latency must be to be told from noise


def acknowledged(one: Fitted, begin: float) -> Fitted:
    """The same, its senders waiting for an acknowledgement from `begin` bytes on."""
    return replace(one, cost=replace(one.cost, acknowledged_from=begin))


def acknowledged_from(series: Series, alone: Ladder, distances: Distances | None) -> float:
    """Bytes; infinite if no exchange took longer for it, or without a topology.

    alone       times of messages between two neighbours that nobody else sends to or from
    """
    if distances is None:
        return math.inf
    latency = distances.between(0, 1, alone.memory).latency
    largest_not, begin = 0.0, math.inf
    for nbytes, excess in _excesses(series, alone, latency):
        if excess < latency / 2:
            largest_not, begin = nbytes, math.inf
        elif begin == math.inf:
            begin = math.sqrt(max(largest_not, 1.0) * nbytes)
    return begin


def _excesses(series: Series, alone: Ladder, latency: float) -> list[tuple[float, float]]:
    """(bytes, seconds that an exchange of two takes longer than one message), ascending.

    Of sizes at which a latency is more than noise.
    """
    found = []
    for one in series.of("exchange", NETWORK, alone.memory):
        nbytes = float(one[0].nbytes)
        message = float(drawn_at(alone, np.array([nbytes]))[0, 0])
        if one[0].p == PAIR and latency >= VISIBLE * message:
            found.append((nbytes, float(series.median(one)[0]) - message))
    return sorted(found)
