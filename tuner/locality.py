"""Where buffers are, and what may lie between two ranks: the names alone.

Programs and ranks of a probe, which load hardly more than numpy and mpi4py, know them too.
"""

HOST, CUDA = "host", "cuda"  # kinds of memory

MEMORY_BUS = "memory_bus"  # the shared resource inside a node

NODE = "node"  # host memory of one socket, each rank with a core of its own
NODE_OVERSUBSCRIBED = "node_oversubscribed"  # the same with more ranks than cores on the node
CROSS_SOCKET = "cross_socket"  # over the bus between two CPUs
SAME_GPU = "same_gpu"  # several ranks on one GPU
NVLINK = "nvlink"  # over NVLink alone
PCIE = "pcie"  # between devices of a node, all else
NETWORK = "network"  # between nodes
PATH_CLASSES = (
    NODE, NODE_OVERSUBSCRIBED, CROSS_SOCKET, SAME_GPU, NVLINK, PCIE, NETWORK,
)  # fmt: skip
# Between nodes, in rounds after the first, where a calibration has them:
EXCHANGE = "exchange"  # both ranks send to one another
RING = "ring"  # every rank of the round sends to one and receives from another
