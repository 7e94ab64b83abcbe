"""Where ranks and buffers are, and what may lie between two ranks: their names.

Programs and ranks of a probe, which load hardly more than numpy and mpi4py, know them too.
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
NVLINK = "nvlink"  # over NVLink alone
PCIE = "pcie"  # between devices of a node, all else
NETWORK = "network"  # between nodes
PATH_CLASSES = (NODE, NODE_OVERSUBSCRIBED, CROSS_SOCKET, SAME_GPU, NVLINK, PCIE, NETWORK)
# Between nodes, in rounds after the first, where a calibration has them:
NETWORK_BIDIRECTIONAL = "exchange"  # both ranks send to one another
NETWORK_RING = "ring"  # every rank of the round sends to one and receives from another

# The placement of a communicator's ranks, as many on each of its nodes:
BLOCK = "consecutive"  # ranks that follow one another on each node
CYCLIC = "cyclic"  # dealt to the nodes one by one
PLACEMENTS = (BLOCK, CYCLIC)


class PlacementMixin:
    """A frozen dataclass with `nodes`, `ppn` and `placement`, the last under its one name: on one
    node, or with one rank on each, ranks lie in one way alone, which is called consecutive.

    Raises ValueError for a placement that there is not.
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
        """`4x2`, or `4x2 cyclic`: consecutive goes without saying."""
        own = vars(self)
        shape = f"{own['nodes']}x{own['ppn']}"
        return shape if own["placement"] == BLOCK else f"{shape} {own['placement']}"


def omit_default_placement(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says of one: consecutive goes without saying, so that what has no other placement
    is the same file as before there were others, and has the same digest.
    """
    usual = record["placement"] == BLOCK
    return {name: value for name, value in record.items() if name != "placement" or not usual}
