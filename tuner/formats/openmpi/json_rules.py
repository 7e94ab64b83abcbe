"""The JSON rules of Open MPI 6.0 and later.

Each collective has a list of communicator rules, each of these a list of message rules. The first
that matches applies, bounds are inclusive, and a call that none matches gets the library's own
decision (coll/tuned of the v6.0.x branch). Errors are reported only at `coll_base_verbose` 1: an
unknown collective or a size with a unit drops the file, an unknown algorithm its rule. The library
also reads classic files here, but shifts their communicator sizes by one entry.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, RuleKey, TuningTable
from tuner.formats import strict_parsing
from tuner.formats.openmpi.rules import expected_choice, min_decided_bytes
from tuner.formats.rules_by_ranks import (
    boundary_sizes,
    describe_rule,
    neighbours,
    rules_by_shape_and_ranks,
)
from tuner.mpi_libraries import require_safe_size
from tuner.mpi_libraries.openmpi import COLLECTIVES, choice_of, rule_parameters

FIRST_MAJOR_VERSION = 6  # first major version that reads JSON rules
ANY_DISTRIBUTION, SINGLE_NODE, ONE_PER_NODE = DISTRIBUTIONS = ("any", "single-node", "one-per-node")
# In 6.0 the number of `bruck` runs a Bruck algorithm whose radix is the fan-out.
REDEFINED_ALGORITHMS = {Collective.ALLGATHER: ("bruck",)}
MAX_INT = 2**31 - 1
_ROOT = {"rule_file_version": 3, "module": "tuned"}


@dataclass(frozen=True)
class MessageRule:
    """The choice for calls of `min_bytes` to `max_bytes` of the whole buffer, both included."""

    min_bytes: int
    max_bytes: float
    choice: AlgorithmChoice


@dataclass(frozen=True)
class CommunicatorRule:
    """The message rules for communicators of `min_ranks` to `max_ranks` ranks.

    distribution    how the ranks must be spread over nodes, one of DISTRIBUTIONS
    """

    min_ranks: int
    max_ranks: float
    distribution: str
    messages: tuple[MessageRule, ...]

    def matches(self, nodes: int, ppn: int) -> bool:
        spread = {ANY_DISTRIBUTION: True, SINGLE_NODE: nodes == 1, ONE_PER_NODE: ppn == 1}[
            self.distribution
        ]
        return spread and self.min_ranks <= nodes * ppn <= self.max_ranks


JsonRules = Mapping[Collective, tuple[CommunicatorRule, ...]]


def decide(
    rules: JsonRules, collective: Collective, nodes: int, ppn: int, nbytes: int
) -> AlgorithmChoice:
    """Return what Open MPI 6.0 takes from the file for a call of `nbytes` of the whole buffer."""
    for communicators in rules.get(collective, ()):
        if communicators.matches(nodes, ppn):
            found = (m for m in communicators.messages if m.min_bytes <= nbytes <= m.max_bytes)
            message = next(found, None)
            return message.choice if message else AlgorithmChoice()
    return AlgorithmChoice()


def render(table: TuningTable, operators: str) -> str:
    """Return the file of a table; raises InputError where it cannot express a rule."""
    collectives: dict[str, list[dict[str, Any]]] = {}
    for collective, sizes in rules_by_shape_and_ranks(table, operators).items():
        for p, rule_lists in sizes.items():
            for distribution, rule_list in _rules_by_distribution(rule_lists):
                messages = [
                    _message_record(rule)
                    for rule in rule_list
                    if not rule.choice.is_default and min_decided_bytes(rule) < rule.stop_bytes
                ]
                collectives.setdefault(str(collective), []).append(
                    {
                        "comm_size_min": p,
                        "comm_size_max": p,
                        "comm_rank_distribution": distribution,
                        "rules": messages,
                    }
                )
    return json.dumps({**_ROOT, "collectives": collectives}, indent=1) + "\n"


def _rules_by_distribution(
    rule_lists: Mapping[RuleKey, tuple[Rule, ...]],
) -> list[tuple[str, tuple[Rule, ...]]]:
    """Return one rule list for each distribution that the format tells apart.

    The rule list for all other shapes comes last, after entries for one node and for one rank per
    node; these are empty where the table has no such shape.
    """
    told = {_distribution(key): rule_list for key, rule_list in rule_lists.items()}
    others = {
        key: rule_list
        for key, rule_list in rule_lists.items()
        if _distribution(key) == ANY_DISTRIBUTION
    }
    if not others:
        return list(told.items())
    if (
        len(
            {
                tuple((r.start_bytes, str(r.choice)) for r in rule_list)
                for rule_list in others.values()
            }
        )
        > 1
    ):
        key = next(iter(others))
        raise InputError(
            f"{key.collective} on {key.nodes} x {key.ppn} ranks: this format tells only"
            " communicators of one node and of one rank per node from others with as many ranks:"
            " export those of one number of ranks per node (--ppn)"
        )
    return [(name, told.get(name, ())) for name in (SINGLE_NODE, ONE_PER_NODE, ANY_DISTRIBUTION)]


def _distribution(key: RuleKey) -> str:
    return SINGLE_NODE if key.nodes == 1 else ONE_PER_NODE if key.ppn == 1 else ANY_DISTRIBUTION


def _message_record(rule: Rule) -> dict[str, Any]:
    collective = rule.key.collective
    if rule.choice.algorithm in REDEFINED_ALGORITHMS.get(collective, ()):
        raise InputError(
            f"{describe_rule(rule)}: Open MPI 6.0 runs another algorithm under this number"
        )
    numbers = rule_parameters(collective, rule.choice)
    return {
        "msg_size_min": min_decided_bytes(rule),
        "msg_size_max": "inf" if rule.stop_bytes == math.inf else int(rule.stop_bytes) - 1,
        "alg": numbers.algorithm,
        "faninout": numbers.chains,
        "seg_size": numbers.segment_bytes,
        "reqs": numbers.requests,
    }


def parse(text: str) -> JsonRules:
    """Return the rules in a file; raises InputError for what Open MPI would drop or misread."""
    root = strict_parsing.parse_strict_json(text, "JSON rules")
    if (
        not isinstance(root, dict)
        or {**root, "collectives": 0} != {**_ROOT, "collectives": 0}
        or type(root["rule_file_version"]) is not int
    ):
        raise InputError(
            'JSON rules: needed are "rule_file_version": 3, "module": "tuned" and "collectives"'
        )
    collectives = root.get("collectives")
    known = {str(collective): collective for collective in COLLECTIVES}
    if not isinstance(collectives, dict) or set(collectives) - set(known):
        raise InputError(f"JSON rules: collectives must be an object with {', '.join(known)}")
    return {
        known[name]: tuple(
            _parse_communicator_rule(f"{name}, entry {i}", known[name], entry)
            for i, entry in enumerate(_require_list(name, entries))
        )
        for name, entries in collectives.items()
    }


def _require_list(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"JSON rules: {where}: {shortened_repr(value)} is not a list of rules")
    return value


def _parse_communicator_rule(where: str, collective: Collective, entry: Any) -> CommunicatorRule:
    known = {"comm_size_min", "comm_size_max", "comm_rank_distribution", "rules"}
    told = _require_object(where, entry, known)
    distribution = told.get("comm_rank_distribution", ANY_DISTRIBUTION)
    if distribution not in DISTRIBUTIONS:
        raise InputError(
            f"JSON rules: {where}: {shortened_repr(distribution)} is none of {DISTRIBUTIONS}"
        )
    least, most = _bounds(where, told, "comm_size", MAX_INT)
    messages = tuple(
        _parse_message_rule(f"{where}, rule {i}", collective, rule)
        for i, rule in enumerate(_require_list(where, told.get("rules")))
    )
    return CommunicatorRule(int(least), most, distribution, messages)


def _parse_message_rule(where: str, collective: Collective, entry: Any) -> MessageRule:
    known = {"msg_size_min", "msg_size_max", "alg", "faninout", "seg_size", "reqs"}
    told = _require_object(where, entry, known)
    first, last = _bounds(where, told, "msg_size", 2**63 - 1)
    names, number = COLLECTIVES[collective].algorithms, told.get("alg", 0)
    if isinstance(number, str):
        from tuner.importers.algorithm_names import algorithm_name  # loads all importers

        renamed = COLLECTIVES[collective].library_names
        ours = {theirs: name for name, theirs in renamed.items()}
        name = ours.get(number) or algorithm_name(number)
        is_known = name in names and renamed.get(name, number) == number
        number = names.index(name) if is_known else MAX_INT
    number, chains, segment, requests = (
        _parse_int(where, name, value, MAX_INT)
        for name, value in (
            ("alg", number),
            ("faninout", told.get("faninout", 0)),
            ("seg_size", told.get("seg_size", 0)),
            ("reqs", told.get("reqs", 0)),
        )
    )
    if not 1 <= number < len(names) or names[number] in REDEFINED_ALGORITHMS.get(collective, ()):
        raise InputError(
            f"JSON rules: {where}: algorithm {told.get('alg', 0)} of {collective} is not known;"
            " Open MPI leaves out a rule whose algorithm it does not know"
        )
    choice = choice_of(collective, number, chains, segment, requests)
    try:
        require_safe_size("openmpi", choice, int(first))
    except InputError as reason:
        raise InputError(f"JSON rules: {where}: {reason}") from None
    return MessageRule(int(first), last, choice)


def _require_object(where: str, value: Any, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) - known:
        raise InputError(
            f"JSON rules: {where}: {shortened_repr(value)} has more than {sorted(known)}"
        )
    return value


def _bounds(where: str, told: Mapping[str, Any], name: str, most: int) -> tuple[float, float]:
    low, high = told.get(f"{name}_min", 0), told.get(f"{name}_max", "inf")
    first = _parse_int(where, f"{name}_min", low, most)
    last = math.inf if high == "inf" else _parse_int(where, f"{name}_max", high, most)
    if first > last:
        raise InputError(f"JSON rules: {where}: nothing is from {first} to {last:g}")
    return first, last


def _parse_int(where: str, name: str, value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise InputError(
            f"JSON rules: {where}: {name} cannot be {shortened_repr(value)}; Open MPI would"
            " drop the file"
        )
    return value


def differences(table: TuningTable, rules: JsonRules, operators: str) -> Iterator[str]:
    """Yield one sentence for every call that the file decides differently from the table."""
    known = rules_by_shape_and_ranks(table, operators)
    for collective in sorted({*known, *rules}):
        entries = rules.get(collective, ())
        edges = {n for e in entries for n in (e.min_ranks, e.max_ranks) if n < math.inf}
        for p in neighbours({*known.get(collective, {}), *map(int, edges)}, minimum=1):
            rule_lists = known.get(collective, {}).get(p, {})
            for nodes, ppn, rule_list in _shapes(p, rule_lists):
                held = [m for e in entries if e.matches(nodes, ppn) for m in e.messages]
                sizes = {
                    int(n) for m in held for n in (m.min_bytes, m.max_bytes + 1) if n < math.inf
                }
                for nbytes in boundary_sizes(rule_list, sizes):
                    told = expected_choice(collective, rule_list, nbytes)
                    found = decide(rules, collective, nodes, ppn, nbytes)
                    if found != told:
                        yield (
                            f"{collective} of {nbytes} bytes on {nodes} x {ppn} ranks: the table"
                            f" says {told}, the file {found}"
                        )


def _shapes(
    p: int, rule_lists: Mapping[RuleKey, tuple[Rule, ...]]
) -> Iterator[tuple[int, int, tuple[Rule, ...]]]:
    """Yield nodes, ppn and rule list of the table's shapes of `p` ranks.

    The shapes of one node and of one rank per node follow without rules where the table lacks them.
    """
    for key, rule_list in rule_lists.items():
        yield key.nodes, key.ppn, rule_list
    known = {(key.nodes, key.ppn) for key in rule_lists}
    yield from ((*shape, ()) for shape in {(1, p), (p, 1)} - known)
