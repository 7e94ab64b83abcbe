"""Find whether a port sends several messages one at a time, or concurrently.

Messages to several ranks that are posted together show it directly: one at a time, the first
arrives as if it had been sent alone; concurrently, it arrives with the last. Results in between are
neither, as with a transport that sends a part of each in turn. Short messages are classified by
message trains between two ranks: one at a time, each occupies the port for its overhead and its
bytes; concurrently, the overheads overlap and only the bytes add up. A size at which the overhead
is not visible beside the bytes says nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tuner.calibrate.bootstrap import interval_estimate
from tuner.calibrate.latency_curve import (
    LatencyCurve,
    marginal_times,
    port_occupancy,
    resampled_parameters,
)
from tuner.calibrate.point_to_point import PathFit
from tuner.calibrate.series_index import LaunchSeries, SeriesIndex, param
from tuner.core.calibration import Estimate

# Of the time per message; a smaller overhead is not visible beside the bytes.
MIN_VISIBLE_OVERHEAD = 0.1
MAX_CONCURRENT_OVERHEAD = 0.5  # of the overhead of the smallest messages; less counts as concurrent
# Share of the further messages' time that the first one waits for. Messages sent in a few parts may
# look serial or concurrent.
MAX_SERIAL_SHARE = 0.25  # at most this share: one message at a time
MIN_CONCURRENT_SHARE = 0.75  # at least this share: concurrent messages
MIN_FANOUT_SLOWDOWN = 1.2  # all messages must take this multiple of one's time


def fit_port_sharing_threshold(
    series: SeriesIndex, path_fit: PathFit, subject: str
) -> tuple[float, str]:
    """Return the bytes from which on messages share a port, infinite if none do, and a sentence.

    The sentence is about what fan-outs and message trains do not show; empty if they show it.
    """
    told = _sharing_from_trains(series, path_fit.latency_curve, subject, path_fit.cost.overhead)
    waits = fanout_ratios(series, subject, path_fit)
    for fan in waits:
        if fan["high"] < MAX_SERIAL_SHARE or fan["low"] > MIN_CONCURRENT_SHARE:
            told[fan["nbytes"]] = fan["low"] > MIN_CONCURRENT_SHARE
    queue = max((nbytes for nbytes, beside in told.items() if not beside), default=-1)
    begin = min((n for n, beside in told.items() if beside and n > queue), default=math.inf)
    if begin < math.inf:
        return float(begin), ""
    beyond = [fan for fan in waits if fan["nbytes"] > queue]
    if not beyond and waits:
        return math.inf, ""
    reach = f"up to {queue} B messages queue; larger ones" if queue >= 0 else "messages"
    waited = f" (the first waits for {beyond[-1]['share']:.0%} of the others)" if beyond else ""
    return math.inf, (
        f"port_sharing_threshold: {reach} of {subject} do not show whether they queue for a port or"
        f" share it{waited}; they are taken to queue"
    )


def fanout_ratios(series: SeriesIndex, subject: str, path_fit: PathFit) -> list[dict[str, Any]]:
    """Return the share of the other messages' time that the first of several waits for, by size.

    Records are ascending in bytes and for the most peers. Sizes at which further messages take no
    longer are left out. The sender's times, of one message and of all, are without acknowledgement.
    """
    by_size: dict[int, dict[tuple[int, int], LaunchSeries]] = {}
    for one in series.find("fan", subject, path_fit.latency_curve.memory):
        key = param(one, "peers"), param(one, "nth")
        by_size.setdefault(one[0].nbytes, {})[key] = one
    found = []
    for nbytes, times in by_size.items():
        peers = max(k for k, _ in times)
        wanted = [times.get(key) for key in ((1, 0), (peers, 1), (peers, 0))]
        if peers < 2 or None in wanted:
            continue
        alone, first, last = (series.median(one) for one in wanted if one)
        heard = path_fit.link_latency * (nbytes >= path_fit.cost.sync_ack_threshold)
        alone, last = alone - heard, last - heard
        if interval_estimate(last / alone).low < MIN_FANOUT_SLOWDOWN:
            continue
        share = interval_estimate((first - alone) / (last - alone))
        found.append(
            {
                "nbytes": nbytes,
                "peers": peers,
                "share": share.value,
                "low": share.low,
                "high": share.high,
            }
        )
    return found


def _sharing_from_trains(
    series: SeriesIndex, curve: LatencyCurve, subject: str, overhead: Estimate
) -> dict[int, bool]:
    """Return size -> whether messages are sent concurrently, where message trains show it."""
    sizes = marginal_times(series, subject, curve.memory)
    beta = port_occupancy(curve, resampled_parameters(curve)[1])
    told = {}
    for nbytes, each in sorted(sizes.items()):
        flow = beta[:, _line_index(curve, nbytes)] * nbytes
        if overhead.value > 0.0 and overhead.low >= MIN_VISIBLE_OVERHEAD * float(each[0]):
            told[nbytes] = (
                interval_estimate((each - flow) / overhead.value).high < MAX_CONCURRENT_OVERHEAD
            )
    return told


def duplex_ratios(series: SeriesIndex, curves: dict[str, LatencyCurve]) -> list[dict[str, Any]]:
    """Return how much longer both directions at once take than one, for provenance.

    rows    exchanges that followed one another at once; `ratio` is that of one of them
    ring    every rank sends to the next one, instead of pairs
    """
    found = []
    for path, curve in curves.items():
        alpha, beta = resampled_parameters(curve)
        for one in series.find("exchange", path, curve.memory):
            rows, nbytes = param(one, "rows", 1), one[0].nbytes
            line = _line_index(curve, nbytes)
            lone = alpha[:, line] + beta[:, line] * nbytes
            ratio = interval_estimate(series.median(one) / rows / lone)
            found.append(
                {
                    "path": path,
                    "nbytes": nbytes,
                    "rows": rows,
                    "ranks": one[0].p,
                    "ring": bool(param(one, "ring")),
                    "ratio": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                }
            )
    return found


def _line_index(curve: LatencyCurve, nbytes: int) -> int:
    first = [curve.sizes[line.first] for line in curve.lines[1:]]
    return int(np.searchsorted(first, nbytes, side="right"))
