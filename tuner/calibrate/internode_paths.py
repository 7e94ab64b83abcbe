"""Paths between nodes: one price for the class, and one for each distance that was measured.

The price of the class leaves the latency of links to the topology, so it serves any distance. What
was measured end to end goes under the simulator's own name for that distance and wins there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.calibrate.bootstrap import INSTANT, estimate
from tuner.calibrate.host_distances import Distances, Way
from tuner.calibrate.latency_curve import Ladder, busy, drawn_at, ladder, parameters
from tuner.calibrate.point_to_point import Fitted, fitted
from tuner.calibrate.series_index import Launches, Series, params
from tuner.calibrate.shared_bandwidth import FASTEST, UPLINK
from tuner.topology import NETWORK

WHOLE = 8  # sizes among which protocols can be found; fewer only show what another distance adds

Shift = tuple[
    FloatArray, FloatArray
]  # drawn seconds, and seconds per byte, more than the reference takes


def network(
    series: Series, memory: str, distances: Distances | None
) -> tuple[dict[str, Fitted], list[str]]:
    """Name of the path -> its price; and sentences about distances that remain unknown.

    Without a topology the class alone, with the latency of the links in it. The class is priced
    from the pair that is nearest. Raises InputError when hosts are not on the topology.
    """
    places: dict[tuple[int, int], list[Launches]] = defaultdict(list)
    for one in series.of("pingpong", NETWORK, memory):
        if one[0].p == 2:
            places[params(one, "first", 0), params(one, "second", 1)].append(one)
    if not places:
        return {}, []
    if distances is None:
        whole = ladder(series, NETWORK, memory, next(iter(places.values())))
        return ({NETWORK: fitted(series, whole, NETWORK)} if whole else {}), []
    pairs: dict[Way, list[Launches]] = {}
    for place, found in places.items():
        pairs.setdefault(distances.between(*place, memory), found)
    reference = min(pairs, key=lambda way: (way.latency, way.name))
    near = ladder(series, NETWORK, memory, pairs.pop(reference))
    if near is None:
        return {}, []
    prices = {NETWORK: fitted(series, near, NETWORK, reference.latency)}
    apart = [one for one in series.of("pairs", UPLINK, memory) if one[0].p == 2]
    if apart and distances.farthest(memory) != reference:
        pairs.setdefault(distances.farthest(memory), apart)
    others, gaps = _others(series, distances, near, reference, pairs)
    if others:  # the nearest is known end to end as well
        prices[reference.name] = fitted(series, replace(near, path=reference.name), NETWORK)
    return prices | others, [*gaps, *_too_fast(prices[NETWORK], reference)]


def _too_fast(price: Fitted, way: Way) -> list[str]:
    """The simulator never goes faster than the links of the topology."""
    beta = price.cost.segments[-1].beta
    if beta.high * way.rate >= 1.0:
        return []
    return [
        f"{NETWORK}: messages moved {1 / max(beta.value, FASTEST):.4g} B/s where the topology's"
        f" links move {way.rate:.4g} B/s: correct the topology"
    ]


def _others(
    series: Series,
    distances: Distances,
    near: Ladder,
    reference: Way,
    pairs: dict[Way, list[Launches]],
) -> tuple[dict[str, Fitted], list[str]]:
    """Prices of the distances beyond the nearest."""
    prices: dict[str, Fitted] = {}
    gaps: list[str] = []
    swept = _swept(series, distances, near.memory)
    for way in [*pairs, *(way for way in swept if way not in pairs and way != reference)]:
        points = pairs.get(way, [])
        if len(points) >= WHOLE and (own := ladder(series, way.name, near.memory, points, NETWORK)):
            prices[way.name] = fitted(series, own, NETWORK)
            continue
        here, there = _by_size(series, pairs, swept, way), swept.get(reference)
        shift = _shift(here, there or _lined(near, list(here)))
        if shift is None:
            gaps.append(f"{way.name}: too few sizes; priced as {NETWORK} and the links' latency")
        else:
            prices[way.name] = _shifted(series, near, way.name, shift)
    return prices, gaps


def _swept(series: Series, distances: Distances, memory: str) -> dict[Way, dict[int, FloatArray]]:
    """Distance -> size -> drawn seconds, of the middle one of its pairs."""
    times: dict[Way, dict[int, list[FloatArray]]] = defaultdict(lambda: defaultdict(list))
    for one in series.of("sweep", NETWORK, memory):
        way = distances.between(params(one, "first"), params(one, "second"), memory)
        times[way][one[0].nbytes].append(series.median(one))
    return {
        way: {size: np.median(drawn, axis=0) for size, drawn in sorted(sizes.items())}
        for way, sizes in times.items()
    }


def _by_size(
    series: Series,
    pairs: dict[Way, list[Launches]],
    swept: dict[Way, dict[int, FloatArray]],
    way: Way,
) -> dict[int, FloatArray]:
    if way not in pairs:
        return swept[way]
    return {one[0].nbytes: series.median(one) for one in pairs[way]}


def _lined(near: Ladder, sizes: Sequence[int]) -> dict[int, FloatArray]:
    """What the lines of a ladder say about sizes."""
    drawn = drawn_at(near, np.array(sizes, dtype=float))
    return {nbytes: drawn[:, k] for k, nbytes in enumerate(sizes)}


def _shift(here: dict[int, FloatArray], there: dict[int, FloatArray]) -> Shift | None:
    """The line through the differences at the sizes of both, with relative weights."""
    both = sorted(set(here) & set(there))
    if len(both) < 2:
        return None
    sizes = np.array(both, dtype=float)
    apart = np.stack([here[n] - there[n] for n in both], axis=1)
    weight = np.stack([here[n] for n in both], axis=1) ** -2
    weight /= weight.sum(axis=1, keepdims=True)
    centre, middle = weight @ sizes, np.sum(weight * apart, axis=1)
    off = sizes - centre[:, None]
    slope = np.sum(weight * off * apart, axis=1) / np.sum(weight * off**2, axis=1)
    return middle - slope * centre, slope


def _shifted(series: Series, near: Ladder, name: str, shift: Shift) -> Fitted:
    """The price of the nearest pair, with so much more latency and time per byte."""
    alpha, beta = parameters(near)
    base, flows = fitted(series, near, NETWORK), busy(near, beta)
    overhead = base.cost.overhead.value
    segments = tuple(
        replace(
            segment,
            alpha=estimate(np.maximum(alpha[:, k] - overhead + shift[0], 0.0)),
            beta=estimate(np.maximum(flows[:, k] + shift[1], 0.0)),
        )
        for k, segment in enumerate(base.cost.segments)
    )
    more = shift[0][:, None] + shift[1][:, None] * near.sizes
    moved = replace(near, path=name, times=np.maximum(near.times + more, INSTANT))
    lines = tuple(
        replace(line, alpha=s.alpha.value + overhead, beta=s.beta.value + s.lag.value)
        for line, s in zip(near.lines, segments, strict=True)
    )
    cost = replace(base.cost, segments=segments)
    source = {**base.sources, "line": "the nearest pair's, moved by what other sizes show"}
    return Fitted(replace(moved, lines=lines), cost, 0.0, (), source, moved=True)
