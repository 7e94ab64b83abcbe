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
from tuner.validation.acceptance import merge_neighbours

ANY = OPERATORS[0]


def without_shared_rules(
    table: TuningTable, tried: TuningTable, indivisible: Collection[Collective]
) -> TuningTable:
    """Return the table with the default where `tried` names the same for any operator.

    indivisible     collectives whose rules are kept as a whole or not at all: none is shared
    """
    rules = list[Rule]()
    for key in table.keys:
        parts = list[Rule]()
        for low, high, shared in _ranges(tried, key, indivisible):
            own = _cut(table.rules_for(key), low, high)
            parts += [replace(one, choice=AlgorithmChoice()) if shared else one for one in own]
        rules += merge_neighbours(iter(parts))
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
        parts = list[Rule]()
        for low, high, shared in _ranges(tried, key, indivisible):
            source = of_any.rules_for(replace(key, operators=ANY)) if shared else ()
            parts += _cut(source or accepted.rules_for(key), low, high)
        rules += merge_neighbours(replace(one, key=key) for one in parts)
    return TuningTable(accepted.cluster, accepted.library, tuple(rules), accepted.provenance)


def _ranges(
    tried: TuningTable, key: RuleKey, indivisible: Collection[Collective]
) -> Iterator[tuple[int, float, bool]]:
    """Yield the ranges of sizes of a rule list, and whether they are shared with any operator."""
    own, others = tried.rules_for(key), tried.rules_for(replace(key, operators=ANY))
    if key.operators == ANY or key.collective in indivisible:
        others = ()
    starts = sorted({rule.start_bytes for rule in (*own, *others)})
    for low, high in pairwise([*starts, math.inf]):
        choices = [_choice_at(rules, int(low)) for rules in (own, others)]
        shared = choices[0] == choices[1] and choices[0] != AlgorithmChoice()
        yield int(low), high, shared


def _choice_at(rules: Sequence[Rule], nbytes: int) -> AlgorithmChoice | None:
    return next((r.choice for r in rules if r.start_bytes <= nbytes < r.stop_bytes), None)


def _cut(rules: Sequence[Rule], low: int, high: float) -> Iterator[Rule]:
    """Yield the parts of rules within a range."""
    for rule in rules:
        start, stop = max(rule.start_bytes, low), min(rule.stop_bytes, high)
        if start < stop:
            yield replace(rule, start_bytes=start, stop_bytes=stop)
