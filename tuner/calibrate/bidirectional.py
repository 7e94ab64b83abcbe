"""What messages cost whose receivers send at the same time: face to face, or round a circle.

Ranks that start together exchange at once. In what follows they are out of step, and a message may
take twice as long as alone (docs/adr/0015-exchanges.md): k exchanges in a row less a single
one, over k - 1, is what one of them takes. The acknowledgement that a sender waits for is part of
that, and is priced apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray
from tuner.calibrate.bootstrap import QUARTILES
from tuner.calibrate.host_distances import Distances
from tuner.calibrate.latency_curve import Ladder, drawn_at
from tuner.calibrate.piecewise import SHORTEST, fit_lines
from tuner.calibrate.point_to_point import Fitted, fitted
from tuner.calibrate.series_index import Launches, Series, params
from tuner.calibrate.sync_send import PAIR, acknowledged
from tuner.topology import EXCHANGE, NETWORK, RING

AROUND = {EXCHANGE: 0, RING: 1}  # path class -> `ring` of its exchanges


def meetings(
    series: Series, memory: str, alone: Fitted, distances: Distances | None
) -> tuple[dict[str, Fitted], list[str]]:
    """Path class -> price of messages that meet others, and sentences about what is not known.

    alone       price of a message between two hosts that nobody else sends to or from
    distances   between hosts; the farthest that meet set the pace

    No message is faster than alone.
    """
    found: dict[str, Fitted] = {}
    gaps: list[str] = []
    for name, ring in AROUND.items():
        drawn = _following(series, memory, ring)
        if len(drawn) < SHORTEST:
            gaps.append(
                f"{name}: rows of exchanges of all hosts at {SHORTEST} sizes; priced as {NETWORK}"
            )
        else:
            latency, begin = alone.latency, alone.cost.acknowledged_from
            if distances is not None:
                latency = _latency(distances, ring, _turns(series, memory), memory)
            lone = {n: each - latency * (n >= begin) for n, each in drawn.items()}
            own = _ladder(name, alone, lone, latency - alone.latency)
            found[name] = acknowledged(fitted(series, own, NETWORK, latency), begin)
    return found, gaps


def _turns(series: Series, memory: str) -> int:
    """1 if pairs changed from row to row, as they did not always."""
    found = series.of("exchange", NETWORK, memory)
    return max((params(one, "turns") for one in found), default=0)


def _latency(distances: Distances, ring: int, turns: int, memory: str) -> float:
    """Seconds of the links between the farthest of those that meet."""
    hosts = len(distances.hosts) or len(distances.topology.nodes)
    met = [(one, (one + 1) % hosts) for one in range(hosts)]
    if not ring:  # by turns, of each four (tuner.probe.pointtopoint.partners)
        met = [(one, one ^ 1) for one in range(hosts - hosts % 2)]
        met += [(one, one ^ 2) for one in range(turns * (hosts - hosts % 4))]
    return max(distances.between(*pair, memory).latency for pair in met)


def _following(series: Series, memory: str, ring: int) -> dict[int, FloatArray]:
    """Size -> drawn seconds of an exchange that follows another one."""
    rows: dict[int, dict[int, Launches]] = {}
    turns = 0 if ring else _turns(series, memory)
    for one in series.of("exchange", NETWORK, memory):
        meant = params(one, "ring") == ring and params(one, "turns") == turns
        if one[0].p > PAIR and meant:
            rows.setdefault(one[0].nbytes, {})[params(one, "rows", 1)] = one
    return {
        nbytes: _each(series, taken) for nbytes, taken in sorted(rows.items()) if len(taken) > 1
    }


def _each(series: Series, taken: Mapping[int, Launches]) -> FloatArray:
    few, many = min(taken), max(taken)
    return (series.midmean(taken[many]) - series.median(taken[few])) / (many - few)


def _ladder(name: str, alone: Fitted, drawn: Mapping[int, FloatArray], farther: float) -> Ladder:
    """With `farther` seconds more of links than lone messages had."""
    near = alone.ladder
    sizes = np.array([float(nbytes) for nbytes in drawn])
    times = np.maximum(np.stack(list(drawn.values()), axis=1), drawn_at(near, sizes) + farther)
    spread = _spread(times, sizes >= alone.cost.eager_limit)
    lines = fit_lines(sizes, times[0], spread, [alone.cost.eager_limit])
    return Ladder(name, near.memory, sizes, times, spread, lines, near.steepest)


def _spread(times: FloatArray, answered: BoolArray) -> FloatArray:
    """Relative standard error of drawn times, by their quartiles.

    How many messages of a row wait for an answer is chance, and its samples may all have seen the
    same by chance: sizes whose messages are answered are trusted equally.
    """
    low, high = np.quantile(times[1:], [0.25, 0.75], axis=0)
    error: FloatArray = (high - low) / QUARTILES / times[0]
    if answered.any():
        error[answered] = np.sqrt(np.mean(error[answered] ** 2))
    return error
