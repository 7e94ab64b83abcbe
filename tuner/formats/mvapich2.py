"""MVAPICH2 2.x: the variables MV2_INTER_BCAST_TUNING and MV2_INTER_ALLREDUCE_TUNING.

`1:0-8191,5:8192-+` runs number 1 up to 8191 bytes and 5 beyond. An unknown number makes the library
run its first algorithm, a word that it cannot parse leaves its table incomplete, and more words
than its table has entries overflow it (`bcast_tuning.c`, `allreduce_tuning.c`); here they raise
InputError. The variables apply to communicators of every size in a program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.formats import strict_parsing
from tuner.formats.env_format import MAX_BOUND_BYTES, EnvDialect, EnvEntry
from tuner.formats.rules_by_ranks import describe_rule, rules_by_rank_count
from tuner.mpi_libraries.mvapich2 import ALGORITHMS, choice_of, number_of, preserves_operand_order

MAX_ENTRIES = 32  # size of the library's table
_ENTRY = re.compile(
    rf"({strict_parsing.INTEGER_PATTERN}):({strict_parsing.INTEGER_PATTERN})-({strict_parsing.INTEGER_PATTERN}|\+)"
)


def fallback_of(name: str) -> AlgorithmChoice | None:
    """Return the fallback algorithm of this name, such as `binomial`; None for "".

    Raises InputError for a name that no collective has.
    """
    offered = sorted({known for names in ALGORITHMS.values() for known in names})
    if name and name not in offered:
        raise InputError(f"MVAPICH2 has no algorithm {name!r}: choose one of {offered}")
    return AlgorithmChoice(name) if name else None


def require_operand_order(table: TuningTable) -> None:
    """Raise InputError for a rule for any operator that may change the order of operands."""
    for rule_lists in rules_by_rank_count(table).values():
        for rule in (rule for rule_list in rule_lists.values() for rule in rule_list):
            if not preserves_operand_order(rule.key.collective, rule.choice):
                raise InputError(
                    f"{describe_rule(rule)}: this algorithm of MVAPICH2 is not known to be safe"
                    " for non-commutative operators; use it only where every operator commutes"
                )


def format_value(entries: Sequence[EnvEntry]) -> str:
    """Return `1:0-8191,5:8192-+`, or the number alone for a single entry."""
    if len(entries) == 1:
        return str(entries[0].number)
    if len(entries) > MAX_ENTRIES:
        raise InputError(f"MVAPICH2 takes at most {MAX_ENTRIES} rules for a collective")
    firsts = [0, *(entry.max_bytes + 1 for entry in entries if entry.max_bytes is not None)]
    return ",".join(
        f"{entry.number}:{first}-{'+' if entry.max_bytes is None else entry.max_bytes}"
        for first, entry in zip(firsts, entries, strict=True)
    )


def parse_value(
    collective: Collective, value: str, report: Callable[[str], None]
) -> tuple[EnvEntry, ...]:
    """Return the entries of a value as MVAPICH2 takes them; raises InputError for what it misreads.

    report  takes sentences on bounds that do not count
    """
    known = ALGORITHMS[collective].values()
    alone = strict_parsing.parse_int(value)
    if alone is not None and alone in known:
        return (EnvEntry(alone),)
    words, entries, beyond = value.split(","), list[EnvEntry](), -1
    if not 2 <= len(words) <= MAX_ENTRIES:
        raise InputError(
            f"{shortened_repr(value)} is neither one number nor 2 to {MAX_ENTRIES} entries"
        )
    for word in words:
        match = _ENTRY.fullmatch(word)
        if match is None or int(match[1]) not in known:
            raise InputError(
                f"{shortened_repr(word)} is not a NUMBER:FIRST-LAST with one of {list(known)};"
                " MVAPICH2 would run its first algorithm or fail"
            )
        last = None if match[3] == "+" else int(match[3])
        is_over = bool(entries) and entries[-1].max_bytes is None
        if is_over or not _is_bound(match[2], last):
            raise InputError(
                f"{shortened_repr(word)} should begin at {0 if is_over else beyond + 1}"
                " and end above: MVAPICH2 looks at the ends alone"
            )
        if int(match[2]) != beyond + 1:
            report(
                f"{shortened_repr(word)} should begin at {beyond + 1}: MVAPICH2 looks at the ends"
                " alone"
            )
        entries.append(EnvEntry(int(match[1]), last))
        beyond = max(beyond, last or 0)
    if entries[-1].max_bytes is not None:
        report(f"the last entry {shortened_repr(words[-1])} takes all larger calls: end it in +")
    return (*entries[:-1], EnvEntry(entries[-1].number))


def _is_bound(first: str, last: int | None) -> bool:
    return last is None or int(first) <= last <= MAX_BOUND_BYTES


DIALECT = EnvDialect(
    "MVAPICH2",
    {c: f"MV2_INTER_{c.upper()}_TUNING" for c in ALGORITHMS},
    (),
    number_of,
    choice_of,
    format_value,
    parse_value,
)
