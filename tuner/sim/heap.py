"""A compiled binary heap of numbered items whose times can be changed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner.base.arrays import FloatArray, Int32Array, IntArray
from tuner.sim.jit import njit_no_alloc


class Heap(NamedTuple):
    """A binary heap of items ordered by time; every item is in it at most once.

    time, item      shape (most items,), of which the first size[0] count
    position        index of each item, -1 when it is not in the heap
    size            shape (1,)
    """

    time: FloatArray
    item: Int32Array
    position: Int32Array
    size: IntArray


def empty_heap(items: int) -> Heap:
    """Return an empty heap with room for items 0 .. items - 1."""
    return Heap(
        np.empty(items),
        np.empty(items, np.int32),
        np.full(items, -1, np.int32),
        np.zeros(1, np.int64),
    )


@njit_no_alloc()
def put(heap: Heap, item: int, time: float) -> None:
    """Add the item, or change its time."""
    at = heap.position[item]
    if at < 0:
        at = heap.size[0]
        heap.size[0] += 1
        _rise(heap, at, item, time)
    elif time < heap.time[at]:
        _rise(heap, at, item, time)
    else:
        _sink(heap, at, item, time)


@njit_no_alloc()
def pop(heap: Heap) -> int:
    """Remove and return the item with the smallest time."""
    item = heap.item[0]
    heap.position[item] = -1
    heap.size[0] -= 1
    last = heap.size[0]
    if last > 0:
        _sink(heap, 0, heap.item[last], heap.time[last])
    return int(item)


@njit_no_alloc(inline="always")
def _set(heap: Heap, at: int, item: int, time: float) -> None:
    heap.time[at], heap.item[at], heap.position[item] = time, item, at


@njit_no_alloc()
def _rise(heap: Heap, at: int, item: int, time: float) -> None:
    while at > 0:
        above = (at - 1) >> 1
        if heap.time[above] <= time:
            break
        _set(heap, at, heap.item[above], heap.time[above])
        at = above
    _set(heap, at, item, time)


@njit_no_alloc()
def _sink(heap: Heap, at: int, item: int, time: float) -> None:
    size = heap.size[0]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and heap.time[below + 1] < heap.time[below]:
            below += 1
        if heap.time[below] >= time:
            break
        _set(heap, at, heap.item[below], heap.time[below])
        at = below
    _set(heap, at, item, time)
