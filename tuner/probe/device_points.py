"""Choose what a probe measures in the memory of GPUs.

Only the ranks know which GPUs there are. So all that is possible is planned, including pairs of
ranks on one GPU, over NVLink and over PCIe; the ranks leave out what is not there, and its time
goes to the other points.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tuner.core.collective import Collective
from tuner.core.path_classes import CUDA, NETWORK, NVLINK, PCIE, SAME_GPU
from tuner.mpi_libraries.nccl.constants import NVLS_TREE
from tuner.mpi_libraries.nccl.names import NCCL_COLLECTIVES
from tuner.probe.probe_plan import ProbeCandidate, ProbePoint

COPY_SUBJECTS = ("h2d_pinned", "d2h_pinned", "h2d_pageable", "d2h_pageable", "d2d")
COPY_SIZES = (1024, 8192, 32768, 2**17, 2**19, 2**21, 2**23, 2**25)
OPERATORS = ("sum", "prod", "min", "max")
DTYPES = ("float32", "float64", "int32", "int64")
REDUCTION_SIZES = (1024, 16384, 2**17, 2**20, 2**22, 2**24)
PINGPONG_SIZES = (
    8,
    64,
    256,
    512,
    1024,
    2048,
    4096,
    8192,
    16384,
    32768,
    65536,
    2**17,
    2**18,
    2**19,
    2**20,
    2**21,
    2**22,
    2**23,
)
MESSAGE_TRAIN_LENGTHS = (1, 33)  # messages
MESSAGE_TRAIN_BYTES = 8  # of a message
GPU_PATH_CLASSES = (SAME_GPU, NVLINK, PCIE)  # path classes between two ranks of one host
IPC_PREFIX = "ipc_"  # precedes the path class of a copy from another rank's memory

# NCCL's own names of its algorithms and protocols. A protocol's place in the list is NCCL's number
# for it.
NCCL_PROTOCOLS = ("LL", "LL128", "Simple")
NCCL_ALGORITHM_NAMES = {"ring": "Ring", "tree": "Tree", "nvls": "NVLS", "nvls_tree": "NVLSTree"}
SIMPLE_ONLY_ALGORITHMS = ("nvls", "nvls_tree")  # they have no other protocol

# Rough seconds, only used to distribute the time budget.
SECONDS_PER_CALL = 3e-5
SECONDS_PER_BYTE = 2e-10


def device_points(nodes: int, ppn: int) -> Iterator[ProbePoint]:
    """Yield copies, kernels, reductions and messages of hosts with `ppn` ranks each."""
    yield ProbePoint(
        "pointer", "query", 1, 0, (ProbeCandidate(),), SECONDS_PER_CALL, ppn=1, memory=CUDA
    )
    yield ProbePoint(
        "launch", "kernel", 1, 0, (ProbeCandidate(),), SECONDS_PER_CALL, ppn=1, memory=CUDA
    )
    for subject in COPY_SUBJECTS:
        yield _size_series_point("copy", subject, COPY_SIZES, 1, ppn=1)
    for subject in (f"{op}_{dtype}" for op in OPERATORS for dtype in DTYPES):
        yield _size_series_point("reduction", subject, REDUCTION_SIZES, 1, ppn=1)
    for subject in GPU_PATH_CLASSES if ppn > 1 else ():
        yield _size_series_point("copy", IPC_PREFIX + subject, COPY_SIZES, 2, ppn=ppn)
        yield from _message_points(subject, 1, ppn)
    if nodes > 1:
        yield from _message_points(NETWORK, 2, 1)


def _message_points(subject: str, nodes: int, ppn: int) -> Iterator[ProbePoint]:
    pingpong = _size_series_point("pingpong", subject, PINGPONG_SIZES, 2, nodes=nodes, ppn=ppn)
    yield replace(pingpong, kind="eager", candidates=(ProbeCandidate(),))
    yield pingpong
    bursts = tuple(ProbeCandidate(params={"messages": count}) for count in MESSAGE_TRAIN_LENGTHS)
    yield replace(
        pingpong,
        kind="burst",
        candidates=bursts,
        nbytes=MESSAGE_TRAIN_BYTES,
        weight=40 * SECONDS_PER_CALL,
    )


def _size_series_point(
    kind: str, subject: str, sizes: Sequence[int], p: int, *, ppn: int, nodes: int = 1
) -> ProbePoint:
    candidates = tuple(ProbeCandidate(nbytes=nbytes) for nbytes in sizes)
    weight = sum(SECONDS_PER_CALL + SECONDS_PER_BYTE * nbytes for nbytes in sizes)
    return ProbePoint(kind, subject, p, 0, candidates, weight, nodes=nodes, ppn=ppn, memory=CUDA)


def device_collective_points(calls: Iterable[ProbePoint]) -> Iterator[ProbePoint]:
    """Yield the collectives `calls` on buffers of GPUs: the MPI library's and NCCL's."""
    for point in calls:
        own = replace(point, memory=CUDA)
        yield own
        candidates = tuple(nccl_candidates(Collective(point.subject), point.nodes))
        weight = point.weight * len(candidates) / max(len(point.candidates), 1)
        yield replace(own, kind="nccl", candidates=candidates, weight=weight)


def nccl_candidates(collective: Collective, nodes: int) -> Iterator[ProbeCandidate]:
    """Yield NCCL's default, and every algorithm in every protocol that it supports.

    NVLS trees need several nodes.
    """
    yield ProbeCandidate("default")
    for name, said in NCCL_ALGORITHM_NAMES.items():
        if name not in NCCL_COLLECTIVES[collective].algorithms or (name == NVLS_TREE and nodes < 2):
            continue
        for number, protocol in enumerate(NCCL_PROTOCOLS):
            if protocol == "Simple" or name not in SIMPLE_ONLY_ALGORITHMS:
                settings = {"NCCL_ALGO": said, "NCCL_PROTO": protocol}
                yield ProbeCandidate(name, {"protocol": number}, settings)
