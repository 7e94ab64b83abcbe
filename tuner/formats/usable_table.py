"""The check of a table that others shall follow, wherever the table comes from."""

from __future__ import annotations

from tuner import algorithms
from tuner.base.errors import InputError
from tuner.core.table import LIBRARY, SCHEDULE, Rule, TuningTable
from tuner.formats.rules_by_ranks import describe_rule
from tuner.mpi_libraries import LIBRARY_MODULES, require_safe_size
from tuner.mpi_libraries.products import base_of, title_of


def require_usable(table: TuningTable) -> None:
    """Raise InputError for a table that no program should follow, naming the rule at fault.

    A table has a cluster, a library and rules, and each rule names an algorithm of the table's
    library or one of our schedules, which takes calls of all sizes of the rule. The library's own
    algorithms run on the ranks of the rule and keep the results of all its operators. Only
    libraries that tables are made for here are checked: which algorithms the others have, and since
    which release, is known well enough to write their files, but not to refuse a table.
    """
    for what, name in (("cluster", table.cluster.name), ("library", table.library)):
        if not name.strip():
            raise InputError(f"the table does not name its {what}: name it under {what!r}")
    if not table.rules:
        raise InputError("the table has no rules, so no program could follow it: add rules to it")
    for rule in table.rules:
        try:
            _require_usable_rule(table.library, rule)
        except InputError as reason:
            raise InputError(f"{describe_rule(rule)}: {reason}") from None
    require_safe_sizes(table)


def require_safe_sizes(table: TuningTable) -> None:
    """Raise InputError, naming the rule, for sizes at which its algorithm ends the program."""
    for rule in table.rules:
        try:
            require_safe_size(table.library, rule.choice, rule.start_bytes)
        except InputError as reason:
            raise InputError(f"{describe_rule(rule)}: {reason}") from None


def _require_usable_rule(library: str, rule: Rule) -> None:
    key, choice = rule.key, rule.choice
    own = LIBRARY_MODULES.get(base_of(library))
    if choice.runner == SCHEDULE:
        algorithms.describe(key.collective, choice.algorithm)
    elif choice.runner == LIBRARY and own and not choice.is_default:
        own.settings(key.collective, choice)
        if refusal := own.unsupported_reason(key.collective, choice, key.p):
            raise InputError(f"{refusal}, and every call would fail: drop this rule")
        if key.operators == "any" and not own.preserves_operand_order(key.collective, choice):
            raise InputError(
                f"in {title_of(base_of(library))} this algorithm gives wrong results for"
                " non-commutative operators, or hands them to a slower one: it needs the operators"
                " 'commutative'"
            )
