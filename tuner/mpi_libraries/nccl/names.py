"""NCCL's algorithm and protocol pairs as a table names them, `ring_ll128` or `nvls_simple`.

Legal combinations: `src/tuning/` of NCCL 2.30.7. Whether one is available on a machine (NVLS,
CollNet, LL128) NCCL decides when it starts; a pair that is not available is skipped.
"""

from __future__ import annotations

from typing import NamedTuple

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import LIBRARY, AlgorithmChoice
from tuner.mpi_libraries.nccl.constants import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    NVLS,
    NVLS_TREE,
    PAT,
    PROTOCOLS,
    RING,
    SIMPLE,
    TREE,
    AlgoProto,
)


class NcclCollective(NamedTuple):
    """A collective that NCCL chooses for: its name, its number in ncclFunc_t, its algorithms."""

    name: str
    number: int
    algorithms: tuple[str, ...]


_OF_BLOCKS = (RING, COLLNET_DIRECT, NVLS, PAT)
NCCL_COLLECTIVES = {
    Collective.BCAST: NcclCollective("Broadcast", 0, (RING,)),
    Collective.REDUCE: NcclCollective("Reduce", 1, (RING,)),
    Collective.ALLREDUCE: NcclCollective(
        "AllReduce", 4, (TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE)
    ),
    Collective.ALLGATHER: NcclCollective("AllGather", 2, _OF_BLOCKS),
    Collective.REDUCE_SCATTER: NcclCollective("ReduceScatter", 3, _OF_BLOCKS),
}
# Those that NCCL makes of sends and receives, with nothing to choose (ncclAlltoAll of 2.28, too).
POINT_TO_POINT = (Collective.ALLTOALL, Collective.ALLTOALLV)
COLLECTIVES = {known.name: collective for collective, known in NCCL_COLLECTIVES.items()}
MULTI_PROTOCOL_ALGORITHMS = (RING, TREE)  # the others have only Simple
MAX_CHANNELS = 64
DEFAULT_CHANNELS = 0  # lets NCCL determine the number of channels


def algo_protos_of(collective: Collective) -> tuple[AlgoProto, ...]:
    """Return every pair that NCCL may have for a collective; none for an unknown collective."""
    known = NCCL_COLLECTIVES.get(collective)
    return tuple(
        AlgoProto(algorithm, protocol)
        for algorithm in (known.algorithms if known else ())
        for protocol in PROTOCOLS
        if algorithm in MULTI_PROTOCOL_ALGORITHMS or protocol == SIMPLE
    )


def name_of(algo_proto: AlgoProto) -> str:
    """Return the pair as `ring_ll128`."""
    return f"{algo_proto.algorithm}_{algo_proto.protocol.lower()}"


def algo_proto_and_channels(
    collective: Collective, choice: AlgorithmChoice
) -> tuple[AlgoProto, int]:
    """Return the pair and the channels of a choice; `DEFAULT_CHANNELS` where it names none.

    Raises InputError for a choice that NCCL does not have.
    """
    named = {name_of(way): way for way in algo_protos_of(collective)}
    if not named:
        raise InputError(f"NCCL has no {collective}: drop these rules")
    if choice.runner != LIBRARY or choice.algorithm not in named:
        raise InputError(
            f"NCCL has no {collective} {shortened_repr(choice.algorithm)}: algorithm and"
            f" protocol are named together, as in {', '.join(named)}"
        )
    channels = choice.params.get("channels", DEFAULT_CHANNELS)
    if set(choice.params) - {"channels"} or not 0 <= channels <= MAX_CHANNELS:
        raise InputError(
            f"{collective} {choice}: NCCL takes no parameter but channels, of at most"
            f" {MAX_CHANNELS}"
        )
    return named[choice.algorithm], channels


def choice_of(algo_proto: AlgoProto, channels: int) -> AlgorithmChoice:
    """Return the choice that `algo_proto_and_channels` turns into these."""
    return AlgorithmChoice(
        name_of(algo_proto), {"channels": channels} if channels != DEFAULT_CHANNELS else {}
    )
