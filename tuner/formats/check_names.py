"""A check that the rules of a table name algorithms that exist."""

from __future__ import annotations

from tuner import algorithms
from tuner.base.errors import InputError
from tuner.core.table import LIBRARY, SCHEDULE, Rule, TuningTable
from tuner.formats.rules_by_ranks import describe_rule
from tuner.mpi_libraries import LIBRARY_MODULES
from tuner.mpi_libraries.products import base_of


def require_known_algorithms(table: TuningTable) -> None:
    """Raise InputError, naming the rule, for an algorithm that is unknown.

    It must be one of the table's library or one of our schedules. Only libraries that tables are
    made for here are checked: which algorithms the others have, and since which release, is known
    well enough to write their files, but not to refuse a table.
    """
    for rule in table.rules:
        try:
            _require_known_algorithm(table.library, rule)
        except InputError as reason:
            raise InputError(f"{describe_rule(rule)}: {reason}") from None


def _require_known_algorithm(library: str, rule: Rule) -> None:
    collective, choice = rule.key.collective, rule.choice
    own = LIBRARY_MODULES.get(base_of(library))
    if choice.runner == SCHEDULE:
        algorithms.describe(collective, choice.algorithm)
    elif choice.runner == LIBRARY and own and not choice.is_default:
        own.settings(collective, choice)
