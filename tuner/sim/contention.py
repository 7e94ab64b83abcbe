"""The links that flows can compete for; all others only bound the rate of a single flow."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray, Int32Array, IntArray
from tuner.sim.jit import njit_no_alloc

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
    fastest = np.zeros(len(several))
    for rows in _chunks(len(links)):
        load = np.ascontiguousarray(load_factor[rows])
        _raise_to_fastest(links[rows], load, rate[rows], several, fastest)
    ports = np.minimum(*(_count_ports(port, links, several) for port in (send_port, recv_port)))
    with np.errstate(invalid="ignore"):
        return several & ~(ports * fastest <= capacity)


def _chunks(n: int) -> Iterator[slice]:
    for begin in range(0, n, ROWS_PER_CHUNK):
        yield slice(begin, begin + ROWS_PER_CHUNK)


@njit_no_alloc()
def _raise_to_fastest(
    links: Int32Array,
    load_factor: FloatArray,
    rate: FloatArray,
    is_wanted: BoolArray,
    fastest: FloatArray,
) -> None:
    """Raise `fastest` to the most units per second with which a path crosses each resource."""
    for i in range(len(links)):
        for hop in range(links.shape[1]):
            link = links[i, hop]
            if link >= 0 and is_wanted[link]:
                fastest[link] = max(fastest[link], rate[i] * load_factor[i, hop])


def _count_ports(port: Int32Array, links: Int32Array, is_wanted: BoolArray) -> IntArray:
    """Return the number of different ports of the paths over each wanted resource, 0 for others."""
    ends = np.zeros(len(is_wanted) + 1, np.int64)
    for rows in _chunks(len(links)):
        crossed = links[rows][links[rows] >= 0]
        ends[1:] += np.bincount(crossed[is_wanted[crossed]], minlength=len(is_wanted))
    np.cumsum(ends, out=ends)
    by_link, latest = np.empty(ends[-1], np.int32), np.full(port.max(initial=0) + 1, -1, np.int32)
    counts = np.zeros(len(is_wanted), np.int64)
    _fill_port_counts(port, links, is_wanted, ends, by_link, latest, counts)
    return counts


@njit_no_alloc()
def _fill_port_counts(
    port: Int32Array,
    links: Int32Array,
    is_wanted: BoolArray,
    ends: IntArray,
    by_link: Int32Array,
    latest: Int32Array,
    counts: IntArray,
) -> None:
    """Sort the ports by resource into `by_link`, then count those of each resource.

    ends        where the ports of each resource begin, and after the call where they end
    latest      scratch space by port: the last resource at which it was counted
    """
    for i in range(len(links)):
        for hop in range(links.shape[1]):
            link = links[i, hop]
            if link >= 0 and is_wanted[link]:
                by_link[ends[link]] = port[i]
                ends[link] += 1
    at = 0
    for link in range(len(counts)):
        while at < ends[link]:
            if latest[by_link[at]] != link:
                latest[by_link[at]] = link
                counts[link] += 1
            at += 1


def bottleneck_rates(
    links: Int32Array, load_factor: FloatArray, capacity: FloatArray
) -> FloatArray:
    """Return the bytes per second that the slowest resource of each path lets through."""
    narrow = np.full(len(links), np.inf)
    for rows in _chunks(len(links)):
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
