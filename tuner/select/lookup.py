"""Looking up rules in a table."""

from __future__ import annotations

from dataclasses import replace

from tuner.base.errors import InputError
from tuner.core.table import Rule, RuleKey, TuningTable


def lookup_rule(table: TuningTable, key: RuleKey, nbytes: int) -> Rule:
    """Return the rule for a call of `nbytes`.

    A `commutative` operator falls back to the `any` rules. Raises InputError when the table has no
    rules for this collective on these ranks.
    """
    for wanted in (key, replace(key, operators="any")):
        rule = table.lookup(wanted, nbytes)
        if rule is not None:
            return rule
    shapes = dict.fromkeys((k.collective, k.shape, k.memory) for k in table.keys)
    known = ", ".join(f"{c} on {shape} ({memory})" for c, shape, memory in shapes)
    raise InputError(
        f"the table of {table.cluster.name} has no rules for {key.collective} on"
        f" {key.shape} ranks in {key.memory} memory, there the library decides; it has"
        f" {known or 'none at all'}"
    )
