"""How the ranks of a communicator lie on nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.locality import CONSECUTIVE, CYCLIC
from tuner.runtime.private import made_of


class Layout(NamedTuple):
    """As many ranks on every node, dealt to them as the placement says."""

    nodes: int
    ppn: int
    placement: str = CONSECUTIVE


def layout_of(comm: MPI.Intracomm) -> Layout | None:
    """Collective; the same answer on every rank. None where nodes hold unequal numbers of ranks
    or ranks in any other order: no table is made for such communicators. None also where the
    library makes no more communicators.
    """
    node = made_of(comm, lambda: comm.Split_type(MPI.COMM_TYPE_SHARED))
    if node == MPI.COMM_NULL:
        return None
    first = np.array([comm.rank])
    node.Bcast(first)
    node.Free()
    firsts = np.empty(comm.size, first.dtype)
    comm.Allgather(first, firsts)
    return regular(firsts)


def regular(firsts: NDArray[np.int64]) -> Layout | None:
    """Of the lowest rank on the node of every rank; None for any other placement. Where two are
    the same it is the first of `tuner.locality.PLACEMENTS`.
    """
    ranks, nodes = np.arange(len(firsts)), len(np.unique(firsts))
    ppn, left = divmod(len(ranks), nodes)
    dealt = {CONSECUTIVE: ranks // ppn * ppn, CYCLIC: ranks % nodes}
    for placement, expected in dealt.items():
        if left == 0 and np.array_equal(firsts, expected):
            return Layout(nodes, ppn, placement)
    return None
