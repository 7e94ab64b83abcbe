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
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, RuleKey, TuningTable
from tuner.formats import strict_parsing
from tuner.formats.file_rules import Report
from tuner.formats.openmpi.rules import expected_choice, min_decided_bytes
from tuner.formats.rules_by_ranks import (
    boundary_sizes,
    describe_rule,
    neighbours,
    rules_by_shape_and_ranks,
)
from tuner.mpi_libraries import require_safe_size
from tuner.mpi_libraries.openmpi_collectives import (
    COLLECTIVE_OF,
    COLLECTIVES,
    NEW_NAMES,
    OTHER_COLLECTIVES,
    max_algorithm_numbers,
)
from tuner.mpi_libraries.openmpi_rule_numbers import choice_of, rule_parameters

FIRST_MAJOR_VERSION = 6  # first major version that reads JSON rules
ANY_DISTRIBUTION, SINGLE_NODE, ONE_PER_NODE = DISTRIBUTIONS = ("any", "single-node", "one-per-node")
# In 6.0 the number of `bruck` runs a Bruck algorithm whose radix is the fan-out.
REDEFINED_ALGORITHMS: Mapping[str, tuple[str, ...]] = {Collective.ALLGATHER: ("bruck",)}
MAX_INT = 2**31 - 1
_ROOT = {"rule_file_version": 3, "module": "tuned"}


@dataclass(frozen=True)
class MessageRule:
    """The choice for calls of `min_bytes` to `max_bytes` of the whole buffer, both included.

    line        its line in the file it was read from
    number      the library's number of the choice, or its name
    place       where it is in the file
    """

    min_bytes: int
    max_bytes: float
    choice: AlgorithmChoice
    line: int = field(default=0, compare=False)
    number: int | str = field(default=0, compare=False)
    place: str = field(default="", compare=False)


@dataclass(frozen=True)
class CommunicatorRule:
    """The message rules for communicators of `min_ranks` to `max_ranks` ranks.

    distribution    how the ranks must be spread over nodes, one of DISTRIBUTIONS
    """

    min_ranks: int
    max_ranks: float
    distribution: str
    messages: tuple[MessageRule, ...]
    line: int = field(default=0, compare=False)

    def matches(self, nodes: int, ppn: int) -> bool:
        spread = {ANY_DISTRIBUTION: True, SINGLE_NODE: nodes == 1, ONE_PER_NODE: ppn == 1}[
            self.distribution
        ]
        return spread and self.min_ranks <= nodes * ppn <= self.max_ranks


JsonRules = Mapping[str, tuple[CommunicatorRule, ...]]  # by the name of the collective


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


def _refuse(_line: int, text: str) -> NoReturn:
    raise InputError(f"JSON rules: {text}")


def parse(text: str, report: Report = _refuse, library: str = "openmpi 6.0") -> JsonRules:
    """Return the rules in a file; raises InputError for what Open MPI would drop or misread.

    report      takes what is wrong with single rules
    """
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
    known = {str(one): number for number, one in {**COLLECTIVE_OF, **OTHER_COLLECTIVES}.items()}
    if not isinstance(collectives, dict) or set(collectives) - set(known):
        raise InputError(f"JSON rules: collectives must be an object with {', '.join(known)}")
    largest = max_algorithm_numbers(library)
    return {
        name: tuple(
            _parse_communicator_rule(
                f"{name}, entry {i}", (name, largest[known[name]]), entry, report
            )
            for i, entry in enumerate(_require_list(name, entries))
        )
        for name, entries in collectives.items()
    }


def _require_list(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"JSON rules: {where}: {shortened_repr(value)} is not a list of rules")
    return value


def _parse_communicator_rule(
    where: str, collective: tuple[str, int], entry: Any, report: Report
) -> CommunicatorRule:
    """Return a rule.

    collective  its name and largest algorithm number
    """
    known = {"comm_size_min", "comm_size_max", "comm_rank_distribution", "rules"}
    told = _require_object(where, entry, known)
    distribution = told.get("comm_rank_distribution", ANY_DISTRIBUTION)
    if distribution not in DISTRIBUTIONS:
        raise InputError(
            f"JSON rules: {where}: {shortened_repr(distribution)} is none of {DISTRIBUTIONS}"
        )
    least, most = _bounds(where, told, "comm_size", MAX_INT)
    messages = (
        _parse_message_rule(f"{where}, rule {i}", *collective, rule, report)
        for i, rule in enumerate(_require_list(where, told.get("rules")))
    )
    kept = tuple(message for message in messages if message)
    return CommunicatorRule(int(least), most, distribution, kept, told.line)


def _parse_message_rule(
    where: str, collective: str, largest: int, entry: Any, report: Report
) -> MessageRule | None:
    """Return a rule; None for one that the library leaves out."""
    known = {"msg_size_min", "msg_size_max", "alg", "faninout", "seg_size", "reqs"}
    told = _require_object(where, entry, known)
    first, last = _bounds(where, told, "msg_size", 2**63 - 1)
    chains, segment, requests = (
        _parse_int(where, name, told.get(name, 0), MAX_INT)
        for name in ("faninout", "seg_size", "reqs")
    )
    named = told.get("alg", 0)
    number = named if isinstance(named, str) else _parse_int(where, "alg", named, MAX_INT)
    if isinstance(number, str):
        number = _number_of(collective, number)
    if number == 0:
        report(told.line, f"{where}: algorithm 0 of {collective} leaves these calls to Open MPI")
    if isinstance(number, int) and number > largest:
        report(
            told.line,
            f"{where}: algorithm {named} of {collective} is not known;"
            " Open MPI leaves out a rule whose algorithm it does not know",
        )
        return None
    choice = _choice(collective, number, chains, segment, requests)
    try:
        require_safe_size("openmpi", choice, int(first))
    except InputError as reason:
        report(told.line, f"{where}: {reason}")
    return MessageRule(int(first), last, choice, told.line, number, where)


def _number_of(collective: str, name: str) -> int | str:
    """Return the number of the library's name, more than any if unknown, or the name.

    The names of collectives whose algorithms have none here are not known.
    """
    if collective not in COLLECTIVES:
        return shortened_repr(name)
    from tuner.importers.algorithm_names import algorithm_name  # loads all importers

    known = COLLECTIVES[Collective(collective)]
    new = NEW_NAMES.get(Collective(collective), {})
    ours = {theirs: own for own, theirs in known.library_names.items()}.get(name)
    ours = ours or algorithm_name(name)
    if name in new or ours not in known.algorithms[1:]:
        return new.get(name, MAX_INT)
    is_its_own = known.library_names.get(ours, name) == name
    is_its_own &= ours not in REDEFINED_ALGORITHMS.get(collective, ())
    return known.algorithms.index(ours) if is_its_own else MAX_INT


def _choice(
    collective: str, number: int | str, chains: int, segment: int, requests: int
) -> AlgorithmChoice:
    """Return the choice of these numbers, `algorithm 7` for one without a name here."""
    known = COLLECTIVES[Collective(collective)].algorithms if collective in COLLECTIVES else ()
    if number == 0:
        return AlgorithmChoice()
    redefined = REDEFINED_ALGORITHMS.get(collective, ())
    if isinstance(number, str) or number >= len(known) or known[number] in redefined:
        return AlgorithmChoice(f"algorithm {number}")
    return choice_of(Collective(collective), number, chains, segment, requests)


def _require_object(where: str, value: Any, known: set[str]) -> strict_parsing.LinedObject:
    if not isinstance(value, strict_parsing.LinedObject) or set(value) - known:
        raise InputError(
            f"JSON rules: {where}: {shortened_repr(value)} has more than {sorted(known)}"
        )
    return value


def _bounds(where: str, told: Mapping[str, Any], name: str, most: int) -> tuple[float, float]:
    low, high = told.get(f"{name}_min", 0), told.get(f"{name}_max", "inf")
    first = _parse_int(where, f"{name}_min", low, most)
    last = math.inf if high == "inf" else _parse_int(where, f"{name}_max", high, most)
    if first > last:
        raise InputError(f"JSON rules: {where}: {name}_min {first} is above {name}_max {last:g}")
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
    foreign = sorted(set(rules) - set(COLLECTIVES))
    yield from (f"the table has no rules for {name}" for name in foreign)
    for collective in sorted({*known, *(one for one in COLLECTIVES if one in rules)}):
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
