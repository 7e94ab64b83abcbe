"""How the messages of a round meet: alone, face to face, or round a circle.

Ranks that send and receive at the same time, again and again, get out of step: a rank's answer to a
rendezvous then stands behind what the rank itself sends, and its partner waits for both. What one
message alone takes does not say that; path classes of their own do (`NETWORK_BIDIRECTIONAL`,
`NETWORK_RING`, see docs/adr/0015-exchanges.md). The first round of a call finds all ranks in step.
Messages inside a node meet nobody: their answers do not go through the network.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tuner.base.arrays import Int32Array, IntArray
from tuner.core.calibration import Calibration
from tuner.topology import NETWORK_BIDIRECTIONAL, NETWORK_RING

UNIDIRECTIONAL, BIDIRECTIONAL, CIRCULAR = range(3)
PATH_CLASS_OF_PATTERN = {BIDIRECTIONAL: NETWORK_BIDIRECTIONAL, CIRCULAR: NETWORK_RING}


def has_pattern_costs(calibration: Calibration) -> bool:
    """Whether it makes a difference to a cost."""
    return any(name in PATH_CLASS_OF_PATTERN.values() for name, _ in calibration.paths)


@njit(cache=True)
def classify_transfers(src: Int32Array, dst: Int32Array, node_of: IntArray) -> IntArray:
    """The manner of each row of a round, shape (rows,).

    node        that each rank is on, shape (p,)

    FACING      the receiver sends to the sender. A single pair keeps in step, but of three nodes,
                where one of the two has just been busy with the third
    CIRCLING    else, if every node that sends receives and the other way round. Two nodes keep in
                step
    """
    to = np.full(len(node_of), -1)
    used = np.zeros(node_of.max() + 1, np.bool_)
    used[node_of] = True
    sends, receives = np.zeros_like(used), np.zeros_like(used)
    for i in range(len(src)):
        if node_of[src[i]] != node_of[dst[i]]:
            to[src[i]] = dst[i]
            sends[node_of[src[i]]] = receives[node_of[dst[i]]] = True
    around = (sends == receives).all() and sends.sum() > 2
    found, facing = np.full(len(src), UNIDIRECTIONAL), 0
    for i in range(len(src)):
        facing += node_of[src[i]] != node_of[dst[i]] and to[dst[i]] == src[i]
    for i in range(len(src)):
        if node_of[src[i]] == node_of[dst[i]] or (facing == 2 and used.sum() != 3):
            continue
        if to[dst[i]] == src[i]:
            found[i] = BIDIRECTIONAL
        elif around:
            found[i] = CIRCULAR
    return found
