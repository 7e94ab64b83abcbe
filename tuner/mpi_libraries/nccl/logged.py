"""The names that NCCL and its plugins write for collectives, algorithms, protocols and types.

Source: `src/enqueue.cc`, `src/init.cc` (until 2.23 algorithms and protocols by number) and
`nccl.h` of NVIDIA/nccl.
"""

from __future__ import annotations

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl.constants import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    NVLS,
    NVLS_TREE,
    PAT,
    PROTOCOLS,
    RING,
    TREE,
)

UNKNOWN_ALGORITHM = "unknown"  # written by the Inspector where it does not know the algorithm
DATATYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)  # by the number of an ncclDataType_t
_NUMBERED = (TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT)
_SPELLED = {name.replace("_", ""): name for name in _NUMBERED}


def buffer_bytes(collective: Collective, per_rank: int, p: int) -> int:
    """Return the bytes of the whole buffer of a call on `p` ranks.

    per_rank    bytes that NCCL writes: of one rank's block where there are blocks, else of the
                whole buffer
    """
    return per_rank * p if collective.has_blocks else per_rank


def algo_proto_name(algorithm: str, protocol: str) -> str:
    """Return `ring_ll128` for `NETWORK_RING` and `LL128`, `Ring` and `LL128`, or `1` and `1`.

    Unknown names are kept, in lower case.
    """
    if algorithm.isdecimal() and int(algorithm) < len(_NUMBERED):
        name = _NUMBERED[int(algorithm)]
    else:
        name = _SPELLED.get(algorithm.lower().replace("_", ""), algorithm.lower())
    if protocol.isdecimal() and int(protocol) < len(PROTOCOLS):
        protocol = PROTOCOLS[int(protocol)]
    return f"{name}_{protocol.lower()}"
