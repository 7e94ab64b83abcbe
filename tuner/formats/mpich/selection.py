"""MPICH's collective selection tree, evaluated as the library does.

A tree is nested objects whose keys are conditions. Siblings are tried in file order and the first
that holds is followed, down to a leaf that names an algorithm with all its parameters. Sizes are
inclusive upper bounds (src/mpi/coll/src/csel.c of MPICH 5.0). MVAPICH 3 and 4 are based on MPICH
and read the same files, with algorithms of their own; MPICH 4.1 knows fewer conditions.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.formats import strict_parsing
from tuner.formats.mpich.layers import Layer

Tree = Mapping[str, Any]
# Returns the rules that a layer of a library decides with by itself; the library is `mpich` or
# `mvapich`.
GenericTreeLoader = Callable[[str, Layer], Tree]
LEAF_KEY = re.compile(r"(algorithm|composition)=\w+", re.ASCII)
# Conditions that the library evaluates once for each communicator, when it is created. Those below
# any other condition are evaluated at each call, and there comm_size<N is taken as <=N (csel.c).
COMMUNICATOR_CONDITIONS = (
    "comm_type",
    "comm_size",
    "comm_hierarchy",
    "comm_avg_ppn",
    "is_node_consecutive",
)
NUMERIC_CONDITION = re.compile(
    rf"(comm_size|comm_avg_ppn|avg_msg_size|total_msg_size|count)(<=|<)({strict_parsing.INTEGER_PATTERN})"
)
COMM_SIZE_CONDITION = re.compile(rf"comm_size(<=?{strict_parsing.INTEGER_PATTERN}|=pow2|=any)")
_COMPARE = {"<=": operator.le, "<": operator.lt}


class NoMatchingBranchError(InputError):
    """An error raised where no branch of a tree holds for a call."""


@dataclass(frozen=True)
class CselCall:
    """One call of a collective, as the conditions see it.

    hierarchy       kind of the communicator: `parent` where a node has several of its ranks
    multi_threaded  whether MPI_THREAD_MULTIPLE was provided; None: not known
    blocks          number of ranks for which the send buffer holds a block; avg_msg_size is the
                    size of one block
    in_place        whether the send buffer is MPI_IN_PLACE
    """

    p: int
    nbytes: int
    element_bytes: int = 4  # bytes of one element
    commutative: bool = True
    built_in: bool = True
    hierarchy: str = "parent"
    ppn: int = 1  # ranks per node, on average
    multi_threaded: bool | None = None
    blocks: int = 1
    in_place: bool = False


@dataclass(frozen=True)
class Leaf:
    """An algorithm that the library runs, with its parameters written `name=value`.

    kind    `algorithm`, or `composition` in the device layer
    """

    name: str
    parameters: frozenset[str] = frozenset()
    kind: str = "algorithm"

    @classmethod
    def from_key(cls, key: str, parameters: Iterable[str]) -> Leaf:
        """Return the leaf that a file writes as this key with these parameters."""
        kind, _, name = key.partition("=")
        return cls(name, frozenset(parameters), kind)

    @property
    def key(self) -> str:
        """The leaf's name in a file."""
        return f"{self.kind}={self.name}"

    def __str__(self) -> str:
        inside = f" with {shortened_repr(sorted(self.parameters))}" if self.parameters else ""
        return f"{shortened_repr(self.name)}{inside}"


def conditions(node: Tree) -> Iterator[str]:
    """Yield every key of a tree, algorithms included."""
    for key, below in node.items():
        yield key
        yield from conditions(below)


def leaves(node: Tree) -> Iterator[Leaf]:
    """Yield every leaf below a node."""
    for key, below in node.items():
        if LEAF_KEY.fullmatch(key):
            yield Leaf.from_key(key, below)
        else:
            yield from leaves(below)


def matches(condition: str, call: CselCall, late: bool = False) -> bool:
    """Return whether a condition holds for a call.

    late    whether a condition not in COMMUNICATOR_CONDITIONS stands above it

    Raises InputError for a condition that depends on more than the call.
    """
    numeric = NUMERIC_CONDITION.fullmatch(condition)
    if numeric:
        sign = "<=" if late and numeric[1] == "comm_size" else numeric[2]
        return bool(_COMPARE[sign](_quantity(numeric[1], call), int(numeric[3])))
    if condition.endswith("any"):
        return True
    known = {
        "comm_type=intra": True,
        "comm_type=inter": False,
        "comm_size=pow2": call.p & (call.p - 1) == 0,
        "comm_size=node_comm_size": call.hierarchy == "parent" and call.ppn == call.p,
        "count<pow2": call.nbytes // call.element_bytes < 1 << (call.p.bit_length() - 1),
        f"is_commutative={'yes' if call.commutative else 'no'}": True,
        f"is_commutative={'no' if call.commutative else 'yes'}": False,
        f"is_op_built_in={'yes' if call.built_in else 'no'}": True,
        f"is_op_built_in={'no' if call.built_in else 'yes'}": False,
        f"is_sendbuf_inplace={'yes' if call.in_place else 'no'}": True,
        f"is_sendbuf_inplace={'no' if call.in_place else 'yes'}": False,
    }
    if call.multi_threaded is not None:
        known |= {
            "is_multi_threaded=yes": call.multi_threaded,
            "is_multi_threaded=no": not call.multi_threaded,
        }
    if condition.startswith("comm_hierarchy="):
        return condition == f"comm_hierarchy={call.hierarchy}"
    if condition not in known:
        raise InputError(f"whether {condition} holds cannot be told from the call alone")
    return known[condition]


def _quantity(name: str, call: CselCall) -> int:
    return {
        "comm_size": call.p,
        "comm_avg_ppn": call.ppn,
        "avg_msg_size": call.nbytes // call.blocks,
        "total_msg_size": call.nbytes,  # but of gathers and scatters, which no table holds
        "count": call.nbytes // call.element_bytes,
    }[name]


def collective_subtree(tree: Tree, collective: Collective) -> Tree:
    """Return the subtree of a collective; raises InputError where the tree has none."""
    try:
        return cast(Tree, tree[f"collective={collective}"])
    except KeyError:
        raise InputError(
            f"MPICH tuning file: no rules for {collective}; the file must hold every collective"
        ) from None


def decide(tree: Tree, collective: Collective, call: CselCall) -> Leaf:
    """Return the leaf that a blocking call reaches.

    Raises NoMatchingBranchError where no branch holds: the MPIR layer then ends the program, the
    other layers leave the call to it. Raises InputError where the decision depends on more than the
    call.
    """
    node, late = collective_subtree(tree, collective), False
    while True:
        first = next(iter(node), "")
        if LEAF_KEY.fullmatch(first):
            return Leaf.from_key(first, node[first])
        met = next((key for key in node if matches(key, call, late)), None)
        if met is None:
            raise NoMatchingBranchError(
                f"MPICH tuning file: {collective} of {call.nbytes} bytes on {call.p} ranks meets"
                f" none of {', '.join(node) or 'its conditions'}"
            )
        node, late = node[met], late or not met.startswith(COMMUNICATOR_CONDITIONS)


def specialise(node: Tree, p: int, late: bool = False) -> Tree:
    """Return the tree for communicators of `p` ranks, with conditions on their number resolved.

    late    as in `matches`
    """
    kept: dict[str, Any] = {}
    for condition, below in node.items():
        if not COMM_SIZE_CONDITION.fullmatch(condition):
            later = late or not condition.startswith(COMMUNICATOR_CONDITIONS)
            kept[condition] = (
                below if LEAF_KEY.fullmatch(condition) else specialise(below, p, later)
            )
        elif matches(condition, CselCall(p, 0), late):
            last = specialise(below, p, late)
            return {**kept, "comm_size=any": last} if kept else last
    return kept


def condition_bounds(node: Tree, quantity: str) -> set[int]:
    """Return the numbers that conditions on `quantity` compare with, anywhere below `node`."""
    found = set[int]()
    for condition, below in node.items():
        numeric = NUMERIC_CONDITION.fullmatch(condition)
        if numeric and numeric[1] == quantity:
            found.add(int(numeric[3]))
        found |= condition_bounds(below, quantity)
    return found


def comm_hierarchies(node: Tree) -> set[str]:
    """Return the kinds of communicators in conditions below `node`, with `flat` for `any`."""
    named = (key.partition("comm_hierarchy=")[2] for key in conditions(node))
    return {"flat" if name == "any" else name for name in named if name}
