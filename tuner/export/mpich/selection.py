"""MPICH's collective selection tree: reading it, and deciding with it as the library does.

A tree is nested objects whose keys are conditions. Siblings are tried in file order and the first
that holds is followed, down to a leaf that names an algorithm with all its parameters. Sizes are
inclusive upper bounds (src/mpi/coll/src/csel.c of MPICH 5.0). MVAPICH 3 and 4 are made of MPICH
and read the same, with algorithms of their own; MPICH 4.1 knows fewer conditions.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from tuner.collective import Collective
from tuner.errors import InputError, quoted
from tuner.export import strict
from tuner.libraries.mpich import LARGEST

Tree = Mapping[str, Any]
# The rules that a library decides with by itself, by its name: `mpich` or `mvapich`.
Generic = Callable[[str], Tree]
LEAF = re.compile(r"(algorithm|composition)=\w+", re.ASCII)
# What the library decides for each communicator when that is made. What stands below any other
# condition is left to each call, and there its comm_size<N reads as <=N (csel.c).
COMMUNICATOR = ("comm_type", "comm_size", "comm_hierarchy", "comm_avg_ppn", "is_node_consecutive")
# What the library asks of a call only in these collectives and their non-blocking forms; elsewhere
# a condition on it ends the program (csel.c). All others of them take total_msg_size.
ASKED = {
    "avg_msg_size": ("bcast", "allreduce", "reduce", "alltoall"),
    "is_commutative": (
        "allreduce", "reduce", "reduce_scatter", "reduce_scatter_block", "scan", "exscan",
    ),
    "is_op_built_in": ("allreduce", "reduce"),
    "is_sendbuf_inplace": ("alltoall", "alltoallv", "alltoallw"),
    "is_block_regular": ("reduce_scatter",),
}  # fmt: skip
NUMERIC = re.compile(
    rf"(comm_size|comm_avg_ppn|avg_msg_size|total_msg_size|count)(<=|<)({strict.NUMBER})"
)
SIZES = re.compile(rf"comm_size(<=?{strict.NUMBER}|=pow2|=any)")
OTHER = re.compile(
    r"any|(comm_size|comm_avg_ppn|avg_msg_size|total_msg_size|count|comm_hierarchy)=any"
    r"|comm_type=(intra|inter)|comm_size=(pow2|node_comm_size)|count<pow2"
    r"|comm_hierarchy=(parent|node|node_roots|flat)"
    r"|(is_node_consecutive|is_multi_threaded|is_commutative|is_op_built_in|is_sendbuf_inplace"
    r"|is_block_regular)=(yes|no)"
)
_COMPARE = {"<=": operator.le, "<": operator.lt}
SINCE = (  # what no MPICH before these releases has for certain
    ((4, 2), re.compile(rf"comm_avg_ppn<{strict.NUMBER}|comm_avg_ppn=any|any")),
    ((4, 3), re.compile(r"algorithm=\w+_recursive_multiplying")),
    ((5, 0), re.compile(r"algorithm=\w+_ccl")),
)


@dataclass(frozen=True)
class Call:
    """One call of a collective, as the conditions see it; `hierarchy` is the communicator's."""

    p: int
    nbytes: int
    item: int = 4  # bytes of one element
    commutative: bool = True
    built_in: bool = True
    hierarchy: str = "parent"
    ppn: int = 1  # ranks per node, on average


@dataclass(frozen=True)
class Leaf:
    """The algorithm that the library runs, with its parameters written `name=value`."""

    name: str
    parameters: frozenset[str] = frozenset()

    def __str__(self) -> str:
        inside = f" with {quoted(sorted(self.parameters))}" if self.parameters else ""
        return f"{quoted(self.name)}{inside}"


def parse(text: str, library: str = "mpich") -> Tree:
    """The tree in a JSON file for `mpich 4.1.2` (without version the newest) or `mvapich`.

    Raises InputError where the library would abort or misread it.
    """
    try:
        return _parsed(text, library)
    except RecursionError:
        raise InputError("MPICH tuning file: nested deeper than any library reads") from None


def _parsed(text: str, library: str) -> Tree:
    tree = strict.json_content(text, "MPICH tuning file")
    if not isinstance(tree, dict) or not tree:
        raise InputError("MPICH tuning file: no collectives in it")
    for key, node in tree.items():
        if not key.startswith("collective="):
            raise InputError(
                f"MPICH tuning file: {quoted(key)} is no collective: this is a file of something"
                " else"
            )
        _require_valid(node, key)
        _require_fitting(node, key.removeprefix("collective="))
    _require_version(tree, library)
    return tree


def _require_version(tree: Tree, library: str) -> None:
    name, _, version = library.partition(" ")
    parts = [strict.number(part) for part in version.split(".")[:2]]
    numbers = tuple(part for part in parts if part is not None)
    if name != "mpich" or len(numbers) < 2:
        return
    later = [(since, new) for since, new in SINCE if numbers < since]
    for key in conditions(tree):
        for since, new in later:
            if new.fullmatch(key):
                raise InputError(
                    f"MPICH tuning file: {library} does not know {quoted(key)} and would abort:"
                    f" that is of MPICH {'.'.join(map(str, since))}"
                )


def conditions(node: Tree) -> Iterator[str]:
    """Every key of a tree, algorithms included."""
    for key, below in node.items():
        yield key
        yield from conditions(below)


def _require_valid(node: Any, where: str) -> None:
    if not isinstance(node, dict) or not node:
        raise InputError(f"MPICH tuning file: nothing follows {quoted(where)}")
    if any(LEAF.fullmatch(key) for key in node):
        if len(node) > 1:
            raise InputError(f"MPICH tuning file: {quoted(where)}: an algorithm must stand alone")
        (leaf,) = node.items()
        _require_parameters(*leaf)
        return
    for key, below in node.items():
        numeric = NUMERIC.fullmatch(key)
        if not numeric and not OTHER.fullmatch(key):
            raise InputError(
                f"MPICH tuning file: {quoted(where)}: {quoted(key)} is no condition of the library"
            )
        if numeric and int(numeric[3]) > LARGEST:
            raise InputError(
                f"MPICH tuning file: {quoted(where)}: {key}: the largest bound is {LARGEST}"
            )
        _require_valid(below, f"{where}, {key}")
    last = list(node)[-1]
    if any(NUMERIC.fullmatch(key) for key in node) and not last.endswith("any"):
        raise InputError(
            f"MPICH tuning file: {quoted(where)}: the sizes end with {last}, not with =any"
        )


def _require_parameters(algorithm: str, below: Any) -> None:
    if not isinstance(below, dict) or any(value != {} for value in below.values()):
        raise InputError(
            f"MPICH tuning file: only parameters may follow {quoted(algorithm)}, each with {{}}"
        )


def _require_fitting(node: Tree, collective: str) -> None:
    """Raises InputError for what the library does not know of this collective."""
    plain = collective.removeprefix("i")
    for key, below in node.items():
        if LEAF.fullmatch(key):
            if not re.fullmatch(rf"algorithm=MPIR_{re.escape(collective.capitalize())}_\w+", key):
                raise InputError(
                    f"MPICH tuning file: {quoted(key)} is no algorithm of {quoted(collective)} in"
                    " this layer: the library would abort"
                )
            continue
        quantity = re.split("[<=]", key)[0]
        known = ASKED.get(quantity)
        averaged = plain in ASKED["avg_msg_size"]
        if (known and plain not in known) or (quantity == "total_msg_size" and averaged):
            raise InputError(
                f"MPICH tuning file: the library aborts where {quoted(collective)} depends on"
                f" {quantity}"
            )
        _require_fitting(below, collective)


def leaves(node: Tree) -> Iterator[Leaf]:
    """Every leaf below a node."""
    for key, below in node.items():
        if LEAF.fullmatch(key):
            yield Leaf(key.partition("=")[2], frozenset(below))
        else:
            yield from leaves(below)


def holds(condition: str, call: Call, late: bool = False) -> bool:
    """Whether a condition is met; raises InputError for one that depends on more than the call.

    late    it stands below a condition that is none of COMMUNICATOR
    """
    numeric = NUMERIC.fullmatch(condition)
    if numeric and numeric[1] in ("comm_size", "comm_avg_ppn", "avg_msg_size", "count"):
        sign = "<=" if late and numeric[1] == "comm_size" else numeric[2]
        return bool(_COMPARE[sign](_quantity(numeric[1], call), int(numeric[3])))
    if condition.endswith("any"):
        return True
    known = {
        "comm_type=intra": True,
        "comm_type=inter": False,
        "comm_size=pow2": call.p & (call.p - 1) == 0,
        "count<pow2": call.nbytes // call.item < 1 << (call.p.bit_length() - 1),
        f"is_commutative={'yes' if call.commutative else 'no'}": True,
        f"is_commutative={'no' if call.commutative else 'yes'}": False,
        f"is_op_built_in={'yes' if call.built_in else 'no'}": True,
        f"is_op_built_in={'no' if call.built_in else 'yes'}": False,
    }
    if condition.startswith("comm_hierarchy="):
        return condition == f"comm_hierarchy={call.hierarchy}"
    if condition not in known:
        raise InputError(f"whether {condition} holds cannot be told from the call alone")
    return known[condition]


def _quantity(name: str, call: Call) -> int:
    return {
        "comm_size": call.p, "comm_avg_ppn": call.ppn, "avg_msg_size": call.nbytes,
        "count": call.nbytes // call.item,
    }[name]  # fmt: skip


def rules_for(tree: Tree, collective: Collective) -> Tree:
    """What a tree holds for a collective; raises InputError where that is nothing."""
    try:
        return cast(Tree, tree[f"collective={collective}"])
    except KeyError:
        raise InputError(
            f"MPICH tuning file: no rules for {collective}; the file must hold every collective"
        ) from None


def decide(tree: Tree, collective: Collective, call: Call) -> Leaf:
    """The leaf that a blocking call reaches; raises InputError where the library would abort."""
    node, late = rules_for(tree, collective), False
    while True:
        first = next(iter(node), "")
        if LEAF.fullmatch(first):
            return Leaf(first.partition("=")[2], frozenset(node[first]))
        met = next((key for key in node if holds(key, call, late)), None)
        if met is None:
            raise InputError(
                f"MPICH tuning file: {collective} of {call.nbytes} bytes on {call.p} ranks meets"
                f" none of {', '.join(node) or 'its conditions'}"
            )
        node, late = node[met], late or not met.startswith(COMMUNICATOR)


def seen_by(node: Tree, p: int, late: bool = False) -> Tree:
    """What is left of a tree for communicators of `p` ranks: their number decides nothing more.

    late    as in `holds`
    """
    kept: dict[str, Any] = {}
    for condition, below in node.items():
        if not SIZES.fullmatch(condition):
            later = late or not condition.startswith(COMMUNICATOR)
            kept[condition] = below if LEAF.fullmatch(condition) else seen_by(below, p, later)
        elif holds(condition, Call(p, 0), late):
            last = seen_by(below, p, late)
            return {**kept, "comm_size=any": last} if kept else last
    return kept


def bounds(node: Tree, quantity: str) -> set[int]:
    """The numbers that conditions on `quantity` compare with, anywhere below `node`."""
    found = set[int]()
    for condition, below in node.items():
        numeric = NUMERIC.fullmatch(condition)
        if numeric and numeric[1] == quantity:
            found.add(int(numeric[3]))
        found |= bounds(below, quantity)
    return found


def hierarchies(node: Tree) -> set[str]:
    """The kinds of communicators that conditions below `node` name, `flat` where they say any."""
    named = (key.partition("comm_hierarchy=")[2] for key in conditions(node))
    return {"flat" if name == "any" else name for name in named if name}
