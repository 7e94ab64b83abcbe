"""Which links flows can compete for. All others only bound a flow by what they are wide."""

from __future__ import annotations

import numpy as np
from numba import njit

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.sim.unique import distinct


def meeting_links(
    out: IntArray,
    back: IntArray,
    links: IntArray,
    use: FloatArray,
    rate: FloatArray,
    capacity: FloatArray,
    *,
    shared: bool,
) -> BoolArray:
    """Resources that several flows may fill at the same time, shape (resources,).

    out, back       the ports that each path joins, shape (paths,)
    links, use      what it crosses, shape (paths, most links)
    rate            the most bytes per second its ports let through, shape (paths,)
    shared          messages share ports; else a port has one at a time in each direction

    Before a link there are some ports and behind it some others: no more than as many ports' worth
    of bytes can cross it at a time.
    """
    finite = np.isfinite(capacity)
    several = finite.copy()
    if not shared:
        several &= _several(out, links, len(finite)) & _several(back, links, len(finite))
        rate = np.minimum(rate, narrowest(links, use, capacity))
    path, hop = np.nonzero(np.append(several, False)[links])
    link = links[path, hop]
    fastest = np.zeros(len(several))
    np.maximum.at(fastest, link, rate[path] * use[path, hop])
    n = int(max(out.max(initial=0), back.max(initial=0))) + 1
    ports = np.minimum(
        *(
            np.bincount(distinct(link * n + port[path])[0] // n, minlength=len(several))
            for port in (out, back)
        )
    )
    with np.errstate(invalid="ignore"):
        return several & ~(ports * fastest <= capacity)


def narrowest(links: IntArray, use: FloatArray, capacity: FloatArray) -> FloatArray:
    """Bytes per second that the narrowest resource of each path lets through."""
    width = np.append(capacity, np.inf)[links]
    with np.errstate(divide="ignore", invalid="ignore"):
        through = np.where(use > 0.0, width / use, np.inf)
    narrow: FloatArray = through.min(axis=1, initial=np.inf)
    return narrow


@njit(cache=True)
def _several(port: IntArray, links: IntArray, resources: int) -> BoolArray:
    """Whether paths of more than one of the ports cross a resource."""
    first = np.full(resources, -1)
    several = np.zeros(resources, np.bool_)
    for i in range(len(port)):
        for link in links[i]:
            if link >= 0:
                if first[link] < 0:
                    first[link] = port[i]
                elif first[link] != port[i]:
                    several[link] = True
    return several
