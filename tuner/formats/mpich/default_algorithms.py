"""What MPICH's default runs, by the rules that its library holds: no rank has to be asked.

The device layer is asked first. What it does itself has no name among the MPIR layer's algorithms,
so it is not known; neither is what it makes of parts of a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import Choice
from tuner.formats.mpich.device import HANDED_ON, IN_SHARED_MEMORY
from tuner.formats.mpich.emitter import leaf_for
from tuner.formats.mpich.generic import OwnTrees
from tuner.formats.mpich.selection import Call, Leaf, Tree, UnmatchedError, bounds, decide
from tuner.launch.rank_program import SINGLE, THREAD_LEVELS
from tuner.mpi_libraries.default_algorithms import Call as Shaped
from tuner.mpi_libraries.default_algorithms import Decisions
from tuner.mpi_libraries.mpich import ALGORITHMS, ITEM


def find(
    trees: OwnTrees, calls: Sequence[Shaped], most: int, thread_level: str = SINGLE
) -> tuple[Decisions, ...]:
    """Return the default's decisions up to `most` bytes, with commutative built-in operators.

    trees           the library's own, from `own_trees`
    thread_level    with which MPI is initialised: shared memory is for programs of one thread

    No starts where a tree asks for more than shape and size.
    """
    threaded = thread_level == THREAD_LEVELS[-1]
    return tuple(_decisions(trees, call, most, threaded) for call in calls)


def _decisions(trees: OwnTrees, call: Shaped, most: int, threaded: bool) -> Decisions:
    try:
        steps = list(_steps(trees, call, most, threaded))
    except InputError:
        steps = []
    starts, choices = tuple(start for start, _ in steps), tuple(choice for _, choice in steps)
    collective, nodes, ppn, placement = call
    return Decisions(collective, nodes, ppn, most, starts, choices, placement)


def _steps(
    trees: OwnTrees, call: Shaped, most: int, threaded: bool
) -> Iterator[tuple[int, Choice | None]]:
    """The sizes at which another algorithm begins, and that algorithm.

    A communicator has a hierarchy of nodes where some of its nodes have several ranks, be it the
    only one (MPIR_Comm_commit of src/mpi/comm/commutil.c; 5.0.2 meets `parent` there).
    """
    collective, nodes, ppn, _ = call
    layered = "parent" if ppn > 1 else "flat"
    leaves = (
        (
            nbytes,
            _leaf(
                trees,
                collective,
                Call(nodes * ppn, nbytes, hierarchy=layered, ppn=ppn, multi_threaded=threaded),
            ),
        )
        for nbytes in _sizes(trees, collective, nodes * ppn)
        if nbytes <= most
    )
    for leaf, same in groupby(leaves, key=lambda step: step[1]):
        yield next(same)[0], leaf and _choice(collective, leaf)


def _leaf(trees: OwnTrees, collective: Collective, call: Call) -> Leaf | None:
    """What the MPIR layer runs; None where it does not get the whole call for certain."""
    if trees.device is not None and not _handed_on(trees.device, trees, collective, call):
        return None
    return decide(trees.mpir, collective, call)


def _handed_on(device: Tree, trees: OwnTrees, collective: Collective, call: Call) -> bool:
    """Whether the MPIR layer gets the whole call."""
    try:
        leaf = decide(device, collective, call)
        if trees.shared_memory is not None and leaf == IN_SHARED_MEMORY.get(collective):
            decide(trees.shared_memory, collective, call)
    except UnmatchedError:
        return True
    return leaf == HANDED_ON.get(collective)


def _sizes(trees: OwnTrees, collective: Collective, p: int) -> list[int]:
    """Wherever anything may change, in whole elements: at both sides of every bound."""
    name = f"collective={collective}"
    branches = [tree.get(name, {}) for tree in (trees.mpir, trees.device) if tree is not None]
    limits, counts = (
        {n for branch in branches for bound in bounds(branch, quantity) for n in (bound, bound + 1)}
        for quantity in ("avg_msg_size", "count")
    )
    items = {-(-n // ITEM) for n in limits} | counts | {1, 1 << (p.bit_length() - 1)}
    return sorted(ITEM * n for n in items if n > 0)


def _choice(collective: Collective, leaf: Leaf) -> Choice | None:
    """What asks for that algorithm; None where no choice does, or not without parameters."""
    plain = (Choice(name) for name, known in ALGORITHMS[collective].items() if not known.segment)
    return next((choice for choice in plain if leaf_for(collective, choice) == leaf), None)
