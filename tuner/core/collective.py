"""The collective operations and their properties."""

from enum import StrEnum


class Collective(StrEnum):
    """One MPI collective; the value is its name in files, tables and on the command line."""

    BCAST = "bcast"
    REDUCE = "reduce"
    ALLREDUCE = "allreduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALLGATHER = "allgather"
    GATHER = "gather"
    SCATTER = "scatter"

    @property
    def is_rooted(self) -> bool:
        """Whether one rank, the root, is the only one that gives or receives the whole buffer."""
        return self in (Collective.BCAST, Collective.REDUCE, Collective.GATHER, Collective.SCATTER)

    @property
    def is_reduction(self) -> bool:
        """Whether contributions of several ranks are combined by an operator."""
        return self in (Collective.REDUCE, Collective.ALLREDUCE, Collective.REDUCE_SCATTER)

    @property
    def has_blocks(self) -> bool:
        """Whether chunks belong to ranks: rank r owns the r-th of p equal runs of chunks."""
        return self in (
            Collective.REDUCE_SCATTER,
            Collective.ALLGATHER,
            Collective.GATHER,
            Collective.SCATTER,
        )
