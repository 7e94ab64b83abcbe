"""Traffic patterns: whether a message of a round is one-way, part of an exchange or of a cycle.

Ranks that send and receive at the same time, again and again, get out of step: a rank's answer to a
rendezvous then queues behind what the rank itself sends, and its partner waits for both. The cost
of a single message does not include that; path classes of their own do (`NETWORK_BIDIRECTIONAL`,
`NETWORK_RING`, see decision 0015). In the first round of a call all ranks are in step.
Messages inside a node are not affected: their answers do not go through the network.
"""

from __future__ import annotations

import numpy as np

from tuner.base.arrays import Int32Array, IntArray
from tuner.base.compiled import compiled
from tuner.core.calibration import Calibration
from tuner.topology import NETWORK_BIDIRECTIONAL, NETWORK_RING

UNIDIRECTIONAL, BIDIRECTIONAL, CIRCULAR = range(3)
PATH_CLASS_OF_PATTERN = {BIDIRECTIONAL: NETWORK_BIDIRECTIONAL, CIRCULAR: NETWORK_RING}


def has_pattern_costs(calibration: Calibration) -> bool:
    """Return whether the calibration has costs of its own for any traffic pattern."""
    return any(name in PATH_CLASS_OF_PATTERN.values() for name, _ in calibration.paths)


@compiled()
def classify_transfers(src: Int32Array, dst: Int32Array, node_of: IntArray) -> IntArray:
    """Return the traffic pattern of each row of a round, shape (rows,).

    node_of         node of each rank, shape (p,)

    BIDIRECTIONAL   the receiver also sends to the sender. A single pair stays synchronised unless
                    exactly three nodes take part
    CIRCULAR        any other message between nodes, if exactly the nodes that send also receive and
                    there are more than two of them
    UNIDIRECTIONAL  all others
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
