"""The one representation of an algorithm: `Schedule`, a sequence of `Round`s.

A round is a table with one row per transfer. Sends, receives, reductions and copies are projections
of a row, so a send without its receive cannot be written.

The complete semantics:

1. In a round a rank starts all its transfers at once; what it sends is the value at that rank's
   start of the round.
2. A rank enters its next round when its own transfers are complete; ranks do not wait for others.
3. A reduction folds the arrivals into the destination in row order, after the wait.
4. A schedule contains no bytes, costs, protocols or locations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tuner.base.arrays import AnyArray, Int32Array, IntArray
from tuner.base.errors import LimitExceededError, ScheduleError
from tuner.core.collective import Collective

MAX_SCRATCH_BYTES = 1 << 31  # of one rank in a call; the library makes calls that need more
MAX_MESSAGE_BYTES = (1 << 31) - 1  # that MPI counts in an int
MAX_ROUND_TRANSFERS = 1 << 23  # in one round, which is held in memory
NO_REDUCTION = 0
DST_OP_ARRIVING = 1
ARRIVING_OP_DST = 2


class Runs(NamedTuple):
    """Places of chunks that do not follow one another, as in a vector datatype of MPI.

    length      consecutive chunks of a run
    step        chunks from the beginning of a run to that of the next; may be negative
    modulus     places are counted round a ring: the aligned group of so many chunks that has the
                first one, whose last chunk is followed by its first one
    """

    length: int
    step: int
    modulus: int

    def places(self, first: IntArray, within: IntArray) -> IntArray:
        """Return the chunk that comes `within` chunks after the first; arrays of one shape."""
        ring = first // self.modulus * self.modulus
        offset = within // self.length * self.step + within % self.length
        place: IntArray = ring + (first - ring + offset) % self.modulus
        return place


@dataclass(frozen=True, eq=False)
class Round:
    """Transfers of one round as parallel read-only arrays, all of shape (transfers,).

    src, dst    ranks; src == dst is a local copy or a local reduction
    src_chunk   first chunk at the source
    dst_chunk   first chunk at the destination
    count       consecutive chunks that travel as one message
    reduce      NO_REDUCTION, DST_OP_ARRIVING or ARRIVING_OP_DST

    src_runs, dst_runs  where the chunks of every row are instead, if they are not consecutive; only
                        where all rows are local copies
    """

    src: Int32Array
    dst: Int32Array
    src_chunk: Int32Array
    dst_chunk: Int32Array
    count: Int32Array
    reduce: Int32Array
    src_runs: Runs | None = field(default=None, kw_only=True)
    dst_runs: Runs | None = field(default=None, kw_only=True)

    @classmethod
    def of(
        cls,
        src: ArrayLike,
        dst: ArrayLike,
        src_chunk: ArrayLike,
        dst_chunk: ArrayLike | None = None,
        count: ArrayLike = 1,
        reduce: ArrayLike = NO_REDUCTION,
        *,
        src_runs: Runs | None = None,
        dst_runs: Runs | None = None,
    ) -> Round:
        """Make a round from columns or scalars, broadcast together.

        `dst_chunk` defaults to `src_chunk`. Raises ScheduleError for a number beyond 32 bits.
        """
        dst_chunk = src_chunk if dst_chunk is None else dst_chunk
        columns = np.broadcast_arrays(src, dst, src_chunk, dst_chunk, count, reduce)
        made = (_as_column(column) for column in columns)
        return cls(*made, src_runs=src_runs, dst_runs=dst_runs)

    def __len__(self) -> int:
        return len(self.src)

    @property
    def has_runs(self) -> bool:
        return self.src_runs is not None or self.dst_runs is not None

    @property
    def columns(self) -> tuple[Int32Array, ...]:
        """Return the six columns in the order of the constructor."""
        return (self.src, self.dst, self.src_chunk, self.dst_chunk, self.count, self.reduce)

    def select(self, rows: ArrayLike) -> Round:
        """Return the given rows (indices or mask) as a round."""
        rows = np.asarray(rows)
        columns = (_read_only(column[rows]) for column in self.columns)
        return Round(*columns, src_runs=self.src_runs, dst_runs=self.dst_runs)

    def consecutive(self) -> Round:
        """Return the same transfers in rows of consecutive chunks, without runs."""
        return self.pieces()[0]

    def pieces(self) -> tuple[Round, IntArray]:
        """Return the same transfers in rows of consecutive chunks, and the row that each is of."""
        if not self.has_runs:
            return self, np.arange(len(self))
        if (self.src != self.dst).any() or self.reduce.any():
            raise ScheduleError("only copies within ranks can be of chunks that do not follow")
        row = np.repeat(np.arange(len(self)), self.count)
        within = np.arange(len(row)) - np.repeat(np.cumsum(self.count) - self.count, self.count)
        source, target = (
            first[row] + within
            if runs is None
            else runs.places(first[row].astype(np.int64), within)
            for first, runs in ((self.src_chunk, self.src_runs), (self.dst_chunk, self.dst_runs))
        )
        steps = (np.diff(column, prepend=-1) for column in (row, source - within, target - within))
        begins = np.flatnonzero(np.any([step != 0 for step in steps], axis=0))
        count, row = np.diff(begins, append=len(row)), row[begins]
        made = Round.of(self.src[row], self.dst[row], source[begins], target[begins], count)
        return made, row


@dataclass(frozen=True)
class RoundsAlike:
    """Rounds in which all ranks do the same, as `Schedule.make_rounds` makes them.

    In each round every rank makes the same copies, sends as many messages as any other, as long and
    in the same order, and receives as many in the same order, each of them from a rank that sends
    it at the same place of its order.

    p           number of ranks
    rows_of     returns the rounds with the rows of these senders alone
    messages    most messages that a rank sends in a round
    """

    p: int
    rows_of: Callable[[IntArray], Iterable[Round]]
    messages: int = 1

    def __call__(self) -> Iterable[Round]:
        """Return the rounds; raise LimitExceededError for too many messages at once."""
        if self.p * self.messages > MAX_ROUND_TRANSFERS:
            raise LimitExceededError(
                f"{self.p} ranks would exchange {self.p * self.messages} messages at once, and at"
                f" most {MAX_ROUND_TRANSFERS} can be held: take fewer ranks, or fewer requests"
            )
        return self.rows_of(np.arange(self.p))

    def of_two_ranks(self) -> Iterator[Round]:
        """Yield rounds of ranks 0 and 1 alone that take as long, where all ranks are alike.

        What a rank sends to any other goes to the other one of the two.
        """
        known = dict[bytes, Int32Array]()  # columns are shared: engines recognize them by identity

        def shared(column: Int32Array) -> Int32Array:
            return known.setdefault(column.tobytes(), _read_only(column))

        for r in self.rows_of(np.zeros(1, np.int64)):
            src = np.tile(np.array([0, 1], np.int32), len(r))
            dst = src ^ np.repeat(r.src != r.dst, 2)
            rest = (shared(np.repeat(column, 2)) for column in r.columns[2:])
            yield Round(shared(src), shared(dst), *rest, src_runs=r.src_runs, dst_runs=r.dst_runs)


def _as_column(values: AnyArray) -> Int32Array:
    flags = values.flags
    if values.dtype == np.int32 and values.ndim == 1 and flags.c_contiguous and not flags.writeable:
        return values  # already a column; engines recognize it by identity
    column = np.array(values, dtype=np.int32).reshape(-1)
    if values.dtype != np.int32 and (column != np.ravel(values)).any():
        raise ScheduleError("a rank or chunk number is too large for a schedule")
    return _read_only(column)


def _read_only(column: Int32Array) -> Int32Array:
    column.setflags(write=False)
    return column


@dataclass(frozen=True, eq=False)
class Schedule:
    """The transfers of every rank in one call of a collective.

    Chunks [0, n_chunks) are the user's buffer, those from n_chunks on are scratch. `make_rounds`
    returns a fresh iterable of the rounds each time, so that rounds may be produced lazily.

    scratch_buffers     size of scratch in multiples of the user's buffer

    staged              scratch is in host memory, whatever memory the user's buffer is in
    in_network          rows of a round with one source and the same chunks are one message that the
                        network replicates on its way; rows of a round that reduce into one slot are
                        combined on their way and arrive as one message
    segment_bytes       size of all chunks but the last, which holds the rest, as libraries cut
                        messages; 0 for chunks that differ by one element at most
    fire_and_forget     ranks do not wait for the arrival of what they sent: a rank continues when
                        its messages have left. Only the time of a call depends on it
    """

    collective: Collective
    p: int
    n_chunks: int
    make_rounds: Callable[[], Iterable[Round]]
    algorithm: str = ""
    root: int = 0
    params: Mapping[str, int] = field(default_factory=dict)
    staged: bool = False
    in_network: bool = False
    fire_and_forget: bool = False
    segment_bytes: int = 0
    scratch_buffers: int = 1

    def __post_init__(self) -> None:
        if self.p < 1 or self.n_chunks < 1 or not 0 <= self.root < self.p:
            raise ScheduleError(
                f"{self}: needs p >= 1, n_chunks >= 1 and a root below p,"
                f" not p={self.p}, n_chunks={self.n_chunks}, root={self.root}"
            )
        if self.collective.has_blocks and self.n_chunks % self.p:
            raise ScheduleError(f"{self}: {self.n_chunks} chunks cannot be divided over {self.p}")

    def __str__(self) -> str:
        return f"{self.collective} {self.algorithm or 'schedule'} (p={self.p}, root={self.root})"

    @property
    def slots(self) -> int:
        """The number of places for chunks on a rank: those of the user's buffer and of scratch."""
        return (1 + self.scratch_buffers) * self.n_chunks

    def rounds(self) -> Iterator[Round]:
        """Return a fresh iterator over the rounds in order, without empty ones."""
        return (r for r in self.make_rounds() if len(r))

    def chunk_sizes(self, count: int, itemsize: int = 1) -> tuple[int, int, int]:
        """Return elements of a shorter chunk, how many more longer ones have, and their number.

        The longer ones come first. The buffer has `count` elements of `itemsize` bytes. In an
        all-to-all all blocks are equally long: a size between such calls counts as the larger one.
        """
        if self.collective.gives_in_scratch:
            return -(-count // self.n_chunks), 0, 0
        full = -(-self.segment_bytes // max(1, itemsize))
        others = self.n_chunks - 1
        if others * full < count < self.n_chunks * full:
            rest = count - others * full
            return rest, full - rest, others
        return count // self.n_chunks, 1, count % self.n_chunks

    def offsets(self, count: int, itemsize: int = 1) -> IntArray:
        """Return the element offsets of the chunks, shape (n_chunks + 1,), for `count` elements."""
        shorter, more, longer = self.chunk_sizes(count, itemsize)
        chunk = np.arange(self.n_chunks + 1)
        first: IntArray = chunk * shorter + np.minimum(chunk, longer) * more
        return first

    def elements(
        self, chunk: IntArray, chunks: IntArray, count: int, itemsize: int = 1
    ) -> IntArray:
        """Return the elements of consecutive chunks, `chunks` of them from `chunk` on."""
        shorter, more, longer = self.chunk_sizes(count, itemsize)
        first: IntArray = chunks * shorter
        return first + np.clip(longer - chunk % self.n_chunks, 0, chunks) * more

    def fits(self, nbytes: int, message_chunks: int) -> bool:
        """Return whether ranks can make a call of `nbytes` bytes, the same on all ranks.

        message_chunks  chunks of the longest message
        """
        longest = nbytes * message_chunks // self.n_chunks
        return longest <= MAX_MESSAGE_BYTES and nbytes * self.scratch_buffers <= MAX_SCRATCH_BYTES

    def owner(self, chunk: IntArray) -> IntArray:
        """Return the ranks that own the chunks in a collective with blocks."""
        return chunk * self.p // self.n_chunks


def make_schedule(
    collective: Collective, p: int, n_chunks: int, rounds: Iterable[Round], root: int = 0
) -> Schedule:
    """Return a schedule whose rounds are held in memory."""
    kept = tuple(rounds)
    return Schedule(collective, p, n_chunks, lambda: kept, root=root)


def concat(collective: Collective, *parts: Schedule) -> Schedule:
    """Join schedules one after another; each rank enters the next part by itself.

    Raises ScheduleError unless all parts have the same p and n_chunks.
    """
    shapes = {(part.p, part.n_chunks) for part in parts}
    if len(shapes) != 1:
        raise ScheduleError(f"cannot join schedules of different (p, n_chunks): {sorted(shapes)}")
    p, n_chunks = shapes.pop()

    def make() -> Iterator[Round]:
        for part in parts:
            yield from part.rounds()

    return Schedule(
        collective,
        p,
        n_chunks,
        make,
        staged=any(part.staged for part in parts),
        in_network=any(part.in_network for part in parts),
        fire_and_forget=all(part.fire_and_forget for part in parts),
        scratch_buffers=max(part.scratch_buffers for part in parts),
    )


def relabel(part: Schedule, rank_of: ArrayLike, p: int | None = None, root: int = 0) -> Schedule:
    """Return the schedule with rank r's role played by `rank_of[r]` in a communicator of p ranks.

    Rounds that share a column of ranks share it afterwards, too.
    """
    ranks = np.asarray(rank_of, dtype=np.int32)

    def make() -> Iterator[Round]:
        relabeled = ColumnMap(lambda column: ranks[column])
        for r in part.rounds():
            yield replace(r, src=relabeled(r.src), dst=relabeled(r.dst))

    return replace(part, p=part.p if p is None else p, make_rounds=make, root=root)


class ColumnMap:
    """A function of a column, computed once for each column object.

    So rounds that share a column share the result, too.
    """

    def __init__(self, function: Callable[[Int32Array], AnyArray]) -> None:
        self._function = function
        self._known: dict[int, tuple[Int32Array, Int32Array]] = {}  # by id; it holds the column

    def __call__(self, column: Int32Array) -> Int32Array:
        if id(column) not in self._known:
            self._known[id(column)] = column, _as_column(self._function(column))
        return self._known[id(column)][1]


def rotate(part: Schedule, root: int) -> Schedule:
    """Return a schedule written for root 0 with rank r's role played by (r + root) mod p."""
    if root == 0:
        return part
    return relabel(part, (np.arange(part.p) + root) % part.p, root=root)


def reverse(part: Schedule, collective: Collective, reduce: int = NO_REDUCTION) -> Schedule:
    """Reverse time and direction: a broadcast becomes a reduction, a scatter becomes a gather.

    A rank takes its arrivals in ascending rank order, so that a tree whose subtrees are runs of
    consecutive ranks keeps the order of the operands.
    """

    def turned(r: Round) -> Round:
        r = r.consecutive()
        ascending = np.argsort(r.dst, kind="stable")
        return Round.of(r.dst, r.src, r.dst_chunk, r.src_chunk, r.count, reduce).select(ascending)

    rounds = tuple(turned(r) for r in part.rounds())[::-1]
    return replace(part, collective=collective, make_rounds=lambda: rounds)


def rotate_chunks(part: Schedule, shift: int) -> Schedule:
    """Return a schedule with chunk c's role played by chunk (c + shift) mod n_chunks.

    Transfers that wrap around are split. Only for schedules in which chunks keep their index
    (`dst_chunk` equals `src_chunk`) and no scratch is used.
    """
    if shift == 0:
        return part
    n = part.n_chunks

    def turned(r: Round) -> Round:
        first = (r.src_chunk + shift) % n
        head = np.minimum(r.count, n - first)
        wraps = head < r.count
        start = np.concatenate([first, np.zeros(wraps.sum(), dtype=int)])
        return Round.of(
            np.concatenate([r.src, r.src[wraps]]),
            np.concatenate([r.dst, r.dst[wraps]]),
            start,
            count=np.concatenate([head, (r.count - head)[wraps]]),
            reduce=np.concatenate([r.reduce, r.reduce[wraps]]),
        )

    rounds = tuple(turned(r) for r in part.rounds())
    return replace(part, make_rounds=lambda: rounds)
