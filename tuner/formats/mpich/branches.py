"""Merge the rules of a table into the tree that a layer decides with by itself.

The library requires every collective in a file, so its own tree is the start. Only the branches for
communicator sizes in the table are replaced. Within them a default rule, an operator outside a
rule's restrictions or a count below its minimum leads back to the library's own branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import Rule, TuningTable
from tuner.formats.mpich.selection import COMMUNICATOR_CONDITIONS, CselCall, Leaf, Tree, matches
from tuner.formats.rules_by_ranks import rules_by_rank_count, rules_by_shape_and_ranks
from tuner.mpi_libraries.mpich import IN_PLACE, MAX_INT, NOT_IN_PLACE, native_algorithm

RuleToLeaf = Callable[[Rule], Leaf | None]  # None: the library's own branch
_RulesByRanks = Mapping[int, Sequence[Rule]]


def restrictions_of(rule: Rule) -> tuple[str, ...]:
    """Return the conditions under which the library may run the rule's algorithm."""
    return (
        ()
        if rule.choice.is_default
        else native_algorithm(rule.key.collective, rule.choice).restrictions
    )


def is_restricted(rule: Rule, call: CselCall) -> bool:
    """Return whether the rule's restrictions leave this call to the library."""
    guards = restrictions_of(rule)
    foreign = "is_op_built_in=yes" in guards and not call.built_in
    foreign |= NOT_IN_PLACE in guards and call.in_place
    return foreign or ("count>=pow2" in guards and matches("count<pow2", call))


def merge_into_generic(table: TuningTable, generic: Tree, leaf_of: RuleToLeaf) -> Tree:
    """Return the library's own tree with the branches of the table.

    generic     the library's own tree
    leaf_of     returns the leaf of a rule; None for the library's own branch

    Raises InputError when the library's own tree has an unexpected structure.
    """
    tree = dict(generic)
    everyone = rules_by_rank_count(table)
    for collective, rule_lists in rules_by_rank_count(table, "commutative").items():
        name = f"collective={collective}"
        own = generic.get(name, {})
        if "comm_type=intra" not in own or own.keys() - {"comm_type=intra", "comm_type=inter"}:
            raise InputError(f"the library's own rules for {collective} have an unknown layout")
        parents = hierarchical_rank_counts(table, collective)
        below = _TreeBuilder(collective, everyone.get(collective, {}), rule_lists, parents, leaf_of)
        tree[name] = {**own, "comm_type=intra": below.split_by_comm_size(own["comm_type=intra"])}
    return tree


def hierarchical_rank_counts(table: TuningTable, collective: Collective) -> set[int]:
    """Return the numbers of ranks for which all rules are for several ranks on each node.

    The library calls a communicator with several ranks on a node a parent. From it the library
    makes communicators for its own collectives: of the ranks of a node, and of one rank on each
    node. One of these may have as many ranks as a parent in the table, but not the shape that the
    rules are for.
    """
    shapes = rules_by_shape_and_ranks(table, "commutative").get(collective, {})
    return {p for p, places in shapes.items() if all(key.ppn > 1 for key in places)}


def _replace_below_communicator(node: Tree, p: int, rule_list: Callable[[Tree], Tree]) -> Tree:
    """Return the node with every subtree below its communicator conditions replaced.

    Only branches whose conditions fit `p` ranks are kept.

    rule_list   returns the new subtree, given the library's own one

    Conditions on the communicator must stay above those on the message: the library evaluates
    some of them differently below.
    """
    if not all(key.startswith(COMMUNICATOR_CONDITIONS) for key in node):
        return rule_list(node)
    kept: dict[str, Any] = {}
    for condition, below in node.items():
        if not condition.startswith("comm_size") or condition == "comm_size=node_comm_size":
            kept[condition] = _replace_below_communicator(below, p, rule_list)
        elif matches(condition, CselCall(p, 0)):
            last = _replace_below_communicator(below, p, rule_list)
            return {**kept, condition: last} if kept else last
    return kept


@dataclass(frozen=True)
class _TreeBuilder:
    """A builder of the branches of one collective.

    collective
    any_operator    p -> rule list for any operator, where there is one
    commutative     p -> rule list for commutative operators
    hierarchical    values of p whose rules apply to parent communicators only
    leaf_of         returns the leaf of a rule; None for the library's own branch
    """

    collective: Collective
    any_operator: _RulesByRanks
    commutative: _RulesByRanks
    hierarchical: Collection[int]
    leaf_of: RuleToLeaf

    def split_by_comm_size(self, own: Tree) -> Tree:
        branches: dict[str, Any] = {}
        for p in sorted(self.commutative):
            if p > 1 and p - 1 not in self.commutative:
                branches[f"comm_size<={p - 1}"] = own
            branch = _replace_below_communicator(own, p, partial(self._split_by_place, p))
            if p in self.hierarchical:
                branch = {"comm_hierarchy=parent": branch, "comm_hierarchy=any": own}
            branches[f"comm_size<={p}"] = branch
        return {**branches, "comm_size=any": own}

    def _split_by_place(self, p: int, own: Tree) -> Tree:
        """Return branches by size, with the library's own for calls in place where they need it.

        The condition on the place is the first: in such calls the library takes sizes from
        arguments that MPI ignores.
        """
        if not any(NOT_IN_PLACE in restrictions_of(rule) for rule in self.commutative[p]):
            return self._split_by_operator(p, own)
        split = (
            own if own.keys() == {IN_PLACE, NOT_IN_PLACE} else {IN_PLACE: own, NOT_IN_PLACE: own}
        )
        others = self._split_by_operator(p, split[NOT_IN_PLACE])
        kept = split[IN_PLACE]
        return kept if others == kept else {IN_PLACE: kept, NOT_IN_PLACE: others}

    def _split_by_operator(self, p: int, own: Tree) -> Tree:
        """Return branches by size, split by operator only where that matters.

        Each condition costs time in every call.
        """
        for_any, commutative = self.any_operator.get(p, ()), self.commutative[p]
        starts = sorted({0, *(rule.start_bytes for rule in (*for_any, *commutative))})
        steps: list[tuple[float, Tree]] = []
        for lo, hi in zip(starts, [*starts[1:], math.inf], strict=True):
            branch = self._split_by_commutativity(
                _rule_for_size(for_any, lo), _rule_for_size(commutative, lo), own
            )
            if steps and steps[-1][1] == branch:
                steps.pop()
            steps.append((hi, branch))
        return _split_by_message_size(steps, self.collective.blocks(p)[0])

    def _split_by_commutativity(
        self, for_any: Rule | None, commutative: Rule | None, own: Tree
    ) -> Tree:
        any_operator, commuting = self._branch(for_any, own), self._branch(commutative, own)
        if any_operator == commuting:
            return commuting
        return {"is_commutative=yes": commuting, "is_commutative=no": any_operator}

    def _branch(self, rule: Rule | None, own: Tree) -> Tree:
        leaf = None if rule is None else self.leaf_of(rule)
        if rule is None or leaf is None:
            return own
        branch: Tree = {leaf.key: {parameter: {} for parameter in sorted(leaf.parameters)}}
        guards = restrictions_of(rule)
        if "count>=pow2" in guards:
            branch = {"count<pow2": own, "count=any": branch}
        if "is_op_built_in=yes" in guards:
            branch = {"is_op_built_in=yes": branch, "is_op_built_in=no": own}
        return branch


def _rule_for_size(rule_list: Sequence[Rule], nbytes: int) -> Rule | None:
    return next((rule for rule in rule_list if rule.start_bytes <= nbytes < rule.stop_bytes), None)


def _split_by_message_size(steps: Sequence[tuple[float, Tree]], blocks: int) -> Tree:
    """Return branches by message size.

    steps   (bytes below which the branch applies, branch), ascending; the last bound is infinite
    blocks  number of blocks that a buffer of so many bytes has
    """
    within = [(-(-hi // blocks), branch) for hi, branch in steps if hi <= MAX_INT * blocks]
    _, last = steps[len(within)]
    branches: dict[str, Tree] = {}
    for hi, branch in within:
        branches.setdefault(f"avg_msg_size<={int(hi) - 1}", branch)
    return {**branches, "avg_msg_size=any": last} if branches else last
