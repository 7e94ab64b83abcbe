"""Which links flows can compete for. All others only bound a flow by what they are wide."""

from __future__ import annotations

import numpy as np
from numba import njit

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.sim.unique import unique_inverse


def contended_links(
    send_port: IntArray,
    recv_port: IntArray,
    links: IntArray,
    load_factor: FloatArray,
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
        several &= _has_several_ports(send_port, links, len(finite)) & _has_several_ports(
            recv_port, links, len(finite)
        )
        rate = np.minimum(rate, bottleneck_rates(links, load_factor, capacity))
    path, hop = np.nonzero(np.append(several, False)[links])
    link = links[path, hop]
    fastest = np.zeros(len(several))
    np.maximum.at(fastest, link, rate[path] * load_factor[path, hop])
    n = int(max(send_port.max(initial=0), recv_port.max(initial=0))) + 1
    ports = np.minimum(
        *(
            np.bincount(unique_inverse(link * n + port[path])[0] // n, minlength=len(several))
            for port in (send_port, recv_port)
        )
    )
    with np.errstate(invalid="ignore"):
        return several & ~(ports * fastest <= capacity)


def bottleneck_rates(links: IntArray, load_factor: FloatArray, capacity: FloatArray) -> FloatArray:
    """Bytes per second that the narrowest resource of each path lets through."""
    width = np.append(capacity, np.inf)[links]
    with np.errstate(divide="ignore", invalid="ignore"):
        through = np.where(load_factor > 0.0, width / load_factor, np.inf)
    narrow: FloatArray = through.min(axis=1, initial=np.inf)
    return narrow


@njit(cache=True)
def _has_several_ports(port: IntArray, links: IntArray, resources: int) -> BoolArray:
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
