"""Names of path classes, kinds of memory, shared resources and placements.

It imports almost nothing, because the ranks of a probe import it and load little beyond numpy and
mpi4py.
"""

from collections.abc import Mapping
from typing import Any

from tuner.base.errors import shortened_repr

HOST, CUDA = "host", "cuda"  # kinds of memory

MEMORY_BUS = "memory_bus"  # the shared resource inside a node

NODE = "node"  # host memory of one socket, each rank with a core of its own
NODE_OVERSUBSCRIBED = "node_oversubscribed"  # the same with more ranks than cores on the node
CROSS_SOCKET = "cross_socket"  # over the bus between two CPUs
SAME_GPU = "same_gpu"  # several ranks on one GPU
NVLINK = "nvlink"  # over NVLink alone, or over xGMI alone
PCIE = "pcie"  # all other paths between devices of a node
NETWORK = "network"  # between nodes
PATH_CLASSES = (NODE, NODE_OVERSUBSCRIBED, CROSS_SOCKET, SAME_GPU, NVLINK, PCIE, NETWORK)
# Paths between nodes in rounds after the first, if a calibration has them:
NETWORK_BIDIRECTIONAL = "exchange"  # two ranks send to each other
NETWORK_RING = "ring"  # every rank of the round sends to one and receives from another

# Placements of a communicator's ranks, with equally many on each node:
BLOCK = "consecutive"  # each node has a run of consecutive ranks
CYCLIC = "cyclic"  # ranks are dealt to the nodes round-robin
PLACEMENTS = (BLOCK, CYCLIC)


class PlacementMixin:
    """A mixin for frozen dataclasses with `nodes`, `ppn` and a normalized `placement`.

    On one node, or with one rank per node, all placements are the same and are stored as `BLOCK`.
    Raises ValueError for an unknown placement.
    """

    def __post_init__(self) -> None:
        own = vars(self)
        if own["placement"] not in PLACEMENTS:
            known = " or ".join(PLACEMENTS)
            raise ValueError(f"placement is {known}, not {shortened_repr(own['placement'])}")
        if 1 in (own["nodes"], own["ppn"]):
            own["placement"] = BLOCK

    @property
    def shape(self) -> str:
        """Return nodes x ppn as `4x2`, or `4x2 cyclic`; the block placement is not mentioned."""
        own = vars(self)
        shape = f"{own['nodes']}x{own['ppn']}"
        return shape if own["placement"] == BLOCK else f"{shape} {own['placement']}"


def omit_default_placement(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without its placement if that is `BLOCK`.

    Files without other placements stay the same as before placements existed and keep their
    digests.
    """
    usual = record["placement"] == BLOCK
    return {name: value for name, value in record.items() if name != "placement" or not usual}
