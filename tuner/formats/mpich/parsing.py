"""Read the files of MPICH's layers, and refuse what the library would abort on or misread."""

from __future__ import annotations

import re
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.formats import strict_parsing
from tuner.formats.mpich.layers import MPIR, Layer, layer_of
from tuner.formats.mpich.selection import LEAF_KEY, NUMERIC_CONDITION, Tree, conditions
from tuner.mpi_libraries.mpich import MAX_INT

# Conditions that the library knows only in these collectives and their non-blocking forms;
# elsewhere they end the program (csel.c). Collectives without avg_msg_size take total_msg_size.
CONDITION_COLLECTIVES = {
    "avg_msg_size": ("bcast", "allreduce", "reduce", "alltoall"),
    "is_commutative": (
        "allreduce",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_block",
        "scan",
        "exscan",
    ),
    "is_op_built_in": ("allreduce", "reduce"),
    "is_sendbuf_inplace": ("alltoall", "alltoallv", "alltoallw"),
    "is_block_regular": ("reduce_scatter",),
}
OTHER_CONDITION = re.compile(
    r"any|(comm_size|comm_avg_ppn|avg_msg_size|total_msg_size|count|comm_hierarchy)=any"
    r"|comm_type=(intra|inter)|comm_size=(pow2|node_comm_size)|count<pow2"
    r"|comm_hierarchy=(parent|node|node_roots|flat)"
    r"|(is_node_consecutive|is_multi_threaded|is_commutative|is_op_built_in|is_sendbuf_inplace"
    r"|is_block_regular)=(yes|no)"
)
INTRODUCED_IN = (  # keys that MPICH before these releases is known to lack
    (
        (4, 1),
        re.compile(
            r"algorithm=MPIR_(Bcast_intra_(pipelined_)?tree|Barrier_intra_k_dissemination"
            r"|Allreduce_intra_(ring|tree|recexch|k_reduce_scatter_allgather))"
        ),
    ),
    ((4, 2), re.compile(rf"comm_avg_ppn<{strict_parsing.INTEGER_PATTERN}|comm_avg_ppn=any|any")),
    ((4, 3), re.compile(r"algorithm=\w+_recursive_multiplying")),
    ((4, 1), re.compile(r"composition=MPIDI_Alltoall_intra_composition_beta")),
    ((4, 3), re.compile(r"composition=MPIDI_Bcast_intra_composition_delta")),
    ((5, 0), re.compile(r"algorithm=\w+_ccl")),
)


def parse(text: str, library: str = "mpich", layer: Layer = MPIR) -> Tree:
    """Return the tree in a layer's file.

    library     `mpich 4.1.2` (without version the newest) or `mvapich`

    Raises InputError where the library would abort or misread it.
    """
    try:
        return _parse_tree(text, library, layer)
    except RecursionError:
        raise InputError("MPICH tuning file: nested deeper than any library reads") from None


def _parse_tree(text: str, library: str, layer: Layer) -> Tree:
    tree = strict_parsing.parse_strict_json(text, "MPICH tuning file")
    if not isinstance(tree, dict) or not tree:
        raise InputError("MPICH tuning file: expected collectives in it")
    for key, node in tree.items():
        if not key.startswith("collective="):
            raise InputError(
                f"MPICH tuning file: {shortened_repr(key)} is not a collective: this is a file of"
                " something else"
            )
        _require_well_formed(node, key)
        _require_known_conditions(node, key.removeprefix("collective="), layer)
    for key in conditions(tree):
        since = introduced_after(library, key)
        if since:
            raise InputError(
                f"MPICH tuning file: {library} does not know {shortened_repr(key)} and would"
                f" abort: that is of MPICH {since}"
            )
    return tree


def introduced_after(library: str, key: str) -> str:
    """Return the MPICH release, such as `4.3`, that introduced a key which `mpich 4.1.2` lacks.

    The answer is "" for a key that this library has, as far as is known.
    """
    name, _, version = library.partition(" ")
    parts = [strict_parsing.parse_int(part) for part in version.split(".")[:2]]
    numbers = tuple(part for part in parts if part is not None)
    if name != "mpich" or len(numbers) < 2:
        return ""
    later = (since for since, new in INTRODUCED_IN if numbers < since and new.fullmatch(key))
    return ".".join(map(str, next(later, ())))


def _require_well_formed(node: Any, where: str) -> None:
    if not isinstance(node, dict) or not node:
        raise InputError(f"MPICH tuning file: expected an object after {shortened_repr(where)}")
    if any(LEAF_KEY.fullmatch(key) for key in node):
        if len(node) > 1:
            raise InputError(
                f"MPICH tuning file: {shortened_repr(where)}: an algorithm must stand alone"
            )
        (leaf,) = node.items()
        _require_parameters(*leaf)
        return
    for key, below in node.items():
        numeric = NUMERIC_CONDITION.fullmatch(key)
        if not numeric and not OTHER_CONDITION.fullmatch(key):
            raise InputError(
                f"MPICH tuning file: {shortened_repr(where)}: {shortened_repr(key)} is not"
                " a condition of the library"
            )
        if numeric and int(numeric[3]) > MAX_INT:
            raise InputError(
                f"MPICH tuning file: {shortened_repr(where)}: {key}: the largest bound is {MAX_INT}"
            )
        _require_well_formed(below, f"{where}, {key}")
    last = list(node)[-1]
    if any(NUMERIC_CONDITION.fullmatch(key) for key in node) and not last.endswith("any"):
        raise InputError(
            f"MPICH tuning file: {shortened_repr(where)}: the sizes end with {last}, not with =any"
        )


def _require_parameters(algorithm: str, below: Any) -> None:
    if not isinstance(below, dict) or any(value != {} for value in below.values()):
        raise InputError(
            f"MPICH tuning file: only parameters may follow {shortened_repr(algorithm)}, each"
            f" with {{}}"
        )


def _require_known_conditions(node: Tree, collective: str, layer: Layer) -> None:
    """Raise InputError for a key that the library does not know for this collective and layer."""
    plain = collective.removeprefix("i")
    for key, below in node.items():
        if LEAF_KEY.fullmatch(key):
            _require_runnable(key, collective, layer)
            continue
        quantity = re.split("[<=]", key)[0]
        known = CONDITION_COLLECTIVES.get(quantity)
        averaged = plain in CONDITION_COLLECTIVES["avg_msg_size"]
        if (known and plain not in known) or (quantity == "total_msg_size" and averaged):
            raise InputError(
                f"MPICH tuning file: the library aborts where {shortened_repr(collective)}"
                f" depends on {quantity}"
            )
        _require_known_conditions(below, collective, layer)


def _require_runnable(leaf: str, collective: str, layer: Layer) -> None:
    other = layer_of(leaf)
    if other is not None and other != layer:
        raise InputError(
            f"MPICH tuning file: this is a file for the {other.name} ({other.variable}), expected"
            f" one for the {layer.name} ({layer.variable})"
        )
    if not layer.has_algorithm(leaf, collective):
        raise InputError(
            f"MPICH tuning file: {shortened_repr(leaf)} is not an algorithm of"
            f" {shortened_repr(collective)} in this layer: the library would abort"
        )
