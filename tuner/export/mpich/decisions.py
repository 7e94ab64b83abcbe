"""What MPICH's default runs, by the rules that its library holds: no rank has to be asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tuner.collective import Collective
from tuner.errors import InputError
from tuner.export.mpich.emitter import leaf_for
from tuner.export.mpich.selection import Call, Leaf, Tree, bounds, decide
from tuner.libraries.decisions import Call as Shaped
from tuner.libraries.decisions import Decisions
from tuner.libraries.mpich import ALGORITHMS, ITEM
from tuner.table import Choice


def find(generic: Tree, calls: Sequence[Shaped], most: int) -> tuple[Decisions, ...]:
    """The default's decisions up to `most` bytes, with commutative operators that are built in.

    generic     the library's own tree, from `generic_tuning`

    No starts where the tree asks for more than shape and size.
    """
    return tuple(_decisions(generic, call, most) for call in calls)


def _decisions(generic: Tree, call: Shaped, most: int) -> Decisions:
    try:
        steps = list(_steps(generic, call, most))
    except InputError:
        steps = []
    starts, choices = tuple(start for start, _ in steps), tuple(choice for _, choice in steps)
    collective, nodes, ppn, placement = call
    return Decisions(collective, nodes, ppn, most, starts, choices, placement)


def _steps(generic: Tree, call: Shaped, most: int) -> Iterator[tuple[int, Choice | None]]:
    """The sizes at which another algorithm begins, and that algorithm.

    A communicator has a hierarchy of nodes where some of its nodes have several ranks, be it the
    only one (MPIR_Comm_commit of src/mpi/comm/commutil.c; 5.0.2 meets `parent` there).
    """
    collective, nodes, ppn, _ = call
    layered = "parent" if ppn > 1 else "flat"
    leaves = (
        (nbytes, decide(generic, collective, Call(nodes * ppn, nbytes, hierarchy=layered, ppn=ppn)))
        for nbytes in _sizes(generic, collective, nodes * ppn)
        if nbytes <= most
    )
    for leaf, same in groupby(leaves, key=lambda step: step[1]):
        yield next(same)[0], _choice(collective, leaf)


def _sizes(generic: Tree, collective: Collective, p: int) -> list[int]:
    """Wherever anything may change, in whole elements: at both sides of every bound."""
    branch = generic.get(f"collective={collective}", {})
    limits = {n for bound in bounds(branch, "avg_msg_size") for n in (bound, bound + 1)}
    counts = {n for bound in bounds(branch, "count") for n in (bound, bound + 1)}
    items = {-(-n // ITEM) for n in limits} | counts | {1, 1 << (p.bit_length() - 1)}
    return sorted(ITEM * n for n in items if n > 0)


def _choice(collective: Collective, leaf: Leaf) -> Choice | None:
    """What asks for that algorithm; None where no choice does, or not without parameters."""
    plain = (Choice(name) for name, known in ALGORITHMS[collective].items() if not known.segment)
    return next((choice for choice in plain if leaf_for(collective, choice) == leaf), None)
