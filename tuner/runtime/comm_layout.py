"""How the ranks of a communicator lie on nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from tuner.base.arrays import IntArray
from tuner.core.path_classes import CONSECUTIVE, CYCLIC
from tuner.runtime.consensus import Consensus
from tuner.runtime.private_comm import made_of


class Layout(NamedTuple):
    """As many ranks on every node, dealt to them as the placement says."""

    nodes: int
    ppn: int
    placement: str = CONSECUTIVE


def nodes_of(consensus: Consensus) -> IntArray:
    """Return a number for the node of each rank, equal for ranks on the same one; collective.

    Raises ObjectionError where the library makes no more communicators.
    """
    comm = consensus.comm
    node = MPI.Intracomm(made_of(consensus, lambda: comm.Split_type(MPI.COMM_TYPE_SHARED)))
    first = np.array([comm.rank], np.int64)
    firsts = np.empty(comm.size, np.int64)
    consensus.check()
    node.Bcast(first)
    comm.Allgather(first, firsts)
    node.Free()
    return firsts


def nodes_within(comm: MPI.Intracomm, part: MPI.Intracomm, nodes: IntArray) -> IntArray:
    """Return the numbers for the ranks of `part`, all of which are in `comm`, from those of `comm`.

    Local: no rank waits for another.
    """
    group, smaller = comm.Get_group(), part.Get_group()
    places = MPI.Group.Translate_ranks(smaller, list(range(part.size)), group)
    smaller.Free()
    group.Free()
    return nodes[places]


def layout_on(nodes: IntArray) -> Layout | None:
    """Return the layout of ranks on these nodes."""
    _, first, place = np.unique(nodes, return_index=True, return_inverse=True)
    return regular(first[place])


def regular(firsts: IntArray) -> Layout | None:
    """Of the lowest rank on the node of every rank; None for any other placement. Where two are
    the same it is the first of `tuner.core.path_classes.PLACEMENTS`.
    """
    ranks, nodes = np.arange(len(firsts)), len(np.unique(firsts))
    ppn, left = divmod(len(ranks), nodes)
    dealt = {CONSECUTIVE: ranks // ppn * ppn, CYCLIC: ranks % nodes}
    for placement, expected in dealt.items():
        if left == 0 and np.array_equal(firsts, expected):
            return Layout(nodes, ppn, placement)
    return None
