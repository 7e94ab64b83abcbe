"""The collective operations and their properties."""

from enum import StrEnum

PROBE_ELEMENT_BYTES = 4  # of the elements that probes, trials and comparisons send


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
        """Return whether only one rank, the root, gives or receives the whole buffer."""
        return self in (Collective.BCAST, Collective.REDUCE, Collective.GATHER, Collective.SCATTER)

    @property
    def is_reduction(self) -> bool:
        """Return whether contributions of several ranks are combined by an operator."""
        return self in (Collective.REDUCE, Collective.ALLREDUCE, Collective.REDUCE_SCATTER)

    @property
    def has_blocks(self) -> bool:
        """Return whether chunks belong to ranks: rank r owns the r-th of p equal runs of chunks."""
        return self in (
            Collective.REDUCE_SCATTER,
            Collective.ALLGATHER,
            Collective.GATHER,
            Collective.SCATTER,
        )
