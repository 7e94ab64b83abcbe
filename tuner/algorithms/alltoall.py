"""All-to-all: every rank sends a block of its own to every rank.

Scratch begins with what a rank sends, the block for rank r as the r-th; no algorithm writes there.
Formulas name the whole buffer of a rank m, so that a block has m/p bytes. Copies within a rank cost
nothing in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from tuner.algorithms.hierarchy import even_group_size
from tuner.algorithms.registry import algorithm
from tuner.base.arrays import Int32Array, IntArray
from tuner.core.collective import Collective
from tuner.core.schedule import Round, RoundsAlike, Runs, Schedule

ALLTOALL = Collective.ALLTOALL
Builder = Callable[[int], Schedule]


@algorithm(ALLTOALL, "linear")
def linear(p: int) -> Schedule:
    """Start the messages to all ranks at once, to the next rank first.

    Cost: alpha + (p-1)/p m beta
    Source: Open MPI coll_base_alltoall.c, basic linear; MPICH alltoall_intra_scattered.c
    """
    return spread_out(p, requests=p)


@algorithm(ALLTOALL, "spread_out")
def spread_out(p: int, requests: int = 32) -> Schedule:
    """Start messages to the next ranks in batches, and wait for each batch.

    Cost: ceil((p-1)/requests) alpha + (p-1)/p m beta
    Source: MPICH alltoall_intra_scattered.c; Open MPI coll_base_alltoall.c, linear_sync, which
    starts a message when another one has ended
    """

    def rows_of(senders: IntArray) -> Iterator[Round]:
        yield _exchange(senders, senders, p)
        for begin in range(1, p, requests):
            distance = np.arange(begin, min(p, begin + requests))[:, None]
            src = np.tile(senders, len(distance))
            yield _exchange(src, ((senders + distance) % p).reshape(-1), p)

    return Schedule(ALLTOALL, p, p, RoundsAlike(p, rows_of, min(p, requests)))


@algorithm(ALLTOALL, "pairwise")
def pairwise(p: int) -> Schedule:
    """Send to the rank k above and receive from the rank k below, for k = 1, 2, ..., p - 1.

    Cost: (p-1) alpha + (p-1)/p m beta
    Source: Open MPI coll_base_alltoall.c, pairwise; MPICH alltoall_intra_pairwise.c
    """
    return spread_out(p, requests=1)


@algorithm(ALLTOALL, "pairwise_exchange")
def pairwise_exchange(p: int) -> Schedule:
    """Exchange blocks with rank r XOR k, for k = 1, 2, ..., p - 1.

    Numbers of ranks that are no power of two use `pairwise` instead, as in MPICH.

    Cost: (p-1) alpha + (p-1)/p m beta
    Source: MPICH alltoall_intra_pairwise.c; R. Thakur, A. Choudhary, IPPS 1994
    """
    if p & (p - 1):
        return pairwise(p)

    def rows_of(senders: IntArray) -> Iterator[Round]:
        for k in range(p):
            yield _exchange(senders, senders ^ k, p)

    return Schedule(ALLTOALL, p, p, RoundsAlike(p, rows_of))


def _exchange(src: IntArray, dst: IntArray, p: int) -> Round:
    return Round.of(src, dst, p + dst, src)


@algorithm(ALLTOALL, "bruck")
def bruck(p: int, radix: int = 2) -> Schedule:
    """Send each block once for every digit of the distance that it has to go, if that is not 0.

    Messages of all values of a digit are under way at once. Blocks are packed before they are sent
    and unpacked after they have arrived.

    Cost: ceil(log2 p) (alpha + m beta/2), p a power of two and radix 2
    Source: J. Bruck et al., IEEE TPDS 8(11), 1997; MPICH alltoall_intra_brucks.c and _k_brucks.c
    """
    held, arrived = 2 * p, 3 * p  # by distance: what a rank has, and what it has just received

    def rows_of(rank: IntArray) -> Iterator[Round]:
        yield Round.of(rank, rank, p + rank, held, p, src_runs=Runs(p, p, p))
        for weight in _powers(radix, p):
            values = [v for v in range(1, radix) if v * weight < p]
            blocks = [_digit_count(p, weight, radix, v) for v in values]
            begins = np.cumsum([0, *blocks[:-1]])
            runs = Runs(weight, radix * weight, p)
            yield _rows(rank, [held + v * weight for v in values], begins, blocks, src_runs=runs)
            yield Round.of(
                np.tile(rank, len(values)),
                np.concatenate([(rank + v * weight) % p for v in values]),
                np.repeat(begins, len(rank)),
                np.repeat(arrived + begins, len(rank)),
                np.repeat(blocks, len(rank)),
            )
            into = [held + v * weight for v in values]
            yield _rows(rank, arrived + begins, into, blocks, dst_runs=runs)
        yield Round.of(rank, rank, held, rank, p, dst_runs=Runs(1, -1, p))

    return Schedule(ALLTOALL, p, p, RoundsAlike(p, rows_of, radix), scratch_buffers=3)


def _powers(radix: int, p: int) -> Iterator[int]:
    """Yield the powers of `radix` below p."""
    weight = 1
    while weight < p:
        yield weight
        weight *= radix


def _digit_count(p: int, weight: int, radix: int, value: int) -> int:
    """Return how many of the numbers below p have `value` as their digit of this weight."""
    cycles, rest = divmod(p, radix * weight)
    return cycles * weight + min(max(rest - value * weight, 0), weight)


def _rows(
    ranks: IntArray,
    first: ArrayLike,
    into: ArrayLike,
    count: ArrayLike,
    *,
    src_runs: Runs | None = None,
    dst_runs: Runs | None = None,
) -> Round:
    """Return the round in which each of the ranks makes the same copies."""
    columns = np.broadcast_arrays(first, into, count)
    rank = np.repeat(ranks, columns[0].size)
    repeated = (np.tile(column, len(ranks)) for column in columns)
    return Round.of(rank, rank, *repeated, src_runs=src_runs, dst_runs=dst_runs)


@algorithm(ALLTOALL, "hypercube")
def hypercube(p: int) -> Schedule:
    """Exchange half of all blocks with the ranks that differ in one bit, for each bit.

    Blocks are packed and unpacked, but never have to change their order. Numbers of ranks that are
    no power of two use `bruck` instead.

    Cost: log2 p (alpha + m beta/2), p a power of two
    Source: S. L. Johnsson, C.-T. Ho, IEEE Trans. Computers 38(9), 1989
    """
    if p & (p - 1):
        return bruck(p)
    held, arrived, half = 2 * p, 3 * p, p // 2

    def rows_of(rank: IntArray) -> Iterator[Round]:
        yield Round.of(rank, rank, p, held, p)
        for bit in _powers(2, p):
            others = held + (~rank & bit)
            runs = Runs(bit, 2 * bit, p)
            yield Round.of(rank, rank, others, 0, half, src_runs=runs)
            yield Round.of(rank, rank ^ bit, 0, arrived, half)
            yield Round.of(rank, rank, arrived, others, half, dst_runs=runs)
        yield Round.of(rank, rank, held, 0, p)

    return Schedule(ALLTOALL, p, p, RoundsAlike(p, rows_of), scratch_buffers=3)


@algorithm(ALLTOALL, "node_aware")
def node_aware(p: int, group: int = 4) -> Schedule:
    """Give blocks to the rank of the group that has the destination's place, then exchange them.

    Every rank exchanges with the ranks of its own place in other groups, pairwise. Groups are of
    the largest size up to `group` that divides p.

    Cost: G alpha + (2 - 1/g - 1/G) m beta, p = g G, groups of g ranks
    Source: Bienz, Olson, Gropp: node-aware communication, 2019; formula derived here
    """
    return _node_aware(p, group, pairwise)


@algorithm(ALLTOALL, "node_aware_bruck")
def node_aware_bruck(p: int, group: int = 4) -> Schedule:
    """Do as `node_aware`, with Bruck's algorithm between the groups.

    Cost: (1 + log2 G) alpha + (1 - 1/g + log2 G/2) m beta, p = g G, G a power of two
    Source: as `node_aware` and `bruck`
    """
    return _node_aware(p, group, bruck)


def _node_aware(p: int, group: int, between: Builder) -> Schedule:
    """Return the exchange in groups and then, by `between`, among ranks of the same place."""
    g = even_group_size(p, group)
    n_groups = p // g
    rank = np.arange(p)
    home, place = rank // g * g, rank % g
    by_place, gathered, packed = 2 * p, 3 * p, 4 * p
    inner = between(n_groups)
    areas = [0, packed, *((5 + k) * p for k in range(inner.scratch_buffers - 1))]
    parts = np.arange(g) * n_groups
    peer = (place + np.arange(g)[:, None]) % g  # in the order in which messages start

    def make() -> Iterator[Round]:
        yield _rows(rank, p + np.arange(g), by_place + parts, n_groups, src_runs=Runs(1, g, p))
        yield Round.of(
            np.tile(rank, g),
            (home + peer).reshape(-1),
            (by_place + peer * n_groups).reshape(-1),
            np.tile(gathered + place * n_groups, g),
            n_groups,
        )
        yield _rows(rank, gathered + parts, packed + np.arange(g), n_groups, dst_runs=Runs(1, g, p))
        yield from _among(inner, rank.reshape(n_groups, g), areas, g)

    return Schedule(ALLTOALL, p, p, make, scratch_buffers=max(areas) // p)


def _among(inner: Schedule, ranks: IntArray, areas: Sequence[int], blocks: int) -> Iterator[Round]:
    """Yield the rounds of an all-to-all in several groups at once.

    ranks   ranks that play each role of `inner`, one in each group; shape (roles, groups)
    areas   first chunk of what stands for the receive buffer of `inner`, of what stands for its
            send buffer, and of its other scratch; multiples of their size
    blocks  chunks that stand for a chunk of `inner`
    """
    first = np.array(areas)

    def scaled(chunk: Int32Array) -> IntArray:
        area, within = np.divmod(chunk, inner.n_chunks)
        return np.repeat(first[area] + within * blocks, ranks.shape[1])

    def longer(runs: Runs | None) -> Runs | None:
        return runs and Runs(*(blocks * chunks for chunks in runs))

    for r in inner.rounds():
        yield Round.of(
            ranks[r.src].reshape(-1),
            ranks[r.dst].reshape(-1),
            scaled(r.src_chunk),
            scaled(r.dst_chunk),
            np.repeat(r.count * blocks, ranks.shape[1]),
            src_runs=longer(r.src_runs),
            dst_runs=longer(r.dst_runs),
        )


@algorithm(ALLTOALL, "two_level")
def two_level(p: int, group: int = 4) -> Schedule:
    """Gather all blocks at the leaders of the groups, exchange them pairwise, and scatter them.

    Groups are of the largest size up to `group` that divides p; with a part of the ranks of a node,
    a node has several leaders.

    Cost: (G + 1) alpha + (2 (g-1) + g (1 - 1/G)) m beta, p = g G, groups of g ranks
    Source: MVAPICH2; J. Traeff, A. Rougier, EuroMPI 2014; formula derived here
    """
    return _two_level(p, group, pairwise)


@algorithm(ALLTOALL, "two_level_bruck")
def two_level_bruck(p: int, group: int = 4) -> Schedule:
    """Do as `two_level`, with Bruck's algorithm between the leaders.

    Cost: (2 + log2 G) alpha + (2 (g-1) + g log2 G/2) m beta, p = g G, G a power of two
    Source: as `two_level` and `bruck`
    """
    return _two_level(p, group, bruck)


def _two_level(p: int, group: int, between: Builder) -> Schedule:
    """Return the exchange over leaders, which run `between`."""
    g = even_group_size(p, group)
    if g == 1:
        return between(p)
    rank, leaders = np.arange(p), np.arange(0, p, g)
    inner = between(p // g)
    area = g * p  # what all ranks of a group send
    gathered, sent, received = 2 * p, 2 * area, 3 * area  # the last two are multiples of `area`
    areas = [received, sent, *((4 + k) * area for k in range(inner.scratch_buffers - 1))]
    own, leader, place = np.arange(g), rank // g * g, rank % g

    def make() -> Iterator[Round]:
        yield Round.of(rank, leader, p, gathered + place * p, p)
        yield _rows(leaders, gathered + own * p, sent + own * g, p, dst_runs=Runs(g, g * g, area))
        yield from _among(inner, leaders[:, None], areas, g * g)
        yield _rows(leaders, received + own, gathered + own * p, p, src_runs=Runs(1, g, area))
        yield Round.of(leader, rank, gathered + place * p, 0, p)

    return Schedule(ALLTOALL, p, p, make, scratch_buffers=(max(areas) + area) // p - 1)
