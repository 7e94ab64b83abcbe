"""What messages cost, as compiled code reads it: a row of figures for each kind of lane."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.core.calibration import Calibration, PathCost

STRAIGHT, STAGED, STRIPED = range(3)  # the ways of a lane


class Price(NamedTuple):
    """Of a kind of lane: its cost; seconds on top of alpha; and the latency of its links."""

    cost: PathCost
    more: float = 0.0
    latency: float = 0.0


class Tariff(NamedTuple):
    """Segments of the costs of every kind of lane, as compiled code reads them.

    lo, alpha, beta, lag,   shape (kinds, most segments); lo is infinite where there is no segment
    way
    overhead                shape (kinds,)
    eager_limit             messages of fewer bytes do not wait for the receiver, shape (kinds,)
    awaited_from            senders of this many bytes and more wait for it, shape (kinds,)
    acknowledged_from       and for an acknowledgement, shape (kinds,)
    acknowledgement         seconds that one is under way, shape (kinds,)
    stripe_from             bytes, shape (kinds,): infinite where nothing is striped
    shared_from, envelope   of the calibration
    """

    lo: FloatArray
    alpha: FloatArray
    beta: FloatArray
    lag: FloatArray
    way: IntArray
    overhead: FloatArray
    eager_limit: FloatArray
    awaited_from: FloatArray
    acknowledged_from: FloatArray
    acknowledgement: FloatArray
    stripe_from: FloatArray
    shared_from: float
    envelope: float


@njit(cache=True)
def segment_of(lo: FloatArray, kind: int, size: float) -> int:
    """The segment that a message of `size` bytes falls into, of `Tariff.lo`."""
    at = 0
    while at + 1 < lo.shape[1] and lo[kind, at + 1] <= size:
        at += 1
    return at


@njit(cache=True)
def way_of(way: IntArray, stripe_from: FloatArray, kind: int, segment: int, size: float) -> int:
    """Which way a message takes; what goes through host memory is not striped."""
    own = way[kind, segment]
    return STRIPED if own == STRAIGHT and size >= stripe_from[kind] else own


@njit(cache=True)
def acknowledgement_of(tariff: Tariff, kind: int, size: float) -> float:
    """Seconds from the arrival of a message until its sender goes on; -inf if that does not wait
    for the arrival."""
    if size >= tariff.acknowledged_from[kind]:
        return float(tariff.acknowledgement[kind])
    return -np.inf if size < tariff.awaited_from[kind] else 0.0


def tariff_of(calibration: Calibration, prices: list[Price], between_nodes: BoolArray) -> Tariff:
    """Prices as compiled code reads them; one kind for each."""
    most = max((len(price.cost.segments) for price in prices), default=1)
    lo = np.full((len(prices), most), math.inf)
    alpha, beta = np.zeros_like(lo), np.full_like(lo, math.inf)  # no speed where no segment is
    lag, way = np.zeros_like(lo), np.full(lo.shape, STRAIGHT)
    for number, (cost, more, _) in enumerate(prices):
        own = slice(0, len(cost.segments))
        lo[number, own] = [s.lo for s in cost.segments]
        alpha[number, own] = [s.alpha.value + more for s in cost.segments]
        beta[number, own] = [s.beta.value for s in cost.segments]
        lag[number, own] = [s.lag.value for s in cost.segments]
        way[number, own] = [STAGED if s.staged else STRAIGHT for s in cost.segments]
    striped = np.where(between_nodes, calibration.stripe_from, math.inf)
    return Tariff(
        lo,
        alpha,
        beta,
        lag,
        way,
        np.array([price.cost.overhead.value for price in prices]),
        np.array([max(price.cost.eager_limit, price.cost.ahead_limit) for price in prices]),
        np.array([price.cost.eager_limit for price in prices]),
        np.array([price.cost.acknowledged_from for price in prices]),
        np.array([price.latency for price in prices]),
        striped,
        calibration.shared_from,
        calibration.envelope,
    )


@njit(cache=True)
def prices(
    tariff: Tariff, kind: IntArray, size: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    """alpha with the lag, beta, acknowledgement and way of messages of these sizes and kinds."""
    alpha, beta, acknowledgement = np.empty((3, len(kind)))
    way = np.empty(len(kind), np.int64)
    for i in range(len(kind)):
        at = segment_of(tariff.lo, kind[i], size[i])
        alpha[i] = tariff.alpha[kind[i], at] + tariff.lag[kind[i], at] * size[i]
        beta[i] = tariff.beta[kind[i], at]
        acknowledgement[i] = acknowledgement_of(tariff, kind[i], size[i])
        way[i] = way_of(tariff.way, tariff.stripe_from, kind[i], at, size[i])
    return alpha, beta, acknowledgement, way
