"""The links that flows can compete for; all others only bound the rate of a single flow."""

from __future__ import annotations

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray, Int32Array
from tuner.sim.jit import njit_no_alloc
from tuner.sim.unique import unique_inverse

ROWS_PER_CHUNK = 1 << 16  # paths whose bandwidths are computed at once


def contended_links(
    send_port: Int32Array,
    recv_port: Int32Array,
    links: Int32Array,
    load_factor: FloatArray,
    rate: FloatArray,
    capacity: FloatArray,
    *,
    shared: bool,
) -> BoolArray:
    """Return which resources several flows may saturate together, shape (resources,).

    send_port, recv_port    ports at the ends of each path, shape (paths,)
    links, load_factor      resources that it crosses, and load per byte, shape (paths, most links)
    rate                    most bytes per second that its ports let through, shape (paths,)
    capacity                bytes per second of each resource
    shared                  whether messages share ports; if not, a port has one at a time in each
                            direction

    The load of a link is at most what the ports on its sending side, or those on its receiving
    side, let through.
    """
    finite = np.isfinite(capacity)
    several = finite.copy()
    if not shared:
        for port in (send_port, recv_port):
            crossed = np.zeros(len(finite), bool)
            _mark_several_ports(port, links, np.full(len(finite), -1, np.int32), crossed)
            several &= crossed
        if not several.any():
            return several
        rate = np.minimum(rate, bottleneck_rates(links, load_factor, capacity))
    path, hop = np.nonzero(np.append(several, False)[links])
    link = links[path, hop].astype(np.int64)
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


def bottleneck_rates(
    links: Int32Array, load_factor: FloatArray, capacity: FloatArray
) -> FloatArray:
    """Return the bytes per second that the slowest resource of each path lets through."""
    narrow = np.full(len(links), np.inf)
    for begin in range(0, len(links), ROWS_PER_CHUNK):
        rows = slice(begin, begin + ROWS_PER_CHUNK)
        load = np.ascontiguousarray(load_factor[rows])
        _lower_to_bottleneck(links[rows], load, capacity, narrow[rows])
    return narrow


@njit_no_alloc()
def _lower_to_bottleneck(
    links: Int32Array, load_factor: FloatArray, capacity: FloatArray, narrow: FloatArray
) -> None:
    for i in range(len(links)):
        for hop in range(links.shape[1]):
            if links[i, hop] >= 0 and load_factor[i, hop] > 0.0:
                narrow[i] = min(narrow[i], capacity[links[i, hop]] / load_factor[i, hop])


@njit_no_alloc()
def _mark_several_ports(
    port: Int32Array, links: Int32Array, first: Int32Array, several: BoolArray
) -> None:
    """Set `several` where paths of more than one of the ports cross a resource.

    first       the first port found at each resource, -1 for none
    """
    for i in range(len(port)):
        for link in links[i]:
            if link >= 0:
                if first[link] < 0:
                    first[link] = port[i]
                elif first[link] != port[i]:
                    several[link] = True
