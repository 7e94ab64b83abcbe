"""The default algorithms of MPICH, derived from the rules in its library without running any ranks.

The device layer is asked first. The algorithms that it runs itself have no name in the MPIR layer,
so they are reported as unknown, and so is what it composes from parts of a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from tuner.base.errors import InputError
from tuner.base.thread_levels import THREAD_LEVELS, THREAD_SINGLE
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.table import AlgorithmChoice
from tuner.formats.mpich.device import SHARED_MEMORY_LEAVES, delegating_leaf
from tuner.formats.mpich.emitter import native_leaf
from tuner.formats.mpich.generic import GenericTrees
from tuner.formats.mpich.selection import (
    CselCall,
    Leaf,
    NoMatchingBranchError,
    Tree,
    condition_bounds,
    decide,
)
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms
from tuner.mpi_libraries.default_algorithms import PlacedCollective as Shaped
from tuner.mpi_libraries.mpich import DECIDED_ALGORITHMS


def find_default_algorithms(
    trees: GenericTrees, calls: Sequence[Shaped], max_bytes: int, thread_level: str = THREAD_SINGLE
) -> tuple[DefaultAlgorithms, ...]:
    """Return the default's decisions up to `max_bytes` bytes, with commutative built-in operators.

    trees           the library's own, from `read_generic_trees`
    thread_level    level at which MPI is initialised; shared memory needs one below the highest

    A call has no starts where a tree's decision depends on more than its shape and size.
    """
    threaded = thread_level == THREAD_LEVELS[-1]
    return tuple(_default_algorithms(trees, call, max_bytes, threaded) for call in calls)


def _default_algorithms(
    trees: GenericTrees, call: Shaped, max_bytes: int, threaded: bool
) -> DefaultAlgorithms:
    try:
        steps = list(_size_ranges(trees, call, max_bytes, threaded))
    except InputError:
        steps = []
    starts, choices = tuple(start for start, _ in steps), tuple(choice for _, choice in steps)
    collective, nodes, ppn, placement = call
    return DefaultAlgorithms(collective, nodes, ppn, max_bytes, starts, choices, placement)


def _size_ranges(
    trees: GenericTrees, shaped: Shaped, max_bytes: int, threaded: bool
) -> Iterator[tuple[int, AlgorithmChoice | None]]:
    """Yield the sizes at which another algorithm begins, and that algorithm.

    A communicator has a hierarchy of nodes where some of its nodes have several ranks, even if it
    has one node only (MPIR_Comm_commit of src/mpi/comm/commutil.c; 5.0.2 takes `parent` there).
    """
    collective, nodes, ppn, _ = shaped
    layered = "parent" if ppn > 1 else "flat"
    call_of = partial(
        CselCall,
        nodes * ppn,
        hierarchy=layered,
        ppn=ppn,
        multi_threaded=threaded,
        blocks=_counted_blocks(collective, nodes * ppn),
    )
    leaves = (
        (nbytes, _leaf(trees, collective, call_of(nbytes)))
        for nbytes in _boundary_sizes(trees, collective, nodes * ppn)
        if nbytes <= max_bytes
    )
    for leaf, same in groupby(leaves, key=lambda step: step[1]):
        yield next(same)[0], leaf and _choice_of_leaf(collective, leaf)


def _counted_blocks(collective: Collective, p: int) -> int:
    """Return in how many blocks of the send buffer the library counts: in 1 where it reduces."""
    return collective.blocks(p)[0] if collective.moves_blocks else 1


def _leaf(trees: GenericTrees, collective: Collective, call: CselCall) -> Leaf | None:
    """Return what the MPIR layer runs; None where it may not get the whole call."""
    if trees.device is not None and not _is_delegated(trees.device, trees, collective, call):
        return None
    return decide(trees.mpir, collective, call)


def _is_delegated(
    device: Tree, trees: GenericTrees, collective: Collective, call: CselCall
) -> bool:
    """Return whether the MPIR layer gets the whole call."""
    try:
        leaf = decide(device, collective, call)
        if trees.shared_memory is not None and leaf == SHARED_MEMORY_LEAVES.get(collective):
            decide(trees.shared_memory, collective, call)
    except NoMatchingBranchError:
        return True
    return leaf == delegating_leaf(collective, device)


def _boundary_sizes(trees: GenericTrees, collective: Collective, p: int) -> list[int]:
    """Return the sizes at both sides of every bound, in whole elements of each block."""
    name = f"collective={collective}"
    branches = [tree.get(name, {}) for tree in (trees.mpir, trees.device) if tree is not None]
    limits, counts = (
        {
            n
            for branch in branches
            for quantity in quantities
            for bound in condition_bounds(branch, quantity)
            for n in (bound, bound + 1)
        }
        for quantities in (("avg_msg_size", "total_msg_size"), ("count",))
    )
    items = {-(-n // PROBE_ELEMENT_BYTES) for n in limits} | counts | {1, 1 << (p.bit_length() - 1)}
    step = PROBE_ELEMENT_BYTES * _counted_blocks(collective, p)
    return sorted(step * n for n in items if n > 0)


def _choice_of_leaf(collective: Collective, leaf: Leaf) -> AlgorithmChoice | None:
    """Return the choice that forces this algorithm; None where it needs parameters or none does."""
    plain = (
        (AlgorithmChoice(name), known)
        for name, known in DECIDED_ALGORITHMS[collective].items()
        if not known.segment_parameter
    )
    return next((one for one, known in plain if native_leaf(collective, known, one) == leaf), None)
