"""The layout of the ranks of a communicator on nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from tuner.base.arrays import IntArray
from tuner.core.path_classes import BLOCK, CYCLIC
from tuner.runtime.consensus import Consensus
from tuner.runtime.private_comm import create_collectively


class CommLayout(NamedTuple):
    """A layout of `ppn` ranks on each of `nodes` nodes, in the order of the placement."""

    nodes: int
    ppn: int
    placement: str = BLOCK


def node_ids_of(consensus: Consensus) -> IntArray:
    """Return the node of each rank as its lowest rank there, shape (ranks,); collective.

    Raises ObjectionError where the library can create no more communicators.
    """
    comm = consensus.comm
    node = MPI.Intracomm(
        create_collectively(consensus, lambda: comm.Split_type(MPI.COMM_TYPE_SHARED))
    )
    first = np.array([comm.rank], np.int64)
    firsts = np.empty(comm.size, np.int64)
    consensus.check()
    node.Bcast(first)
    comm.Allgather(first, firsts)
    node.Free()
    return firsts


def node_ids_within(comm: MPI.Intracomm, subcomm: MPI.Intracomm, node_ids: IntArray) -> IntArray:
    """Return the nodes of the ranks of `subcomm`, all of which are in `comm`; local.

    node_ids    nodes of the ranks of `comm`
    """
    group, smaller = comm.Get_group(), subcomm.Get_group()
    places = MPI.Group.Translate_ranks(smaller, list(range(subcomm.size)), group)
    smaller.Free()
    group.Free()
    return node_ids[places]


def layout_on_nodes(node_ids: IntArray) -> CommLayout | None:
    """Return the layout of ranks on these nodes; None for an irregular one."""
    _, first, place = np.unique(node_ids, return_index=True, return_inverse=True)
    return regular_layout(first[place])


def regular_layout(firsts: IntArray) -> CommLayout | None:
    """Return the layout of a known placement; None for any other.

    firsts  lowest rank on the node of each rank

    Where placements coincide it is the first one of `tuner.core.path_classes.PLACEMENTS`.
    """
    ranks, nodes = np.arange(len(firsts)), len(np.unique(firsts))
    ppn, left = divmod(len(ranks), nodes)
    dealt = {BLOCK: ranks // ppn * ppn, CYCLIC: ranks % nodes}
    for placement, expected in dealt.items():
        if left == 0 and np.array_equal(firsts, expected):
            return CommLayout(nodes, ppn, placement)
    return None
