"""Writing MPICH's collective selection JSON, and comparing a file with its table.

The library wants every collective in the file, so its own tree is the start: only the branches of
communicator sizes in the table are replaced, and within them a default rule, an operator outside a
rule's guards or a count below its minimum leads back to the library's own branch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from tuner.collective import Collective
from tuner.errors import InputError, quoted
from tuner.export.ladders import beside, by_ranks, describe, probe_sizes
from tuner.export.mpich.selection import (
    COMMUNICATOR,
    Call,
    Leaf,
    Tree,
    bounds,
    decide,
    hierarchies,
    holds,
    leaves,
    parse,
    rules_for,
    seen_by,
)
from tuner.libraries.mpich import ITEM, LARGEST, leaf_parameters, native, order_safe
from tuner.table import OPERATORS, Choice, Rule, TuningTable

_Ladders = Mapping[int, Sequence[Rule]]
POISON = Leaf("MPIR_Barrier_intra_smp")  # no other collective can run it


def portable(table: TuningTable) -> tuple[TuningTable, tuple[str, ...]]:
    """The table with the default wherever `emit` would refuse a rule, and those rules by name."""
    kept, lost = [], []
    for rule in table.rules:
        try:
            _require_expressible(rule)
            kept.append(rule)
        except InputError:
            kept.append(replace(rule, choice=Choice()))
            lost.append(describe(rule))
    return TuningTable(table.cluster, table.library, tuple(kept), table.provenance), tuple(lost)


def leaf_of(rule: Rule) -> Leaf | None:
    """The leaf that a rule asks for, None for the default; raises InputError, naming the rule."""
    if rule.choice.is_default:
        return None
    key = rule.key
    if key.memory != "host":
        raise InputError(
            f"{describe(rule)}: MPICH rules cannot be limited to {quoted(key.memory)} memory"
        )
    try:
        return leaf_for(key.collective, rule.choice)
    except InputError as reason:
        raise InputError(f"{describe(rule)}: {reason}") from None


def leaf_for(collective: Collective, choice: Choice) -> Leaf:
    """The leaf of a choice other than the default; raises InputError as `native` does."""
    found = native(collective, choice)
    parameters = leaf_parameters(found, choice)
    return Leaf(
        f"MPIR_{collective.capitalize()}_intra_{found.name}",
        frozenset(f"{name}={value}" for name, value in parameters.items()),
    )


def guards_of(rule: Rule) -> tuple[str, ...]:
    """Conditions under which the library may run the rule's algorithm."""
    return () if rule.choice.is_default else native(rule.key.collective, rule.choice).guards


def emit(table: TuningTable, generic: Tree) -> str:
    """The complete JSON file of a table.

    generic    the library's own tree, from `generic_tuning`

    Raises InputError when a rule cannot be expressed, is unsafe for some operators, or when keys
    that share a communicator size disagree.
    """
    for rule in table.rules:
        _require_expressible(rule)
    text = json.dumps(grown(table, generic), indent=1) + "\n"
    differences = check(table, text, generic)
    if differences:
        raise InputError(f"the tuning file would not say what the table says: {differences[0]}")
    return text


def grown(table: TuningTable, generic: Tree, poisoned: Collection[Rule] = ()) -> Tree:
    """The library's own tree with the branches of the table.

    poisoned    rules that lead to an impossible algorithm: the library aborts where it reaches one

    Raises InputError when the library's own tree is not laid out as expected.
    """
    tree = dict(generic)
    everyone = by_ranks(table)
    for collective, ladders in by_ranks(table, "commutative").items():
        name = f"collective={collective}"
        own = generic.get(name, {})
        if set(own) != {"comm_type=intra", "comm_type=inter"}:
            raise InputError(f"the library's own rules for {collective} have an unknown layout")
        below = _Branches(everyone.get(collective, {}), ladders, poisoned)
        tree[name] = {**own, "comm_type=intra": below.sizes(own["comm_type=intra"])}
    return tree


def _require_expressible(rule: Rule) -> None:
    leaf_of(rule)
    if rule.key.operators == "any" and not order_safe(rule.key.collective, rule.choice):
        raise InputError(
            f"{describe(rule)}: this algorithm breaks non-commutative operators in MPICH; give it"
            " in rules for commutative operators"
        )


def _graft(node: Tree, p: int, ladder: Callable[[Tree], Tree]) -> Tree:
    """`ladder(subtree)` for each subtree below the communicator conditions that fit p ranks.

    Conditions on the communicator must stay above those on the message: the library evaluates
    some of them differently below.
    """
    if not all(key.startswith(COMMUNICATOR) for key in node):
        return ladder(node)
    kept: dict[str, Any] = {}
    for condition, below in node.items():
        if not condition.startswith("comm_size") or condition == "comm_size=node_comm_size":
            kept[condition] = _graft(below, p, ladder)
        elif holds(condition, Call(p, 0)):
            last = _graft(below, p, ladder)
            return {**kept, condition: last} if kept else last
    return kept


@dataclass(frozen=True)
class _Branches:
    """What grows below one collective: p -> ladder, for any operator, if there is one, and for
    commutative ones.
    """

    any_operator: _Ladders
    commutative: _Ladders
    poisoned: Collection[Rule]

    def sizes(self, own: Tree) -> Tree:
        branches: dict[str, Any] = {}
        for p in sorted(self.commutative):
            if p > 1 and p - 1 not in self.commutative:
                branches[f"comm_size<={p - 1}"] = own
            branches[f"comm_size<={p}"] = _graft(own, p, partial(self._operators, p))
        return {**branches, "comm_size=any": own}

    def _operators(self, p: int, own: Tree) -> Tree:
        for_any, commutative = self.any_operator.get(p, ()), self.commutative[p]
        if for_any == commutative:
            return self._ladder(for_any, own)
        return {
            "is_commutative=yes": self._ladder(commutative, own),
            "is_commutative=no": self._ladder(for_any, own) if for_any else own,
        }

    def _ladder(self, rules: Sequence[Rule], own: Tree) -> Tree:
        branches: dict[str, Any] = {}
        for rule in rules:
            beyond = rule.hi == math.inf or rule.hi > LARGEST
            bound = "avg_msg_size=any" if beyond else f"avg_msg_size<={int(rule.hi) - 1}"
            branches[bound] = self._branch(rule, own)
            if beyond:
                break
        return branches

    def _branch(self, rule: Rule, own: Tree) -> Tree:
        leaf = POISON if rule in self.poisoned else leaf_of(rule)
        if leaf is None:
            return own
        branch: Tree = {
            f"algorithm={leaf.name}": {parameter: {} for parameter in sorted(leaf.parameters)}
        }
        guards = guards_of(rule)
        if "count>=pow2" in guards:
            branch = {"count<pow2": own, "count=any": branch}
        if "is_op_built_in=yes" in guards:
            branch = {"is_op_built_in=yes": branch, "is_op_built_in=no": own}
        return branch


def check(table: TuningTable, text: str, generic: Tree) -> list[str]:
    """Every call for which the file decides otherwise than the table, one sentence each.

    Looks at each bound of each rule and one byte beside it, with as many elements as any bound on
    them has, for every communicator size and its neighbours, be they the table's or the file's, for
    every kind of communicator that is told apart and for operators of every kind. Raises InputError
    when the library would not accept the file.
    """
    tree = parse(text, table.library)
    known = {operators: by_ranks(table, operators) for operators in OPERATORS}
    changed = known["commutative"]  # all that have rules: those for any operator stand in
    differences = _untouched(tree, generic, {f"collective={name}" for name in changed})
    differences += _strange(tree, generic, table)
    for operators, collectives in known.items():
        for collective in changed:
            ladders = collectives.get(collective, {})
            name = f"collective={collective}"
            branch, library = rules_for(tree, collective), rules_for(generic, collective)
            for p in beside({*ladders, *bounds(branch, "comm_size")}, least=1):
                mine = {name: seen_by(branch, p)}
                own = {name: seen_by(library, p)}
                for rule, call in _calls((mine, own), p, ladders.get(p, ()), operators):
                    differences += _differences(mine, own, rule, collective, call)
    return differences


def _calls(
    trees: Sequence[Tree], p: int, ladder: Sequence[Rule], operators: str
) -> Iterator[tuple[Rule | None, Call]]:
    """Calls of `p` ranks on each side of every bound that they meet, and the rule of each."""
    sizes, densities, counts = (
        {n for tree in trees for n in bounds(tree, quantity)}
        for quantity in ("avg_msg_size", "comm_avg_ppn", "count")
    )
    kinds = dict.fromkeys(("parent", *(kind for tree in trees for kind in hierarchies(tree))))
    near = [ppn for ppn in beside(densities | {1}, least=1) if ppn <= p]
    for item, nbytes in _elements(probe_sizes(ladder, sizes), counts):
        rule = next((r for r in ladder if r.lo <= nbytes < r.hi), None)
        call = Call(p, nbytes, item, operators == "commutative")
        for kind, ppn in product(kinds, near):
            yield rule, replace(call, hierarchy=kind, ppn=ppn)


def _elements(sizes: Sequence[int], counts: Collection[int]) -> Iterator[tuple[int, int]]:
    """Bytes of an element, and of all of them: of each size, and from each size on of as many
    elements as bounds on their number have, and one more and less.
    """
    for nbytes in sizes:
        yield ITEM, nbytes
        for count in beside(counts, least=1):
            item = max(1, -(-nbytes // count))
            yield item, item * count


def _untouched(tree: Tree, generic: Tree, changed: Collection[str]) -> list[str]:
    """Collectives without rules in the table that are not as the library itself has them."""
    return [
        quoted(name) + (" is missing" if name not in tree else " is not the library's own")
        for name in {**generic, **tree}
        if name not in tree or (name not in changed and tree[name] != generic.get(name))
    ]


def _strange(tree: Tree, generic: Tree, table: TuningTable) -> list[str]:
    """Algorithms anywhere in the tree that neither the library's own nor the table names, or not
    with these parameters: an unknown name or a missing parameter ends the program."""
    known = {*leaves(generic), *filter(None, map(leaf_of, table.rules))}
    strange = sorted({str(leaf) for leaf in leaves(tree) if leaf not in known})
    return [f"the file has {leaf}, which neither table nor library has" for leaf in strange]


def _differences(
    tree: Tree, generic: Tree, rule: Rule | None, collective: Collective, call: Call
) -> list[str]:
    found = []
    elements = "" if call.item == ITEM else f" in {call.nbytes // call.item} elements"
    kind = "" if call.hierarchy == "parent" else f", comm_hierarchy={call.hierarchy}"
    for built_in in (True, False):
        call = replace(call, built_in=built_in)
        wanted = _wanted(rule, call) or decide(generic, collective, call)
        decided = decide(tree, collective, call)
        if decided != wanted:
            found.append(
                f"{collective} of {call.nbytes} bytes{elements} on {call.p} ranks"
                f" ({'' if call.commutative else 'non-'}commutative operator{kind}): the table says"
                f" {wanted}, the file {decided}"
            )
    return found


def _wanted(rule: Rule | None, call: Call) -> Leaf | None:
    return None if rule is None or guarded(rule, call) else leaf_of(rule)


def guarded(rule: Rule, call: Call) -> bool:
    """Whether the rule's guards leave this call of its range to the library."""
    guards = guards_of(rule)
    foreign = "is_op_built_in=yes" in guards and not call.built_in
    return foreign or ("count>=pow2" in guards and holds("count<pow2", call))
