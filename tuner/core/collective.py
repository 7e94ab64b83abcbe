"""The collective operations: what each does with the buffer, and its names.

Each member of `Collective` has one record here. What ranks give and get, whether there is a root
and an operator, and what a schedule has to achieve follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto

PROBE_ELEMENT_BYTES = 4  # of the elements that probes, trials and comparisons send


class Held(Enum):
    """The part of the buffer that each rank holds before or after a call."""

    WHOLE = auto()
    WHOLE_AT_ROOT = auto()  # other ranks hold nothing
    BLOCK = auto()  # rank r the r-th of p equal runs of chunks
    FOR_EACH = auto()  # in scratch, a block for each rank: the r-th run of chunks for rank r
    FROM_EACH = auto()  # a block from each rank: the r-th run of chunks from rank r
    ARRIVAL = auto()  # no data: ranks know of their own arrival, and after the call of all arrivals

    def includes(self, other: Held) -> bool:
        """Return whether ranks that hold this also hold the other part."""
        parts = Held.WHOLE, Held.WHOLE_AT_ROOT, Held.BLOCK
        return self is other or (self is Held.WHOLE and other in parts)


@dataclass(frozen=True)
class CollectiveSpec:
    """A collective.

    mpi             name in MPI without the prefix `MPI_`; that of mpi4py's method
    before, after   what ranks hold before and after a call
    reduces         whether an operator combines what several ranks hold of the same chunk
    is_ragged       whether blocks have lengths of their own
    spellings       other names in programs and files, in lower case without separators
    """

    mpi: str
    before: Held
    after: Held
    reduces: bool = False
    is_ragged: bool = False
    spellings: tuple[str, ...] = ()


def plain_name(name: str) -> str:
    """Return a name in lower case without separators."""
    return name.lower().translate({ord(sign): None for sign in "_- "})


class Collective(StrEnum):
    """One MPI collective; the value is its name in files, tables and on the command line."""

    BCAST = "bcast"
    REDUCE = "reduce"
    ALLREDUCE = "allreduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALLGATHER = "allgather"
    ALLGATHERV = "allgatherv"
    GATHER = "gather"
    SCATTER = "scatter"
    ALLTOALL = "alltoall"
    ALLTOALLV = "alltoallv"
    BARRIER = "barrier"

    @property
    def spec(self) -> CollectiveSpec:
        return _SPECS[self]

    @classmethod
    def spelled(cls, name: str) -> Collective | None:
        """Return the collective that programs and files call `name`, such as `All_Gather`."""
        return next((one for one in cls if plain_name(name) in one.spellings), None)

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return its names in programs and files, in lower case without separators."""
        return (plain_name(self), *self.spec.spellings)

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the names of mpi4py's methods for a call: `Bcast`, but `Barrier` and `barrier`."""
        name = self.spec.mpi
        return (name,) if self.has_data else (name, name.lower())

    @property
    def is_rooted(self) -> bool:
        """Return whether only one rank, the root, gives or receives the whole buffer."""
        return Held.WHOLE_AT_ROOT in (self.spec.before, self.spec.after)

    @property
    def is_reduction(self) -> bool:
        """Return whether contributions of several ranks are combined by an operator."""
        return self.spec.reduces

    @property
    def is_ragged(self) -> bool:
        """Return whether blocks have lengths of their own.

        Schedules and measurements of such a collective are of calls whose blocks are equally long.
        """
        return self.spec.is_ragged

    @property
    def even(self) -> Collective:
        """Return the collective that does the same with blocks of one length."""
        return next(
            one
            for one in Collective
            if not one.is_ragged
            and (one.spec.before, one.spec.after) == (self.spec.before, self.spec.after)
            and one.is_reduction == self.is_reduction
        )

    @property
    def states_all_lengths(self) -> bool:
        """Return whether each rank states the lengths of all blocks of a ragged call."""
        return self.is_ragged and self.spec.after is Held.WHOLE

    @property
    def has_data(self) -> bool:
        """Return whether calls have buffers.

        Calls without are measured and simulated as calls of PROBE_ELEMENT_BYTES in host memory.
        """
        return self.spec.before is not Held.ARRIVAL

    def call_bytes(self, nbytes: int) -> int:
        """Return the size of a call that is asked for with `nbytes`."""
        return nbytes if self.has_data else PROBE_ELEMENT_BYTES

    def rounded_down(self, nbytes: int, p: int) -> int:
        """Return the largest size up to `nbytes` that gives each rank a share of whole elements."""
        shares = PROBE_ELEMENT_BYTES * p
        return nbytes // shares * shares if self.has_blocks else self.call_bytes(nbytes)

    @property
    def has_blocks(self) -> bool:
        """Return whether chunks belong to ranks: rank r owns the r-th of p equal runs of chunks."""
        blocks = Held.BLOCK, Held.FOR_EACH, Held.FROM_EACH
        return self.spec.before in blocks or self.spec.after in blocks

    @property
    def moves_blocks(self) -> bool:
        """Return whether ranks give or get blocks and nothing is reduced.

        Libraries count the bytes of one block in such calls, not those of the whole buffer.
        """
        return self.has_blocks and not self.is_reduction

    @property
    def gives_in_scratch(self) -> bool:
        """Return whether schedules find what a rank gives in the first buffer of scratch."""
        return self.spec.before is Held.FOR_EACH

    @property
    def has_one_buffer(self) -> bool:
        """Return whether a call has one buffer argument, which the root sends and others fill."""
        return (self.spec.before, self.spec.after) == (Held.WHOLE_AT_ROOT, Held.WHOLE)

    @property
    def n_buffers(self) -> int:
        """Return the number of buffer arguments of a call."""
        return 0 if not self.has_data else 1 if self.has_one_buffer else 2

    @property
    def substitutes(self) -> tuple[tuple[Collective, ...], ...]:
        """Return the sequences of other collectives that together do the same, of the same size.

        A library that is slower than its own substitutes breaks a performance guideline (Traeff,
        Gropp and Thakur, Self-consistent MPI performance guidelines, 2010).
        """
        if self.is_ragged:
            return ()
        others = [one for one in Collective if one is not self and not one.is_ragged]
        alone = [one for one in others if self.is_done_by(one)]
        pairs = [
            (one, other)
            for one in others
            for other in others
            if one not in alone and other not in alone and self.is_done_by(one, other)
        ]
        return (*((one,) for one in alone), *pairs)

    def is_done_by(self, *others: Collective) -> bool:
        """Return whether other collectives, one after the other, do what this one does."""
        if not self.has_data:  # all ranks hear of all others
            return [(one.spec.before, one.spec.after) for one in others] == [(Held.WHOLE,) * 2]
        held, reduced = self.spec.before, False
        for one in others:
            if (reduced and one.is_reduction) or not held.includes(one.spec.before):
                return False
            held, reduced = one.spec.after, reduced or one.is_reduction
        ends = held.includes(self.spec.after) if len(others) == 1 else held is self.spec.after
        return ends and reduced == self.is_reduction

    def gives(self, at_root: bool) -> bool:
        """Return whether a rank, the root or another one, holds data before the call."""
        return at_root or self.spec.before is not Held.WHOLE_AT_ROOT

    def takes(self, at_root: bool) -> bool:
        """Return whether a rank, the root or another one, holds data after the call."""
        return at_root or self.spec.after is not Held.WHOLE_AT_ROOT

    def blocks(self, p: int) -> tuple[int, int]:
        """Return for how many of p ranks the send and the receive buffer hold a block.

        It is 1 where the buffer is not divided into blocks.
        """
        whole = p if self.has_blocks else 1
        held = self.spec.before, self.spec.after
        sent, received = (1 if part is Held.BLOCK else whole for part in held)
        return sent, received


_SPECS = {
    Collective.BCAST: CollectiveSpec(
        "Bcast", Held.WHOLE_AT_ROOT, Held.WHOLE, spellings=("broadcast",)
    ),
    Collective.REDUCE: CollectiveSpec("Reduce", Held.WHOLE, Held.WHOLE_AT_ROOT, reduces=True),
    Collective.ALLREDUCE: CollectiveSpec("Allreduce", Held.WHOLE, Held.WHOLE, reduces=True),
    Collective.REDUCE_SCATTER: CollectiveSpec(
        "Reduce_scatter_block",
        Held.WHOLE,
        Held.BLOCK,
        reduces=True,
        spellings=("reducescatterblock",),
    ),
    Collective.ALLGATHER: CollectiveSpec("Allgather", Held.BLOCK, Held.WHOLE),
    Collective.ALLGATHERV: CollectiveSpec("Allgatherv", Held.BLOCK, Held.WHOLE, is_ragged=True),
    Collective.GATHER: CollectiveSpec("Gather", Held.BLOCK, Held.WHOLE_AT_ROOT),
    Collective.SCATTER: CollectiveSpec("Scatter", Held.WHOLE_AT_ROOT, Held.BLOCK),
    Collective.ALLTOALL: CollectiveSpec(
        "Alltoall", Held.FOR_EACH, Held.FROM_EACH, spellings=("alltoallpersonalizedexchange",)
    ),
    Collective.ALLTOALLV: CollectiveSpec(
        "Alltoallv", Held.FOR_EACH, Held.FROM_EACH, is_ragged=True
    ),
    Collective.BARRIER: CollectiveSpec("Barrier", Held.ARRIVAL, Held.ARRIVAL),
}
