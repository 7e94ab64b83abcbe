"""The schedules by which MPI libraries run their algorithms.

The schedules of `tuner.algorithms` are how we would run an algorithm. Where a library runs one
differently, this module, and no other, describes how.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tuner import algorithms
from tuner.algorithms import trees
from tuner.algorithms.bcast import binomial_distance_halving
from tuner.algorithms.scatter import binomial_scatter
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, concat, rotate
from tuner.core.table import LIBRARY, AlgorithmChoice
from tuner.mpi_libraries.products import MPICH, OPENMPI, base_of

# (minimum bytes, parts): into how many parts Open MPI over TCP cuts messages that a rank posts
# together; each receiver gets a part in turn. Shorter messages go out whole, one after the other.
# Measured: of two messages of 512 KiB the first arrives after the time of 1.9 messages, of two of
# 1 MiB after the time of 1.79.
PARTS_BY_MIN_BYTES = ((768 * 1024, 5), (448 * 1024, 10), (0, 1))
# From this size on Open MPI over TCP asks the receiver before it sends.
EAGER_LIMIT_BYTES = 64 * 1024
CACHE_SIZE = 128  # schedules
MPICH_PIPELINED = ("pipeline", "binary")
OPENMPI_TREES = ("linear", "chain", "pipeline", "binary", "binomial", "knomial")


def schedule_of(
    library: str,
    collective: Collective,
    choice: AlgorithmChoice,
    p: int,
    nbytes: int,
    root: int = 0,
) -> Schedule | None:
    """Return the schedule by which `library` ("openmpi 5.0.11", "mpich", ...) runs a call.

    It serves to estimate costs, not to be run, and is not verified by replay. None where no
    schedule describes the call: the default, algorithms that only the library has, and those made
    of other decisions of the library. Configs that the library does not run itself get our own
    schedules.

    Most sizes of an algorithm without segments share one cached schedule.
    """
    name = choice.algorithm
    if name not in algorithms.algorithm_names(collective, algorithms.REQUIREMENTS):
        return None
    if algorithms.is_segmented(collective, name, choice.params):
        return _build(library, collective, choice, p, nbytes, root)
    # Without segments the schedule depends on the size only through the number of parts.
    alike = next((least for least, _ in PARTS_BY_MIN_BYTES if nbytes >= least), nbytes)
    return _cached_build(library, collective, choice, p, alike, root)


def _build(
    library: str, collective: Collective, choice: AlgorithmChoice, p: int, nbytes: int, root: int
) -> Schedule | None:
    name, params = choice.algorithm, choice.params
    if choice.runner == LIBRARY and _is_openmpi(library) and name == "spread_out":
        params = {"requests": p, **params}  # all at once where no number is given
    made = algorithms.build(
        collective, name, p, root=root, nbytes=nbytes, params=params, verify_schedule=False
    )
    if choice.runner != LIBRARY:
        return made
    if (collective, name) == (Collective.BCAST, "scatter_allgather"):
        whole = rotate(concat(collective, binomial_scatter(p), doubling_allgather(p)), root)
        return replace(made, n_chunks=whole.n_chunks, make_rounds=whole.make_rounds)
    if _is_openmpi(library):
        return _openmpi(made, nbytes)
    return _mpich(made) if base_of(library) == MPICH else _without_send_waits(made)


_cached_build = lru_cache(CACHE_SIZE)(_build)


def _is_openmpi(library: str) -> bool:
    return base_of(library) == OPENMPI


def _parts_of_message(nbytes: int, n_chunks: int) -> int:
    return next(parts for least, parts in PARTS_BY_MIN_BYTES if nbytes >= n_chunks * least)


def _openmpi(made: Schedule, nbytes: int) -> Schedule | None:
    if made.collective is Collective.ALLREDUCE and made.algorithm == "nonoverlapping":
        return None  # a reduce and a bcast whose algorithms Open MPI chooses by itself
    if made.collective is Collective.BCAST and made.algorithm in OPENMPI_TREES:
        return _openmpi_tree(made, nbytes)
    return made


def _mpich(made: Schedule) -> Schedule:
    """Return the schedule in MPICH's variant.

    An unsegmented binomial tree serves the farthest child first (bcast_intra_binomial.c of 5.0).
    """
    tree = made.collective is Collective.BCAST and made.algorithm == "binomial"
    if tree and made.n_chunks == 1:
        farthest_first = binomial_distance_halving(made.p, made.root)
        return replace(made, make_rounds=farthest_first.make_rounds)
    return _without_send_waits(made)


def _without_send_waits(made: Schedule) -> Schedule:
    """Return a pipelined tree that does not wait for its sends.

    Source: bcast_intra_pipelined_tree.c of MPICH
    """
    streams = made.collective is Collective.BCAST and made.algorithm in MPICH_PIPELINED
    return replace(made, fire_and_forget=True) if streams else made


def doubling_allgather(p: int) -> Schedule:
    """Return an allgather by recursive doubling for any p, as libraries run it after a scatter.

    A rank whose partner is missing gets the chunks from a rank of its own half that has them, and
    passes them on, half by half.

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
    """Return a tree in Open MPI's variant.

    A rank posts a segment to all its children, waits, and goes on with the next segment.

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
    """Return a tree in which ranks serve leaf children first, from the second segment on.

    A leaf answers the request to send at once; the answer of another child waits behind the
    segment that it is forwarding. Measured: a tree takes longer by exactly the messages that come
    before it.
    """

    def make() -> Iterator[Round]:
        inner = np.zeros(part.p, bool)
        for r in part.rounds():
            inner[r.src] = True
        for r in part.rounds():
            yield r.select(np.argsort((r.src_chunk > 0) & inner[r.dst], kind="stable"))

    return replace(part, make_rounds=make)


def interleave_parts(part: Schedule, n_parts: int) -> Schedule:
    """Return the schedule with the messages of ranks that send several in a round cut into parts.

    All receivers of a rank get their first part, then all their second one, and so on.
    """
    if n_parts < 2:
        return part

    def make() -> Iterator[Round]:
        for r in part.rounds():
            several = np.bincount(r.src, minlength=part.p).max(initial=0) > 1
            yield _split_messages(r, n_parts, n_parts if several else 1)

    return replace(part, n_chunks=part.n_chunks * n_parts, make_rounds=make, segment_bytes=0)


def _split_messages(r: Round, finer: int, turns: int) -> Round:
    """Return a round on finer chunks, with its messages cut into parts.

    finer   number of new chunks for each old one
    turns   number of parts of each message
    """
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
