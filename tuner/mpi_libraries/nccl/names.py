"""NCCL's ways as a table names them, `ring_ll128` or `nvls_simple`, and which exist at all.

Legal combinations: `src/tuning/` of NCCL 2.30.7. Whether one is there on a given machine (NVLS,
CollNet, LL128) NCCL decides when it starts; a way that is not there is passed over.
"""

from __future__ import annotations

from tuner.base.errors import InputError, quoted
from tuner.core.collective import Collective
from tuner.core.table import LIBRARY, Choice
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
    Way,
)

_DIVIDED = (RING, COLLNET_DIRECT, NVLS, PAT)
ALGORITHMS = {
    Collective.BCAST: (RING,),
    Collective.REDUCE: (RING,),
    Collective.ALLREDUCE: (TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE),
    Collective.ALLGATHER: _DIVIDED,
    Collective.REDUCE_SCATTER: _DIVIDED,
}
ALL_PROTOCOLS = (RING, TREE)  # the others have Simple alone
MOST_CHANNELS = 64
OWN_CHANNELS = 0  # what a tuner answers where NCCL shall count its channels itself


def ways_of(collective: Collective) -> tuple[Way, ...]:
    """Every way that NCCL may have for a collective; none where it has no such collective."""
    return tuple(
        Way(algorithm, protocol)
        for algorithm in ALGORITHMS.get(collective, ())
        for protocol in PROTOCOLS
        if algorithm in ALL_PROTOCOLS or protocol == SIMPLE
    )


def name_of(way: Way) -> str:
    """`ring_ll128`."""
    return f"{way.algorithm}_{way.protocol.lower()}"


def way_of(collective: Collective, choice: Choice) -> tuple[Way, int]:
    """The way and the channels of a choice; `OWN_CHANNELS` where it names none.

    Raises InputError for what NCCL does not have.
    """
    named = {name_of(way): way for way in ways_of(collective)}
    if not named:
        raise InputError(f"NCCL has no {collective}: drop these rules")
    if choice.via != LIBRARY or choice.algorithm not in named:
        raise InputError(
            f"NCCL has no {collective} {quoted(choice.algorithm)}: algorithm and protocol are named"
            f" together, as in {', '.join(named)}"
        )
    channels = choice.params.get("channels", OWN_CHANNELS)
    if set(choice.params) - {"channels"} or not 0 <= channels <= MOST_CHANNELS:
        raise InputError(
            f"{collective} {choice}: NCCL takes no parameter but channels, of at most"
            f" {MOST_CHANNELS}"
        )
    return named[choice.algorithm], channels


def choice_of(way: Way, channels: int) -> Choice:
    """The choice that `way_of` turns into these."""
    return Choice(name_of(way), {"channels": channels} if channels != OWN_CHANNELS else {})
