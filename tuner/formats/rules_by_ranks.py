"""A table as the native formats see it: rule lists by collective and number of ranks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, RuleKey, TuningTable


def rules_by_rank_count(
    table: TuningTable, operators: str = "any"
) -> dict[Collective, dict[int, tuple[Rule, ...]]]:
    """Return collective -> p -> rule list, collectives and p ascending.

    operators   `any`, or `commutative`: then the rule list for commutative operators where there is
                one, else the one for any operator

    The formats know how many ranks a communicator has but not how they are spread over nodes:
    keys with the same p are merged when they decide alike, else InputError is raised.
    """
    return {
        collective: {p: _merge_identical(rule_lists) for p, rule_lists in sizes.items()}
        for collective, sizes in rules_by_shape_and_ranks(table, operators).items()
    }


def rules_by_shape_and_ranks(
    table: TuningTable, operators: str = "any"
) -> dict[Collective, dict[int, dict[RuleKey, tuple[Rule, ...]]]]:
    """Return collective -> p -> key -> rule list, all ascending.

    operators    as in `rules_by_rank_count`
    """
    found: dict[Collective, dict[int, dict[RuleKey, tuple[Rule, ...]]]] = {}
    places = {replace(key, operators="any") for key in table.keys}
    for key in sorted(places, key=lambda key: (key.collective, key.p, key.nodes, key.memory)):
        rule_list = table.rules_for(replace(key, operators=operators)) or table.rules_for(key)
        if rule_list:
            found.setdefault(key.collective, {}).setdefault(key.p, {})[key] = rule_list
    return found


def all_rule_lists(table: TuningTable, operators: str = "any") -> Iterator[tuple[Rule, ...]]:
    """Yield the rule lists of every shape for these operators, by collective, then by ranks."""
    for sizes in rules_by_shape_and_ranks(table, operators).values():
        for places in sizes.values():
            yield from places.values()


def _merge_identical(rule_lists: Mapping[RuleKey, tuple[Rule, ...]]) -> tuple[Rule, ...]:
    """Return the one rule list of several keys; raises InputError where they differ."""
    first, *others = rule_lists
    for key in others:
        if _choices_by_size(rule_lists[first]) != _choices_by_size(rule_lists[key]):
            raise InputError(
                f"{key.collective} on {key.p} ranks: the rules for {_describe_shape(first)} and"
                f" {_describe_shape(key)} differ, but this format knows only the number of ranks:"
                " export those of one number of ranks per node (--ppn)"
            )
    return rule_lists[first]


def shadowed_calls(table: TuningTable, part: TuningTable) -> list[str]:
    """Return the calls missing from part of a table that a file of this part decides all the same.

    The file applies the rules for the same number of ranks to them, though the table decides
    otherwise. Each is given as `allreduce on 4x1`.
    """
    held = {(key.collective, key.p, key.memory, key.operators): key for key in part.keys}
    found = set[str]()
    for key in set(table.keys) - set(part.keys):
        other = held.get((key.collective, key.p, key.memory, key.operators))
        if other and _choices_by_size(table.rules_for(key)) != _choices_by_size(
            part.rules_for(other)
        ):
            found.add(f"{key.collective} on {key.shape}")
    return sorted(found)


def rules_by_key(table: TuningTable) -> dict[RuleKey, tuple[Rule, ...]]:
    """Return each key for any operator with its rule list, ascending.

    For libraries all of whose operators commute: the rule list for commutative operators is used
    where there is one.
    """
    places = sorted(
        {replace(key, operators="any") for key in table.keys},
        key=lambda key: (key.collective, key.nodes, key.ppn, key.memory),
    )
    return {
        key: table.rules_for(replace(key, operators="commutative")) or table.rules_for(key)
        for key in places
    }


def boundary_sizes(rule_list: Sequence[Rule], others: Collection[int] = ()) -> list[int]:
    """Return the sizes in bytes at which two encodings of a rule list could differ.

    These are all bounds, one byte beside each, and one size far beyond, for bounds in another unit
    than bytes.

    others      bounds of the other encoding
    """
    bounds = {0, *(rule.start_bytes for rule in rule_list), *others}
    return [*neighbours(bounds), 2 * max(bounds) + 4096]


def neighbours(bounds: Collection[int], minimum: int = 0) -> list[int]:
    """Return the bounds and the integers next to them from `minimum` on, ascending."""
    return sorted({n for bound in bounds for n in (bound - 1, bound, bound + 1) if n >= minimum})


def describe_rule(rule: Rule) -> str:
    """Return a rule as `bcast on 4 ranks, [1024, 65536) bytes: 'binomial'`."""
    hi = "inf" if rule.stop_bytes == math.inf else int(rule.stop_bytes)
    key = rule.key
    return (
        f"{key.collective} on {key.p} ranks, [{rule.start_bytes}, {hi}) bytes:"
        f" {shortened_repr(str(rule.choice))}"
    )


def describe_default(
    fallback: AlgorithmChoice | None = None, *, is_fallback_missing: bool = False
) -> str:
    """Return how a table says that the library decides.

    fallback               runs there in a format that cannot express the library default
    is_fallback_missing    whether the format needs a fallback and none was named
    """
    if fallback is not None:
        return f"leaves it to the library, for which {fallback} stands"
    lacking = (
        ", for which a fallback must be named (--fallback-algorithm)" if is_fallback_missing else ""
    )
    return f"leaves it to the library{lacking}"


def _choices_by_size(rule_list: Sequence[Rule]) -> list[tuple[int, str]]:
    return [(rule.start_bytes, str(rule.choice)) for rule in rule_list]


def _describe_shape(key: RuleKey) -> str:
    return f"{key.nodes} nodes x {key.ppn} ranks in {shortened_repr(key.memory)} memory"
