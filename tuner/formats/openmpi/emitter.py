"""Write Open MPI's rules, classic or as JSON, and compare a file with its table.

In the classic file, lines of algorithm 0, the library's own decision, enclose whatever was not
measured: below the first communicator size, between two sizes and above the last. A collective
without any other line is left out: looking for a line takes 10 ns of each of its calls (4 % of a
broadcast of 12 bytes on two ranks), and nothing is looked up for a collective that is not listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import Rule, TuningTable
from tuner.formats.openmpi import json_rules
from tuner.formats.openmpi.rules import (
    LIMITED_HEADER,
    ClassicRules,
    RuleLine,
    decide,
    decision_bounds,
    expected_choice,
    min_decided_bytes,
    render,
)
from tuner.formats.openmpi.rules_parser import parse
from tuner.formats.rules_by_ranks import (
    boundary_sizes,
    describe_rule,
    neighbours,
    rules_by_rank_count,
    rules_by_shape_and_ranks,
)
from tuner.mpi_libraries.openmpi import preserves_operand_order, unsupported_reason
from tuner.mpi_libraries.openmpi_collectives import COLLECTIVE_OF, COLLECTIVES
from tuner.mpi_libraries.openmpi_rule_numbers import reads_requests, rule_parameters
from tuner.mpi_libraries.products import OPENMPI
from tuner.mpi_libraries.profiles import PROFILES

DEFAULT_LINES = (RuleLine(0, 0),)
SUPPORTED_MAJOR_VERSIONS = ("4", "5")  # major versions that read a classic file as `decide` does


def emit(table: TuningTable, *, commutative_only: bool = False) -> str:
    """Return the classic rules file of a table.

    commutative_only    use the rules for commutative operators; programs that reduce with any
                        other operator then get wrong results, the format cannot tell them apart

    Raises InputError when a rule cannot be expressed, is unsafe for some operators, when keys that
    share a communicator size disagree (the format knows no nodes and no memory), or when the
    table is for a version that reads classic files differently.
    """
    _require_readable(table)
    _require_all_expressible(table, commutative_only, table.library)
    rule_lists = rules_by_rank_count(table, "commutative" if commutative_only else "any")
    text = render(
        ClassicRules(
            {
                COLLECTIVES[name].number: _with_default_lines(name, sizes)
                for name, sizes in rule_lists.items()
                if any(map(_has_algorithm, sizes.values()))
            }
        )
    )
    differences = check(table, text, commutative_only=commutative_only)
    if differences:
        raise InputError(f"the rules file would not say what the table says: {differences[0]}")
    return text


def emit_json(table: TuningTable, *, commutative_only: bool = False) -> str:
    """Return the JSON rules of a table for Open MPI 6.0 or later, as `emit` does."""
    name, _, version = table.library.partition(" ")
    major = version.partition(".")[0]
    if name == "openmpi" and major.isdigit() and int(major) < json_rules.FIRST_MAJOR_VERSION:
        raise InputError(
            f"{table.library} silently ignores JSON rules: it reads classic rules"
            " (--format openmpi)"
        )
    _require_all_expressible(table, commutative_only)
    text = json_rules.render(table, "commutative" if commutative_only else "any")
    differences = check_json(table, text, commutative_only=commutative_only)
    if differences:
        raise InputError(f"the JSON rules would not say what the table says: {differences[0]}")
    return text


def check_json(table: TuningTable, text: str, *, commutative_only: bool = False) -> list[str]:
    """Compare JSON rules with their table, as `check` does."""
    operators = "commutative" if commutative_only else "any"
    return list(json_rules.differences(table, json_rules.parse(text), operators))


def _require_all_expressible(table: TuningTable, commutative_only: bool, library: str = "") -> None:
    places = rules_by_shape_and_ranks(table, "commutative" if commutative_only else "any")
    for rule_lists in (rule_lists for sizes in places.values() for rule_lists in sizes.values()):
        for rule in (rule for rule_list in rule_lists.values() for rule in rule_list):
            _require_expressible(rule, commutative_only, library)


def _require_readable(table: TuningTable) -> None:
    name, _, version = table.library.partition(" ")
    if name == "openmpi" and version.partition(".")[0] not in SUPPORTED_MAJOR_VERSIONS:
        raise InputError(
            f"{table.library} reads a classic rules file differently, its rules would hit other"
            f" communicators than in versions {' and '.join(SUPPORTED_MAJOR_VERSIONS)}: write"
            " JSON rules (--format openmpi-json)"
        )


def _require_expressible(rule: Rule, commutative_only: bool, library: str) -> None:
    key = rule.key
    where = describe_rule(rule)
    if key.memory != "host":
        raise InputError(
            f"{where}: Open MPI rules cannot be limited to {shortened_repr(key.memory)} memory"
        )
    try:
        rule_parameters(key.collective, rule.choice, library)
    except InputError as reason:
        raise InputError(f"{where}: {reason}") from None
    if refusal := unsupported_reason(key.collective, rule.choice, key.p):
        raise InputError(f"{where}: {refusal}, and every call would fail: drop this rule")
    if not commutative_only and not preserves_operand_order(key.collective, rule.choice):
        raise InputError(
            f"{where}: in Open MPI this algorithm gives wrong results for non-commutative"
            " operators, or hands them to a slower one: only programs all of whose operators"
            " commute may have it (--commutative-only)"
        )
    covered = min_decided_bytes(rule), rule.stop_bytes
    if key.collective in PROFILES[OPENMPI].unsplittable and covered != (0, float("inf")):
        raise InputError(
            f"{where}: rules for {key.collective} that depend on the size make programs hang in"
            " Open MPI; use one rule for all sizes"
        )


def _has_algorithm(rule_list: Sequence[Rule]) -> bool:
    return any(not rule.choice.is_default for rule in rule_list)


def _with_default_lines(
    collective: Collective, rule_lists: Mapping[int, tuple[Rule, ...]]
) -> tuple[tuple[int, tuple[RuleLine, ...]], ...]:
    entries: list[tuple[int, tuple[RuleLine, ...]]] = [(0, DEFAULT_LINES)]
    for p, rule_list in rule_lists.items():
        rows = tuple(
            RuleLine(min_decided_bytes(rule), *rule_parameters(collective, rule.choice))
            for rule in rule_list
            if min_decided_bytes(rule) < rule.stop_bytes
        )
        if rows[0].min_bytes > 0:
            rows = (*DEFAULT_LINES, *rows)
        entries.append((p, rows))
        if p + 1 not in rule_lists:
            entries.append((p + 1, DEFAULT_LINES))
    return tuple(entries)


def check(table: TuningTable, text: str, *, commutative_only: bool = False) -> list[str]:
    """Return one sentence for every call that the file decides differently from the table.

    Each bound of each rule and one byte beside it are checked, for every communicator size of the
    table or the file and its neighbours. Raises InputError when the library would not accept the
    file.
    """
    rules = parse(text)
    rule_lists_of = rules_by_rank_count(table, "commutative" if commutative_only else "any")
    foreign = sorted(
        rules.collectives.keys() - {COLLECTIVES[name].number for name in rule_lists_of}
    )
    names = {number: str(name) for number, name in COLLECTIVE_OF.items()}
    differences = []
    if text.startswith(LIMITED_HEADER) and not reads_requests(table.library):
        differences.append(f"{table.library} reads no files of version 2 and would drop this one")
    differences += [
        f"the table has no rules for {names.get(n, f'collective number {n}')}" for n in foreign
    ]
    for collective, rule_lists in rule_lists_of.items():
        entries, _ = decision_bounds(rules, collective)
        for p in neighbours({*rule_lists, *entries}, minimum=1):
            differences += _differences(rules, collective, p, rule_lists.get(p, ()))
    return differences


def _differences(
    rules: ClassicRules, collective: Collective, p: int, rule_list: Sequence[Rule]
) -> Iterator[str]:
    _, sizes = decision_bounds(rules, collective)
    for nbytes in boundary_sizes(rule_list, sizes):
        told = expected_choice(collective, rule_list, nbytes)
        found = decide(rules, collective, p, nbytes)
        if found != told:
            yield (
                f"{collective} of {nbytes} bytes on {p} ranks: the table says {told},"
                f" the file {found}"
            )
