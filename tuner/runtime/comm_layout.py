"""The layout of the ranks of a communicator on nodes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from mpi4py import MPI

from tuner.core.path_classes import BLOCK, CYCLIC
from tuner.runtime.consensus import Consensus
from tuner.runtime.private_comm import create_collectively

MAX_LAYOUTS = 1024  # that are kept; then all are forgotten


class CommLayout(NamedTuple):
    """A layout of `ppn` ranks on each of `nodes` nodes, in the order of the placement."""

    nodes: int
    ppn: int
    placement: str = BLOCK


class NodePlaces:
    """The nodes of the ranks of a communicator, from which those of its subsets follow.

    comm        communicator whose group is kept; it may be freed
    node_ids    node of each rank, as any number
    """

    def __init__(self, comm: MPI.Intracomm, node_ids: Sequence[int]) -> None:
        self._group, self._node_ids = comm.Get_group(), node_ids
        self._on_one_node = len(set(node_ids)) == 1
        self._layouts: dict[tuple[int, ...], CommLayout | None] = {}

    @classmethod
    def gather(cls, consensus: Consensus) -> NodePlaces:
        """Gather the node of each rank, named by its lowest rank there; collective.

        Raises ObjectionError where the library can create no more communicators.
        """
        comm = consensus.comm
        node = MPI.Intracomm(
            create_collectively(consensus, lambda: comm.Split_type(MPI.COMM_TYPE_SHARED))
        )
        first, firsts = array("i", [comm.rank]), array("i", bytes(4 * comm.size))
        consensus.check()
        node.Bcast([first, 1, MPI.INT])
        comm.Allgather([first, 1, MPI.INT], [firsts, 1, MPI.INT])
        node.Free()
        return cls(comm, firsts.tolist())

    def layout(self, comm: MPI.Intracomm) -> CommLayout | None:
        """Return the layout of a communicator; None for an irregular one. Local.

        It is also None where not all ranks of `comm` are known here.
        """
        size = comm.size
        if self._on_one_node and size <= len(self._node_ids):
            return CommLayout(1, size)
        group = comm.Get_group()
        places = tuple(MPI.Group.Translate_ranks(group, range(size), self._group))
        group.Free()
        if places not in self._layouts:
            if len(self._layouts) == MAX_LAYOUTS:
                self._layouts.clear()
            self._layouts[places] = self._layout(places)
        return self._layouts[places]

    def _layout(self, places: tuple[int, ...]) -> CommLayout | None:
        if MPI.UNDEFINED in places:
            return None
        return layout_on_nodes([self._node_ids[place] for place in places])


def layout_on_nodes(node_ids: Sequence[int]) -> CommLayout | None:
    """Return the layout of ranks on these nodes; None for an irregular one."""
    first: dict[int, int] = {}
    return regular_layout([first.setdefault(node, rank) for rank, node in enumerate(node_ids)])


def regular_layout(firsts: Sequence[int]) -> CommLayout | None:
    """Return the layout of a known placement; None for any other.

    firsts  lowest rank on the node of each rank

    Where placements coincide it is the first one of `tuner.core.path_classes.PLACEMENTS`.
    """
    size, nodes = len(firsts), len(set(firsts))
    ppn, left = divmod(size, nodes)
    if left:
        return None
    if all(first == rank // ppn * ppn for rank, first in enumerate(firsts)):
        return CommLayout(nodes, ppn, BLOCK)
    if all(first == rank % nodes for rank, first in enumerate(firsts)):
        return CommLayout(nodes, ppn, CYCLIC)
    return None
