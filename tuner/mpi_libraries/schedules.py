"""What an MPI library does when it runs one of its algorithms, as a schedule.

The schedules of `tuner.algorithms` are how we would run an algorithm. A library runs some of them
otherwise: here, and nowhere else, it is said how.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tuner import algorithms
from tuner.algorithms import trees
from tuner.algorithms.scatter import binomial_scatter
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, concat, make_schedule, rotate
from tuner.core.table import LIBRARY, AlgorithmConfig
from tuner.mpi_libraries.products import MPICH, OPENMPI, base_of

# Into how many parts Open MPI over TCP cuts messages of at least so many bytes that a rank posts
# together, each receiver getting a part in turn. Shorter ones go out whole, one after the other.
# Measured: of two of 512 KiB the first has arrived after the time of 1.9, of two of 1 MiB after
# that of 1.79 of them.
PARTS_BY_MIN_BYTES = ((768 * 1024, 5), (448 * 1024, 10), (0, 1))
EAGER_LIMIT_BYTES = (
    64 * 1024
)  # bytes; Open MPI asks the receiver before it sends as much as this over TCP
CACHE_SIZE = 128  # schedules: of a few shapes
MPICH_PIPELINED = ("pipeline", "binary")
OPENMPI_TREES = ("linear", "chain", "pipeline", "binary", "binomial", "knomial")


def schedule_of(
    library: str,
    collective: Collective,
    choice: AlgorithmConfig,
    p: int,
    nbytes: int,
    root: int = 0,
) -> Schedule | None:
    """What `library` ("openmpi 5.0.11", "mpich", ...) does for a call of nbytes.

    It is to be priced, not run, and so not replayed. None where no schedule says it: the default,
    algorithms that are the library's alone, and those that are made of other decisions of the
    library. Choices that the library does not run itself are our own schedules.

    Of calls that are not cut into segments, most sizes get the very same schedule.
    """
    name = choice.algorithm
    if name not in algorithms.algorithm_names(collective, algorithms.REQUIREMENTS):
        return None
    if algorithms.is_segmented(collective, name, choice.params):
        return _build(library, collective, choice, p, nbytes, root)
    # one chunk, of which no segment comes first: only turns depend on its size
    alike = next((least for least, _ in PARTS_BY_MIN_BYTES if nbytes >= least), nbytes)
    return _cached_build(library, collective, choice, p, alike, root)


def _build(
    library: str, collective: Collective, choice: AlgorithmConfig, p: int, nbytes: int, root: int
) -> Schedule | None:
    name = choice.algorithm
    made = algorithms.build(
        collective, name, p, root=root, nbytes=nbytes, params=choice.params, verify_schedule=False
    )
    if choice.via != LIBRARY:
        return made
    if (collective, name) == (Collective.BCAST, "scatter_allgather"):
        whole = rotate(concat(collective, binomial_scatter(p), doubling_allgather(p)), root)
        return replace(made, n_chunks=whole.n_chunks, make_rounds=whole.make_rounds)
    if _is_openmpi(library):
        return _openmpi(made, nbytes)
    return _mpich(made) if base_of(library) == MPICH else _without_send_waits(made)


_cached_build = lru_cache(CACHE_SIZE)(_build)


def max_message_parts(
    library: str, collective: Collective, choice: AlgorithmConfig, nbytes: int, n_chunks: int
) -> int:
    """Into how many parts each message of a schedule of so many chunks may be cut; mostly 1."""
    tree = collective is Collective.BCAST and choice.algorithm in OPENMPI_TREES
    if choice.via == LIBRARY and _is_openmpi(library) and tree:
        return _parts_of_message(nbytes, n_chunks)
    return 1


def _is_openmpi(library: str) -> bool:
    return base_of(library) == OPENMPI


def _parts_of_message(nbytes: int, n_chunks: int) -> int:
    return next(parts for least, parts in PARTS_BY_MIN_BYTES if nbytes >= n_chunks * least)


def _openmpi(made: Schedule, nbytes: int) -> Schedule | None:
    if made.collective is Collective.ALLREDUCE and made.algorithm == "nonoverlapping":
        return None  # the reduce and the bcast that Open MPI would choose by itself
    if made.collective is Collective.BCAST and made.algorithm in OPENMPI_TREES:
        return _openmpi_tree(made, nbytes)
    return made


def _mpich(made: Schedule) -> Schedule:
    """The binomial tree, which knows no segments, serves the farthest first
    (bcast_intra_binomial.c of 5.0)."""
    tree = made.collective is Collective.BCAST and made.algorithm == "binomial"
    if tree and made.n_chunks == 1:
        return replace(made, make_rounds=rotate(halving_broadcast(made.p), made.root).make_rounds)
    return _without_send_waits(made)


def _without_send_waits(made: Schedule) -> Schedule:
    """Pipelined trees do not wait for what they sent (bcast_intra_pipelined_tree.c of MPICH)."""
    streams = made.collective is Collective.BCAST and made.algorithm in MPICH_PIPELINED
    return replace(made, fire_and_forget=True) if streams else made


def halving_broadcast(p: int) -> Schedule:
    """Broadcast of one chunk: who has it sends it to the middle of the ranks that it answers for.

    A message crosses the halves of the ranks once, where doubling sends p/2 across.
    """
    rounds = []
    for distance in (1 << s for s in reversed(range((p - 1).bit_length()))):
        holder = np.arange(0, p - distance, 2 * distance)
        rounds.append(Round.of(holder, holder + distance, 0))
    return make_schedule(Collective.BCAST, p, 1, rounds)


def doubling_allgather(p: int) -> Schedule:
    """Allgather by recursive doubling for any p, as both libraries do it after a scatter.

    Whom a missing partner leaves without chunks gets them from a rank of its own half that has
    them, and passes them on, half by half.

    Source: bcast_intra_scatter_recursive_doubling_allgather.c of MPICH 5.0
    """
    return Schedule(Collective.ALLGATHER, p, p, lambda: _doubling(p))


def _doubling(p: int) -> Iterator[Round]:
    rank = np.arange(p)
    for distance in (1 << s for s in range((p - 1).bit_length())):
        partner, mine = rank ^ distance, rank & -distance
        theirs = mine ^ distance
        there = partner < p
        yield Round.of(
            rank[there], partner[there], mine[there], count=np.minimum(distance, p - mine)[there]
        )
        served = p - mine - distance  # ranks of this half that had a partner
        for half in (1 << s for s in reversed(range(distance.bit_length() - 1))):
            other, first = rank ^ half, rank & -2 * half
            gives = (theirs < p) & (theirs + distance > p) & (other > rank)
            gives &= (rank < first + served) & (other >= first + served)
            yield Round.of(rank[gives], other[gives], theirs[gives], count=(p - theirs)[gives])


def _openmpi_tree(made: Schedule, nbytes: int) -> Schedule:
    """A rank posts a segment to all its children, waits, and goes on with the next segment.

    Posting: coll_base_bcast.c of Open MPI 5.0, bcast_intra_generic, for all trees; child order:
    coll_base_topo.c, in which the nearest child of a binomial tree comes first.
    """
    if made.algorithm == "binomial":
        tree = rotate(trees.broadcast(trees.binomial(made.p), made.n_chunks), made.root)
        made = replace(made, make_rounds=tree.make_rounds)
    if nbytes >= made.n_chunks * EAGER_LIMIT_BYTES:
        made = leaf_children_first(made)
    return interleave_parts(made, _parts_of_message(nbytes, made.n_chunks))


def leaf_children_first(part: Schedule) -> Schedule:
    """From the second segment on, a rank of a tree serves children that have none themselves first.

    Such a child answers at once when it is asked; another's answer stands behind the segment that
    it is passing on. Measured: a tree takes longer by just the messages that so come before.
    """

    def make() -> Iterator[Round]:
        inner = np.zeros(part.p, bool)
        for r in part.rounds():
            inner[r.src] = True
        for r in part.rounds():
            yield r.select(np.argsort((r.src_chunk > 0) & inner[r.dst], kind="stable"))

    return replace(part, make_rounds=make)


def interleave_parts(part: Schedule, n_parts: int) -> Schedule:
    """The schedule with every message of a rank that sends several in a round cut into `steps`.

    All its receivers get their first part, then all their second one, and so on.
    """
    if n_parts < 2:
        return part

    def make() -> Iterator[Round]:
        for r in part.rounds():
            several = np.bincount(r.src, minlength=part.p).max(initial=0) > 1
            yield _split_messages(r, n_parts, n_parts if several else 1)

    return replace(part, n_chunks=part.n_chunks * n_parts, make_rounds=make)


def _split_messages(r: Round, finer: int, turns: int) -> Round:
    """A round on chunks that are `split_chunks` times as many, its messages in so many parts."""
    parts = np.repeat(np.arange(turns), len(r))
    src, dst, first, into, count, reduce = (np.tile(column, turns) for column in r.columns)
    count = count * (finer // turns)
    return Round.of(
        src,
        dst,
        first * finer + parts * count,
        dst_chunk=into * finer + parts * count,
        count=count,
        reduce=reduce,
    )
