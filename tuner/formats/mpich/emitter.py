"""The file of MPICH's MPIR layer, where a table's rules name algorithms."""

from __future__ import annotations

import json
from dataclasses import replace

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, TuningTable
from tuner.formats.mpich.branches import RuleToLeaf, merge_into_generic
from tuner.formats.mpich.comparison import compare
from tuner.formats.mpich.layers import MPIR, Layer
from tuner.formats.mpich.parsing import introduced_after
from tuner.formats.mpich.selection import Leaf, Tree
from tuner.formats.rules_by_ranks import describe_rule
from tuner.mpi_libraries.mpich import (
    NativeAlgorithm,
    leaf_parameters,
    native_algorithm,
    preserves_operand_order,
)

FAULT_LEAF = Leaf("MPIR_Exscan_intra_recursive_doubling")  # no collective but exscan can run it


def drop_inexpressible(table: TuningTable) -> tuple[TuningTable, tuple[str, ...]]:
    """Return the table with the default for rules that `emit` would refuse, and their names."""
    kept, lost = [], []
    for rule in table.rules:
        try:
            require_expressible(rule, table.library)
            kept.append(rule)
        except InputError:
            kept.append(replace(rule, choice=AlgorithmChoice()))
            lost.append(describe_rule(rule))
    return TuningTable(table.cluster, table.library, tuple(kept), table.provenance), tuple(lost)


def leaf_for_rule(rule: Rule) -> Leaf | None:
    """Return the leaf of a rule, None for the default; raises InputError, naming the rule."""
    if rule.choice.is_default:
        return None
    key = rule.key
    if key.memory != "host":
        raise InputError(
            f"{describe_rule(rule)}: MPICH rules cannot be limited to"
            f" {shortened_repr(key.memory)} memory"
        )
    try:
        return leaf_for_choice(key.collective, rule.choice)
    except InputError as reason:
        raise InputError(f"{describe_rule(rule)}: {reason}") from None


def leaf_for_choice(collective: Collective, choice: AlgorithmChoice) -> Leaf:
    """Return the leaf of a choice other than the default; raises as `native_algorithm` does."""
    return native_leaf(collective, native_algorithm(collective, choice), choice)


def native_leaf(collective: Collective, found: NativeAlgorithm, choice: AlgorithmChoice) -> Leaf:
    """Return the leaf of one of the library's algorithms with the parameters of a choice."""
    parameters = leaf_parameters(found, choice)
    return Leaf(
        f"MPIR_{collective.capitalize()}_intra_{found.name}",
        frozenset(f"{name}={value}" for name, value in parameters.items()),
    )


def emit(table: TuningTable, generic: Tree) -> str:
    """Return the complete JSON file of a table.

    generic    the library's own tree, from `read_generic_tree`

    Raises InputError when a rule cannot be expressed, is unsafe for some operators, or when keys
    that share a communicator size disagree.
    """
    return emit_layer(table, generic, MPIR, leaf_for_rule)


def check(table: TuningTable, text: str, generic: Tree) -> list[str]:
    """Return the calls that the file decides differently from the table, as `compare` does."""
    return compare(table, text, generic, MPIR, leaf_for_rule)


def emit_layer(table: TuningTable, generic: Tree, layer: Layer, leaf_of: RuleToLeaf) -> str:
    """Return the file of a layer in which `leaf_of` gives each rule's leaf; raises as `emit`."""
    for rule in table.rules:
        require_expressible(rule, table.library)
    text = json.dumps(merge_into_generic(table, generic, leaf_of), indent=1) + "\n"
    differences = compare(table, text, generic, layer, leaf_of)
    if differences:
        raise InputError(f"the tuning file would not say what the table says: {differences[0]}")
    return text


def require_expressible(rule: Rule, library: str) -> None:
    """Raise InputError, naming the rule, where no file for this library can hold it."""
    leaf = leaf_for_rule(rule)
    since = introduced_after(library, leaf.key) if leaf else ""
    if since:
        raise InputError(
            f"{describe_rule(rule)}: tuning files of {library} lack this algorithm, which they have"
            f" since MPICH {since}"
        )
    if rule.key.operators == "any" and not preserves_operand_order(
        rule.key.collective, rule.choice
    ):
        raise InputError(
            f"{describe_rule(rule)}: this algorithm breaks non-commutative operators in"
            " MPICH; give it in rules for commutative operators"
        )
