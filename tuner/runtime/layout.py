"""How the ranks of a communicator lie on nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.runtime.alone import alone


class Layout(NamedTuple):
    """As many ranks on every node, and those of a node with consecutive numbers."""

    nodes: int
    ppn: int


def layout_of(comm: MPI.Intracomm) -> Layout | None:
    """Collective; the same answer on every rank. None where nodes hold unequal numbers of ranks
    or ranks that do not follow one another: no table is made for such communicators.
    """
    with alone(comm):
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first = np.array([comm.rank])
    node.Bcast(first)
    node.Free()
    firsts = np.empty(comm.size, first.dtype)
    comm.Allgather(first, firsts)
    return consecutive(firsts)


def consecutive(firsts: NDArray[np.int64]) -> Layout | None:
    """Of the lowest rank on the node of every rank; None for any other placement."""
    leaders = np.unique(firsts)
    ppn = len(firsts) // len(leaders)
    regular = np.array_equal(firsts, np.arange(len(firsts)) // ppn * ppn)
    return Layout(len(leaders), ppn) if regular else None
