"""Allgather: every rank's chunk reaches every rank."""

from collections.abc import Iterator

import numpy as np

from tuner.algorithms import rings
from tuner.algorithms.butterfly import Butterfly, distance_doubling_partners
from tuner.algorithms.power_of_two import FoldedRanks
from tuner.algorithms.registry import algorithm
from tuner.algorithms.round_columns import RotatedColumn, column
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, make_schedule

ALLGATHER = Collective.ALLGATHER


@algorithm(ALLGATHER, "ring")
def ring(p: int) -> Schedule:
    """Pass on to the next rank of a ring, in every round, the chunk received in the round before.

    Cost: (p-1) alpha + (p-1)/p m beta, m the whole buffer
    Source: MPICH allgather_intra_ring.c
    """
    return Schedule(ALLGATHER, p, p, lambda: rings.allgather_rounds(p, 1))


@algorithm(ALLGATHER, "recursive_doubling")
def recursive_doubling(p: int) -> Schedule:
    """Exchange all that is held with partners 1, 2, 4, ... apart; extra ranks join a neighbour.

    Cost: log2 p alpha + (p-1)/p m beta, p a power of two, m the whole buffer
    Source: MPICH allgather_intra_recursive_doubling.c; the pairs: tuner.algorithms.power_of_two
    """
    groups = FoldedRanks.of(p)
    return butterfly_allgather(
        groups, Butterfly(groups.leaders, distance_doubling_partners(groups.n_groups)[::-1])
    )


def butterfly_allgather(groups: FoldedRanks, butterfly: Butterfly) -> Schedule:
    """Return an allgather over a butterfly of the leaders.

    Every chunk first goes to the leader that starts with it; leaders double what they have, then
    give everything to their partners.
    """
    holder, chunk = butterfly.misplaced_chunks(groups.bounds)
    rounds = [Round.of(chunk, holder, chunk), *butterfly.doubling(groups.bounds)]
    return make_schedule(ALLGATHER, groups.p, groups.p, [*rounds, groups.fold_out(groups.p)])


@algorithm(ALLGATHER, "bruck")
def bruck(p: int) -> Schedule:
    """Send everything held so far to the ranks 1, 2, 4, ... below, for any number of ranks.

    Chunks stay at their place; a run that wraps round the end of the buffer is sent in two parts.

    Cost: ceil(log2 p) alpha + (p-1)/p m beta, m the whole buffer
    Source: J. Bruck et al., IEEE TPDS 8(11), 1997; MPICH allgather_intra_brucks.c
    """
    rank, rounds = np.arange(p), []
    for distance in (1 << s for s in range((p - 1).bit_length())):
        length = min(distance, p - distance)
        head = np.minimum(length, p - rank)
        wraps = rank[head < length]
        src = np.concatenate([rank, wraps])
        first = np.concatenate([rank, np.zeros_like(wraps)])
        count = np.concatenate([head, (length - head)[wraps]])
        rounds.append(Round.of(src, (src - distance) % p, first, count=count))
    return make_schedule(ALLGATHER, p, p, rounds)


@algorithm(ALLGATHER, "neighbor_exchange")
def neighbor_exchange(p: int) -> Schedule:
    """Exchange the chunks received last, two at a time, with the left and right neighbour in turn.

    An odd number of ranks uses the ring instead, as in Open MPI.

    Cost: p/2 alpha + (p-1)/p m beta, p even, m the whole buffer
    Source: J. Chen et al., HPC Asia 2005; Open MPI coll_base_allgather.c, neighborexchange
    """
    if p % 2:
        return ring(p)
    return Schedule(ALLGATHER, p, p, lambda: _neighbor_exchange_rounds(p))


def _neighbor_exchange_rounds(p: int) -> Iterator[Round]:
    """Yield rounds in which pairs of chunks move away from their owners.

    Pairs move up at even ranks and down at odd ones. Rows alternate between even ranks upwards and
    odd ranks downwards, so that the chunks of all rows rotate in the same direction.
    """
    even = np.arange(0, p, 2)
    rank = np.stack([even, even[::-1] + 1], axis=1)
    src, plain, two = column(rank.reshape(-1)), column(0, p), column(2, p)
    right, left = (column(((rank + way) % p).reshape(-1)) for way in ([1, -1], [-1, 1]))
    pairs = RotatedColumn((rank // 2 * 2).reshape(-1))
    yield Round(src, right, src, src, column(1, p), plain)
    for t in range(1, p // 2):
        first = pairs.at(-2 * (t // 2) if t % 2 == 0 else 2 * (t // 2))
        yield Round(src, right if t % 2 == 0 else left, first, first, two, plain)
