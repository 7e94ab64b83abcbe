"""Compare the file of a layer with its table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product

from tuner.base.errors import shortened_repr
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.table import OPERATORS, Rule, TuningTable
from tuner.formats.mpich.branches import RuleToLeaf, hierarchical_rank_counts, is_restricted
from tuner.formats.mpich.layers import Layer
from tuner.formats.mpich.parsing import parse
from tuner.formats.mpich.selection import (
    CselCall,
    Leaf,
    Tree,
    collective_subtree,
    comm_hierarchies,
    condition_bounds,
    conditions,
    decide,
    leaves,
    specialise,
)
from tuner.formats.rules_by_ranks import boundary_sizes, neighbours, rules_by_rank_count
from tuner.mpi_libraries.mpich import NOT_IN_PLACE


def compare(
    table: TuningTable, text: str, generic: Tree, layer: Layer, leaf_of: RuleToLeaf
) -> list[str]:
    """Return one sentence for every call that a layer's file decides differently from the table.

    generic     the layer's own tree
    leaf_of     returns the leaf of a rule in this layer

    Each bound of each rule and one byte beside it are checked, with as many elements as any bound
    on their number has, for every communicator size of the table or the file and its neighbours,
    for every kind of communicator that a tree tells apart, and for operators of every kind. Raises
    InputError when the library would not accept the file.
    """
    tree = parse(text, table.library, layer)
    known = {operators: rules_by_rank_count(table, operators) for operators in OPERATORS}
    changed = known["commutative"]  # all with rules: falls back to those for any operator
    differences = _unexpected_changes(tree, generic, {f"collective={name}" for name in changed})
    differences += _unknown_leaves(
        tree, {*leaves(generic), *filter(None, map(leaf_of, table.rules))}
    )
    for operators, collectives in known.items():
        for collective in changed:
            rule_lists = collectives.get(collective, {})
            parents = hierarchical_rank_counts(table, collective)
            name = f"collective={collective}"
            branch = collective_subtree(tree, collective)
            library = collective_subtree(generic, collective)
            for p in neighbours({*rule_lists, *condition_bounds(branch, "comm_size")}, minimum=1):
                mine = {name: specialise(branch, p)}
                own = {name: specialise(library, p)}
                rules, blocks = rule_lists.get(p, ()), collective.blocks(p)[0]
                for rule, call in _calls((mine, own), p, rules, operators, blocks):
                    if call.hierarchy != "parent" and p in parents:
                        rule = None
                    leaf = None if rule is None else leaf_of(rule)
                    differences += _differences(mine, own, rule, leaf, call, collective)
    return differences


def _calls(
    trees: Sequence[Tree], p: int, rule_list: Sequence[Rule], operators: str, blocks: int
) -> Iterator[tuple[Rule | None, CselCall]]:
    """Yield calls of `p` ranks on each side of every bound in the trees, with the rule of each.

    blocks  as in `CselCall`; sizes are multiples of it
    """
    sizes, densities, counts = (
        {n for tree in trees for n in condition_bounds(tree, quantity)}
        for quantity in ("avg_msg_size", "comm_avg_ppn", "count")
    )
    kinds = dict.fromkeys(("parent", *(kind for tree in trees for kind in comm_hierarchies(tree))))
    asked = {condition for tree in trees for condition in conditions(tree)}
    alone = {p} if "comm_size=node_comm_size" in asked else set[int]()
    near = [ppn for ppn in sorted({*neighbours(densities | {1}, minimum=1), *alone}) if ppn <= p]
    places = (False, True) if NOT_IN_PLACE in asked else (False,)
    edges = boundary_sizes(rule_list, {blocks * size for size in sizes})
    whole = dict.fromkeys(-(-nbytes // blocks) * blocks for nbytes in edges)
    for item, nbytes in _element_sizes([*whole], counts):
        rule = next((r for r in rule_list if r.start_bytes <= nbytes < r.stop_bytes), None)
        call = CselCall(p, nbytes, item, operators == "commutative", blocks=blocks)
        for kind, ppn, in_place in product(kinds, near, places):
            yield rule, replace(call, hierarchy=kind, ppn=ppn, in_place=in_place)


def _element_sizes(sizes: Sequence[int], counts: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the bytes of an element and of the whole buffer.

    Each size comes with elements of the probes' size, and then, rounded up, with as many elements
    as each bound on their number, and one more and one less.
    """
    for nbytes in sizes:
        yield PROBE_ELEMENT_BYTES, nbytes
        for count in neighbours(counts, minimum=1):
            item = max(1, -(-nbytes // count))
            yield item, item * count


def _unexpected_changes(tree: Tree, generic: Tree, changed: Collection[str]) -> list[str]:
    """Return collectives without rules in the table that differ from the library's own tree."""
    return [
        shortened_repr(name) + (" is missing" if name not in tree else " is not the library's own")
        for name in {**generic, **tree}
        if name not in tree or (name not in changed and tree[name] != generic.get(name))
    ]


def _unknown_leaves(tree: Tree, known: Collection[Leaf]) -> list[str]:
    """Return a sentence for every leaf in the tree that is unknown or has other parameters.

    An unknown name or a missing parameter ends the program.
    """
    strange = sorted({str(leaf) for leaf in leaves(tree) if leaf not in known})
    return [f"the file has {leaf}, which neither table nor library has" for leaf in strange]


def _differences(
    tree: Tree,
    generic: Tree,
    rule: Rule | None,
    leaf: Leaf | None,
    call: CselCall,
    collective: Collective,
) -> list[str]:
    found = []
    elements = (
        ""
        if call.element_bytes == PROBE_ELEMENT_BYTES
        else f" in {call.nbytes // call.element_bytes} elements"
    )
    kind = "" if call.hierarchy == "parent" else f", comm_hierarchy={call.hierarchy}"
    kind += "" if call.ppn == 1 else f", {call.ppn} ranks per node"
    kind += ", in place" if call.in_place else ""
    for built_in in (True, False):
        call = replace(call, built_in=built_in)
        kept = rule is None or leaf is None or is_restricted(rule, call)
        wanted = decide(generic, collective, call) if kept else leaf
        decided = decide(tree, collective, call)
        if decided != wanted:
            found.append(
                f"{collective} of {call.nbytes} bytes{elements} on {call.p} ranks"
                f" ({'' if call.commutative else 'non-'}commutative operator{kind}): the table says"
                f" {wanted}, the file {decided}"
            )
    return found
