"""Max-min fair rates of flows that share links and ports.

A flow uses `load_factor` units of each resource that it crosses per byte: 1 on a link (capacity in
bytes per second), beta on a port (capacity 1: a port is busy for beta seconds per byte).
Progressive filling: all rates grow alike until a resource is full; its flows are frozen; the others
go on (Bertsekas and Gallager, Data Networks, section 6.5.2).
"""

from __future__ import annotations

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.base.compiled import compiled

RATE_TIE_FACTOR = 1.0 + 1e-12  # rates within this factor of one another count as equal


@compiled()
def fair_rates(resources: IntArray, load_factor: FloatArray, capacity: FloatArray) -> FloatArray:
    """Return rates in bytes per second, shape (flows,); infinite where nothing bounds a flow.

    resources       shape (flows, most resources of a flow), -1 for none
    load_factor     the same shape: units per byte
    capacity        units per second of each resource, may be infinite
    """
    rates = np.full(len(resources), np.inf)
    free = capacity.copy()
    demand = np.zeros(len(capacity))
    growing = np.arange(len(resources))
    while len(growing) > 0:
        _sum_demand(resources, load_factor, growing, demand)
        level = np.array(
            [_saturation_rate(resources[i], load_factor[i], free, demand) for i in growing]
        )
        lowest = level.min()
        if lowest == np.inf:
            break
        frozen = level <= lowest * RATE_TIE_FACTOR
        rates[growing[frozen]] = level[frozen]
        for i in growing[frozen]:
            for k in range(resources.shape[1]):
                if resources[i, k] >= 0:
                    free[resources[i, k]] -= rates[i] * load_factor[i, k]
        growing = growing[~frozen]
    return rates


@compiled()
def _sum_demand(
    resources: IntArray, load_factor: FloatArray, growing: IntArray, demand: FloatArray
) -> None:
    """Sum the units per second that each resource gives up when all growing flows gain 1 byte/s."""
    for i in growing:
        for k in range(resources.shape[1]):
            if resources[i, k] >= 0:
                demand[resources[i, k]] = 0.0
    for i in growing:
        for k in range(resources.shape[1]):
            if resources[i, k] >= 0:
                demand[resources[i, k]] += load_factor[i, k]


@compiled()
def _saturation_rate(
    resources: IntArray, load_factor: FloatArray, free: FloatArray, demand: FloatArray
) -> float:
    """Return the rate at which the first resource of a flow is full."""
    level = np.inf
    for k in range(len(resources)):
        if resources[k] >= 0 and load_factor[k] > 0.0:
            level = min(level, free[resources[k]] / demand[resources[k]])
    return level
