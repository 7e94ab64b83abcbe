"""Compiled loops over the links of many routes."""

from __future__ import annotations

from tuner.base.arrays import FloatArray, IntArray
from tuner.base.compiled import compiled


@compiled(_nrt=False)
def move_to_front(links: IntArray, packed: IntArray) -> None:
    """Write the links of each route to `packed`, without gaps between them."""
    for i in range(len(links)):
        at = 0
        for hop in range(links.shape[1]):
            if links[i, hop] >= 0:
                packed[i, at] = links[i, hop]
                at += 1


@compiled(error_model="numpy", _nrt=False)
def narrowest_links(
    links: IntArray,
    load_factor: FloatArray,
    capacity: FloatArray,
    nodes: IntArray,
    ends: IntArray,
    width: FloatArray,
    ports: FloatArray,
) -> None:
    """Lower `width` and `ports` to the bytes per second that the links of each path let through.

    nodes       nodes in which each link begins and ends, shape (resources, 2)
    ends        nodes of sender and receiver of each path, shape (paths, 2)
    """
    for i in range(len(links)):
        for hop in range(links.shape[1]):
            link = links[i, hop]
            if link >= 0:
                through = capacity[link] / load_factor[i, hop]
                width[i] = min(width[i], through)
                for side in range(2):
                    if nodes[link, side] == ends[i, side]:
                        ports[i, side] = min(ports[i, side], through)
