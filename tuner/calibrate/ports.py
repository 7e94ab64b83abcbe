"""What a port does with several messages: one at a time, or side by side.

One at a time each message of a burst occupies the port for its overhead besides its bytes; side by
side the overheads run at the same time and only the bytes add up. That is all that a burst between
two ranks can tell, so a size at which the overhead does not show against the bytes tells nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tuner.calibrate.draws import Floats, estimate
from tuner.calibrate.ladders import Ladder, parameters
from tuner.calibrate.series import Launches, Series, params
from tuner.cost import Estimate

VISIBLE = 0.1  # of the time per message, below which an overhead is lost in that of the bytes
GONE = 0.5  # of the overhead of the smallest messages; less is taken for side by side


def shared_from(
    series: Series, ladder: Ladder, subject: str, overhead: Estimate
) -> tuple[float, str]:
    """Bytes from which on messages share a port, infinite if none do, and a sentence about what
    the bursts do not say; empty if they say it."""
    sizes = _marginal(series, subject, ladder.memory)
    _, beta = parameters(ladder)
    telling, shared = [], []
    for nbytes, each in sorted(sizes.items()):
        flow = beta[:, _line_of(ladder, nbytes)] * nbytes
        if overhead.low < VISIBLE * float(each[0]):
            continue
        telling.append(nbytes)
        if estimate((each - flow) / overhead.value).high < GONE:
            shared.append(nbytes)
    fifo = [nbytes for nbytes in telling if nbytes not in shared]
    begin = min((n for n in shared if n > max(fifo, default=-1)), default=math.inf)
    if begin < math.inf:
        return float(begin), ""
    reach = f"up to {max(telling)} B bursts queue; larger ones" if telling else "bursts"
    return math.inf, (
        f"shared_from: {reach} do not show whether messages of {subject} queue for a port or"
        " share it; they are taken to queue"
    )


def exchanges(series: Series, ladders: dict[str, Ladder]) -> list[dict[str, Any]]:
    """How much longer both directions at once take than one, for provenance.

    rows    exchanges that followed one another at once; `ratio` is that of one of them
    ring    1 where every rank sent to one and received from another, `pairs` being all ranks / 2
    """
    found = []
    for path, ladder in ladders.items():
        alpha, beta = parameters(ladder)
        for one in series.of("exchange", path, ladder.memory):
            rows, nbytes = params(one, "rows", 1), one[0].nbytes
            line = _line_of(ladder, nbytes)
            lone = alpha[:, line] + beta[:, line] * nbytes
            ratio = estimate(series.median(one) / rows / lone)
            found.append({
                "path": path, "nbytes": nbytes, "rows": rows, "pairs": one[0].p // 2,
                "ring": params(one, "ring"), "ratio": ratio.value, "low": ratio.low,
                "high": ratio.high,
            })  # fmt: skip
    return found


def _marginal(series: Series, subject: str, memory: str) -> dict[int, Floats]:
    """Size -> drawn seconds of a further message in a burst of one pair."""
    by_size: dict[int, list[Launches]] = {}
    for one in series.of("burst", subject, memory):
        if one[0].p == 2:
            by_size.setdefault(one[0].nbytes, []).append(one)
    found = {}
    for nbytes, bursts in by_size.items():
        bursts.sort(key=lambda one: params(one, "messages"))
        further = params(bursts[-1], "messages") - params(bursts[0], "messages")
        if further > 0:
            found[nbytes] = (series.median(bursts[-1]) - series.median(bursts[0])) / further
    return found


def _line_of(ladder: Ladder, nbytes: int) -> int:
    first = [ladder.sizes[line.first] for line in ladder.lines[1:]]
    return int(np.searchsorted(first, nbytes, side="right"))
