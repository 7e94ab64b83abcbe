"""Find which messages are acknowledged before their senders go on.

A ping-pong does not show it, since the acknowledgement travels at the same time as the next
message. Two ranks that send to each other at the same time do: they then take a latency longer than
one message (MPICH over TCP, from some hundred bytes on; decision 0015).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tuner.calibrate.bootstrap import interval_estimate
from tuner.calibrate.latency_curve import predict_resampled
from tuner.calibrate.point_to_point import PathFit
from tuner.calibrate.series_index import SeriesIndex
from tuner.topology import NETWORK

RANKS_PER_PAIR = 2  # ranks; two alone stay in step
CALLS_PER_EXCHANGE = 2  # MPI calls of an exchange: one to start, one to wait
MIN_LATENCY_FRACTION = 0.2  # of a message's time; a smaller latency of the links is lost in noise
MIN_ACK_LATENCIES = 0.5  # fewest latencies that an acknowledgement may take
MAX_ACK_LATENCIES = 2.0  # most latencies that an acknowledgement may take
MIN_ACK_SIZES = 2  # sizes that must show it, as a single one may be an outlier


def with_sync_threshold(path_fit: PathFit, threshold: float) -> PathFit:
    """Return the fit with messages of `threshold` bytes and more acknowledged."""
    return replace(path_fit, cost=replace(path_fit.cost, sync_ack_threshold=threshold))


def fit_sync_threshold(series: SeriesIndex, uncontended: PathFit) -> tuple[float, str]:
    """Return the threshold of acknowledged messages in bytes, and a sentence if it is unknown.

    It is the size that contradicts the fewest observations, or infinite if no sender waits.

    uncontended     fit of messages between the hosts that exchanged them, without other traffic
    """
    seen = _sync_observations(series, uncontended)
    if len(seen) < MIN_ACK_SIZES:
        why = "no topology says how long those are under way"
        if uncontended.link_latency > 0.0:
            why = "no exchanges of two hosts at sizes that take at most five latencies"
        return math.inf, f"{NETWORK}: whether senders wait for acknowledgements, {why}"
    sizes, waits = [size for size, _ in seen], [wait for _, wait in seen]
    contradicted = [sum(waits[:k]) + waits[k:].count(False) for k in range(len(seen) + 1)]
    begin = min(range(len(seen), -1, -1), key=contradicted.__getitem__)
    if sum(waits[begin:]) < MIN_ACK_SIZES:
        return math.inf, ""
    return (math.sqrt(sizes[begin - 1] * sizes[begin]) if begin else 0.0), ""


def _sync_observations(series: SeriesIndex, uncontended: PathFit) -> list[tuple[float, bool]]:
    """Return (bytes, whether an exchange takes an acknowledgement longer than one message).

    They are ascending, for sizes at which the latency of the links is visible beside noise.
    """
    found = []
    for one in series.find("exchange", NETWORK, uncontended.latency_curve.memory):
        size = np.array([float(one[0].nbytes)])
        message = predict_resampled(uncontended.latency_curve, size)[:, 0]
        if (
            one[0].p != RANKS_PER_PAIR
            or uncontended.link_latency < MIN_LATENCY_FRACTION * message[0]
        ):
            continue
        longer = interval_estimate(
            series.median(one) - CALLS_PER_EXCHANGE * np.asarray(series.call_overhead) - message
        )
        low = MIN_ACK_LATENCIES * uncontended.link_latency
        high = MAX_ACK_LATENCIES * uncontended.link_latency
        found.append((float(size[0]), longer.low > low and longer.value < high))
    return sorted(found)
