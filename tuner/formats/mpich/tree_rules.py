"""Reading of a user's rules for MPICH: a file of one of its layers, or control variables.

A condition holds for values of one quantity. So the calls that reach a branch are a box: its own
values, without those of the siblings before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuner.formats import shell_exports
from tuner.formats.file_rules import (
    BYTES,
    ELEMENTS,
    HOLDS_BLOCKS,
    KINDS,
    NO,
    ONE_NODE,
    POWER_OF_TWO,
    PPN,
    RANKS,
    SENT_BYTES,
    SUBCOMMUNICATOR,
    YES,
    Box,
    FileRule,
    FileRules,
    Ranges,
    both,
    every,
    narrowed,
    without,
)
from tuner.formats.mpich.device import SHARED_MEMORY_LEAVES
from tuner.formats.mpich.layers import MPIR, layer_of
from tuner.formats.mpich.parsing import introduced_after, parse
from tuner.formats.mpich.selection import COMMUNICATOR_CONDITIONS, LEAF_KEY, NUMERIC_CONDITION, Tree
from tuner.mpi_libraries.mpich import DEVICE_COLLECTIVES, INTRA_ALGORITHMS, intra_restrictions
from tuner.mpi_libraries.products import MPICH, title_of

NUMBERS = {
    "comm_size": RANKS,
    "comm_avg_ppn": PPN,
    "avg_msg_size": SENT_BYTES,
    "total_msg_size": BYTES,
    "count": ELEMENTS,
}
COUNTED = ("gather", "scatter")  # whose total_msg_size is a number of elements (csel.c)
CONDITIONS: dict[str, tuple[str, Ranges]] = {
    "comm_type=intra": ("intercommunicator", NO),
    "comm_type=inter": ("intercommunicator", YES),
    "comm_size=pow2": (POWER_OF_TWO, YES),
    "comm_size=node_comm_size": (ONE_NODE, YES),
    "count<pow2": (HOLDS_BLOCKS, NO),
    "count>=pow2": (HOLDS_BLOCKS, YES),
    **{f"comm_hierarchy={kind}": (SUBCOMMUNICATOR, ((n, n),)) for n, kind in enumerate(KINDS)},
    **{
        f"{asked}={answer}": (quantity, values)
        for asked, quantity in (
            ("is_node_consecutive", "consecutive ranks"),
            ("is_multi_threaded", "several threads"),
            ("is_commutative", "commutative operator"),
            ("is_op_built_in", "built-in operator"),
            ("is_sendbuf_inplace", "in place"),
            ("is_block_regular", "equal blocks"),
        )
        for answer, values in (("yes", YES), ("no", NO))
    },
}
_VARIABLE = re.compile(r"MPIR_CVAR_((?!\w*_POSIX_)\w+)_INTRA_ALGORITHM")
_DEVICE = rf"{DEVICE_COLLECTIVES}|MPIR_CVAR_\w+_DEVICE_COLLECTIVE"


def read(text: str, library: str) -> FileRules:
    """Return the rules of a file of any layer, or of control variables."""
    if not text.lstrip().startswith("{"):
        return _read_variables(text)
    leaf = re.search(r"(algorithm|composition)=\w+", text)
    layer = (layer_of(leaf[0]) if leaf else None) or MPIR
    tree = parse(text, library.partition(" ")[0], layer)
    found = FileRules(otherwise="the program ends" if layer is MPIR else "the layer below decides")
    names = [key.removeprefix("collective=") for key in tree]
    lacking = ", ".join(sorted(INTRA_ALGORITHMS.keys() - set(names)))
    if layer is MPIR:
        found.before = lambda _: (
            f"the device layer answers before this file: set {DEVICE_COLLECTIVES}=none, or give it"
            " a file that hands calls on"
        )
    if layer is MPIR and lacking:
        found.report(1, f"programs end in MPI_Init: there are no rules for {lacking}")
    for name, (key, below) in zip(names, tree.items(), strict=True):
        _walk(found, below, name, {}, key, False)
    for rule in found.rules:
        if all(rule.box.values()):
            _warn_of_leaf(found, rule, library)
    for line, key in _keys(tree):
        if since := introduced_after(library, key):
            found.report(line, f"{title_of(library)} ends the program: {key} is of MPICH {since}")
    return found


def _walk(found: FileRules, node: Tree, collective: str, box: Box, path: str, late: bool) -> None:
    """Add a rule for each leaf below a node that calls of a box reach.

    late    as in `tuner.formats.mpich.selection.matches`
    """
    for key, below in node.items():
        if LEAF_KEY.fullmatch(key):
            runs = " ".join((key.partition("=")[2], *sorted(below)))
            found.rules.append(FileRule(below.line, collective, box, runs, path=path))
            return
        quantity, values = _condition(collective, key, late)
        own = narrowed(box, quantity, values) if quantity else box
        later = late or not key.startswith(COMMUNICATOR_CONDITIONS)
        _walk(found, below, collective, own, f"{path}, {key}", later)
        rest = without(box.get(quantity, every(quantity)), values) if quantity else ()
        box = {**box, quantity: rest}


def _condition(collective: str, key: str, late: bool) -> tuple[str, Ranges]:
    """Return the quantity that a condition is on, and its values; "" for any call."""
    numeric = NUMERIC_CONDITION.fullmatch(key)
    if numeric is None:
        return CONDITIONS.get(key, ("", ()))
    strict = numeric[2] == "<" and not (late and numeric[1] == "comm_size")
    quantity = NUMBERS[numeric[1]]
    if quantity == BYTES and collective.removeprefix("i") in COUNTED:
        quantity = ELEMENTS
    values: Ranges = ((0, int(numeric[3]) - strict),)
    return quantity, both(values, every(quantity))


def _warn_of_leaf(found: FileRules, rule: FileRule, library: str) -> None:
    """Report an algorithm that the library lacks, or that some calls of its rule must not run."""
    name = rule.runs.partition(" ")[0]
    only_here = {leaf.name for leaf in SHARED_MEMORY_LEAVES.values()}
    if name in only_here and rule.box.get(ONE_NODE) != YES:
        found.report(
            rule.line,
            f"{name} is for one node, and calls on several reach it: put comm_size=node_comm_size"
            " above it",
        )
    known = intra_restrictions(rule.collective)
    short = name.removeprefix(f"MPIR_{rule.collective.capitalize()}_intra_")
    if short not in known and short != name and known and library.startswith(MPICH):
        found.report(rule.line, f"programs end in MPI_Init: MPICH has no {name}")
    for condition in () if rule.box.get(SENT_BYTES) == NO else known.get(short, ()):
        quantity, values = CONDITIONS[condition]
        if without(rule.box.get(quantity, every(quantity)), values):
            found.report(
                rule.line,
                f"{name} is for calls with {condition}, and others reach it, which may get wrong"
                " results or end the program",
            )


def _keys(node: Tree) -> Iterator[tuple[int, str]]:
    for key, below in node.items():
        yield below.line, key
        if not LEAF_KEY.fullmatch(key):
            yield from _keys(below)


def _read_variables(text: str) -> FileRules:
    """Return the rules of variables, each of which is for all calls that its algorithm serves."""
    found = FileRules(otherwise="MPICH decides")
    assigned = list(shell_exports.last_assignments(text, found.report))
    values = {name: value for _, name, value in assigned}
    for line, name, value in assigned:
        match = _VARIABLE.fullmatch(name)
        if match is None:
            if not re.fullmatch(_DEVICE, name):
                found.report(line, f"{name} is not explained: it forces no algorithm here")
            continue
        known = intra_restrictions(match[1].lower())
        if not known:
            of = ", ".join(INTRA_ALGORITHMS)
            found.report(line, f"{name} is not explained: algorithms are known here of {of}")
        elif value not in (None, "auto", "nb", *known):
            found.report(line, f"MPICH has no {value}: it has {', '.join(known)}")
        elif value not in (None, "auto"):
            _add_forced(found, line, match[1].lower(), str(value))
            own = values.get(f"MPIR_CVAR_{match[1]}_DEVICE_COLLECTIVE")
            if own != "0" and values.get(DEVICE_COLLECTIVES) != "none":
                found.report(
                    line, f"the device layer may answer first: set {DEVICE_COLLECTIVES}=none, too"
                )
    return found


def _add_forced(found: FileRules, line: int, collective: str, name: str) -> None:
    """Add the rule of a variable for the calls that its algorithm can serve, and report others."""
    box: Box = {}
    wanted = intra_restrictions(collective).get(name, ())
    for condition in wanted:
        box = narrowed(box, *CONDITIONS[condition])
    found.rules.append(FileRule(line, collective, box, name))
    if wanted:
        found.report(
            line,
            f"{name} is for calls with {' and '.join(wanted)} alone: by default MPICH decides the"
            " others itself",
        )
