"""What a port does with several messages: one at a time, or side by side.

Messages to several ranks that are posted together show it plainly: one at a time, the first has
arrived when it would have arrived alone; side by side, when all have. What lies between is neither,
such as a transport that passes on a part of each in turn. Short messages are told by bursts between
two ranks: one at a time each occupies the port for its overhead besides its bytes; side by side the
overheads run at the same time and only the bytes add up. A size at which the overhead does not show
against the bytes tells nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tuner.calibrate.bootstrap import estimate
from tuner.calibrate.latency_curve import Ladder, busy, marginal, parameters
from tuner.calibrate.point_to_point import Fitted
from tuner.calibrate.series_index import Launches, Series, params
from tuner.core.calibration import Estimate

VISIBLE = 0.1  # of the time per message, below which an overhead is lost in that of the bytes
GONE = 0.5  # of the overhead of the smallest messages; less is taken for side by side
# Of the time that further messages take, how much the first one waits for: less is one at a time,
# more is side by side. Messages in so few turns that they look like one of both are priced alike.
ALONE, BESIDE = 0.25, 0.75
APART = 1.2  # times as long as one message all together must take to tell anything


def shared_from(series: Series, one: Fitted, subject: str) -> tuple[float, str]:
    """Bytes from which on messages share a port, infinite if none do, and a sentence about what
    fans and bursts do not say; empty if they say it."""
    told = _of_bursts(series, one.ladder, subject, one.cost.overhead)
    waits = fans(series, subject, one)
    for fan in waits:
        if fan["high"] < ALONE or fan["low"] > BESIDE:
            told[fan["nbytes"]] = fan["low"] > BESIDE
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
        f"shared_from: {reach} of {subject} do not show whether they queue for a port or share"
        f" it{waited}; they are taken to queue"
    )


def fans(series: Series, subject: str, price: Fitted) -> list[dict[str, Any]]:
    """How much of the time of the others the first of several messages waits for, ascending in
    bytes; of the most peers. Sizes at which further messages take no longer are left out.

    What the sender measures, one message and all of them, is without the acknowledgement.
    """
    by_size: dict[int, dict[tuple[int, int], Launches]] = {}
    for one in series.of("fan", subject, price.ladder.memory):
        key = params(one, "peers"), params(one, "nth")
        by_size.setdefault(one[0].nbytes, {})[key] = one
    found = []
    for nbytes, times in by_size.items():
        peers = max(k for k, _ in times)
        wanted = [times.get(key) for key in ((1, 0), (peers, 1), (peers, 0))]
        if peers < 2 or None in wanted:
            continue
        alone, first, last = (series.median(one) for one in wanted if one)
        heard = price.latency * (nbytes >= price.cost.acknowledged_from)
        alone, last = alone - heard, last - heard
        if estimate(last / alone).low < APART:
            continue
        share = estimate((first - alone) / (last - alone))
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


def _of_bursts(series: Series, ladder: Ladder, subject: str, overhead: Estimate) -> dict[int, bool]:
    """Size -> whether messages go side by side, of those that tell it."""
    sizes = marginal(series, subject, ladder.memory)
    beta = busy(ladder, parameters(ladder)[1])
    told = {}
    for nbytes, each in sorted(sizes.items()):
        flow = beta[:, _line_of(ladder, nbytes)] * nbytes
        if overhead.value > 0.0 and overhead.low >= VISIBLE * float(each[0]):
            told[nbytes] = estimate((each - flow) / overhead.value).high < GONE
    return told


def exchanges(series: Series, ladders: dict[str, Ladder]) -> list[dict[str, Any]]:
    """How much longer both directions at once take than one, for provenance.

    rows    exchanges that followed one another at once; `ratio` is that of one of them
    ring    every rank to the next one, instead of pairs
    """
    found = []
    for path, ladder in ladders.items():
        alpha, beta = parameters(ladder)
        for one in series.of("exchange", path, ladder.memory):
            rows, nbytes = params(one, "rows", 1), one[0].nbytes
            line = _line_of(ladder, nbytes)
            lone = alpha[:, line] + beta[:, line] * nbytes
            ratio = estimate(series.median(one) / rows / lone)
            found.append(
                {
                    "path": path,
                    "nbytes": nbytes,
                    "rows": rows,
                    "ranks": one[0].p,
                    "ring": bool(params(one, "ring")),
                    "ratio": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                }
            )
    return found


def _line_of(ladder: Ladder, nbytes: int) -> int:
    first = [ladder.sizes[line.first] for line in ladder.lines[1:]]
    return int(np.searchsorted(first, nbytes, side="right"))
