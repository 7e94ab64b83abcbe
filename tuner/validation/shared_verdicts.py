"""Rules for commutative operators that are tried already, as rules for any operator.

A table has rules for commutative operators where these may use more algorithms. Over much of their
range they name the algorithm that the rules for any operator name, too: the same call would be
timed twice.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from tuner.core.collective import Collective
from tuner.core.table import OPERATORS, AlgorithmChoice, Rule, RuleKey, TuningTable
from tuner.validation.acceptance import merge_neighbours, part_of_rule

ANY = OPERATORS[0]


def without_shared_rules(
    table: TuningTable, tried: TuningTable, indivisible: Collection[Collective]
) -> TuningTable:
    """Return the table with the default where `tried` names the same for any operator.

    indivisible     collectives whose rules are kept as a whole or not at all: none is shared
    """
    rules = list[Rule]()
    for key in table.keys:
        own, parts = table.rules_for(key), list[Rule]()
        ranges = _ranges(tried, key, indivisible)
        for low, high, shared in ranges:
            cut = _cut(own, low, high)
            parts += [replace(one, choice=AlgorithmChoice()) if shared else one for one in cut]
        rules += merge_neighbours(iter(parts)) if ranges else own
    return TuningTable(table.cluster, table.library, tuple(rules), table.provenance)


def with_shared_verdicts(
    accepted: TuningTable,
    tried: TuningTable,
    of_any: TuningTable,
    indivisible: Collection[Collective],
) -> TuningTable:
    """Return the accepted table with the verdicts on shared rules that `of_any` has.

    indivisible     as in `without_shared_rules`
    """
    rules = list[Rule]()
    for key in accepted.keys:
        own, parts = accepted.rules_for(key), list[Rule]()
        ranges = _ranges(tried, key, indivisible)
        for low, high, shared in ranges:
            source = of_any.rules_for(replace(key, operators=ANY)) if shared else own
            parts += [replace(one, key=key) for one in _cut(source, low, high)]
        rules += merge_neighbours(iter(parts)) if ranges else own
    return TuningTable(accepted.cluster, accepted.library, tuple(rules), accepted.provenance)


def _ranges(
    tried: TuningTable, key: RuleKey, indivisible: Collection[Collective]
) -> list[tuple[int, float, bool]]:
    """Return the ranges of a rule list, and whether each is shared; empty if none of them is."""
    if key.operators == ANY or key.collective in indivisible:
        return []
    own, others = tried.rules_for(key), tried.rules_for(replace(key, operators=ANY))
    found, starts = [], sorted({rule.start_bytes for rule in (*own, *others)})
    for low, high in pairwise([*starts, math.inf]):
        choices = [_choice_at(rules, int(low)) for rules in (own, others)]
        shared = choices[0] == choices[1] and choices[0] != AlgorithmChoice()
        found.append((int(low), high, shared))
    return found if any(shared for _, _, shared in found) else []


def _choice_at(rules: Sequence[Rule], nbytes: int) -> AlgorithmChoice | None:
    return next((r.choice for r in rules if r.start_bytes <= nbytes < r.stop_bytes), None)


def _cut(rules: Sequence[Rule], low: int, high: float) -> Iterator[Rule]:
    """Yield the parts of rules within a range."""
    for rule in rules:
        start, stop = max(rule.start_bytes, low), min(rule.stop_bytes, high)
        if start < stop:
            yield part_of_rule(rule, start, stop)
