"""Write the CSV that tuner plugins of NCCL and RCCL read, and compare a file with its table.

NVIDIA's example plugin cannot leave a call to NCCL: where no row matches it sets one channel. So
every size of every communicator gets a row, and calls that the table leaves to NCCL need a fallback
algorithm. RCCL itself, its example and our own plugin do not touch calls without a row.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from tuner.base.errors import InputError
from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, RuleKey, TuningTable
from tuner.formats.nccl.csv_rules import (
    ANY,
    COLLECTIVES,
    MAX_SIZE_BYTES,
    NCCL,
    RCCL,
    CsvRule,
    PluginCall,
    decide,
    parse,
)
from tuner.formats.rules_by_ranks import (
    boundary_sizes,
    describe_default,
    describe_rule,
    rules_by_key,
)
from tuner.mpi_libraries.nccl.constants import RING, SIMPLE, AlgoProto
from tuner.mpi_libraries.nccl.names import (
    DEFAULT_CHANNELS,
    algo_proto_and_channels,
    algo_protos_of,
    choice_of,
    name_of,
)

HEADER = "# collective,first,last,algorithm,protocol,channels,nodes,ranks (0 channels: NCCL's own)"
SPARSE_HEADER = HEADER.replace("(0 channels: NCCL's own)", "(-1 channels: the library's own)")
DEFAULT_FALLBACK = AlgoProto(RING, SIMPLE)  # which every collective has


def fallback_of(name: str) -> AlgorithmChoice | None:
    """Return the fallback algorithm of this name, such as `ring_simple`; None for "".

    Raises InputError for another name.
    """
    if not name:
        return None
    offered = [name_of(way) for way in algo_protos_of(Collective.ALLREDUCE)]
    if name not in offered:
        raise InputError(f"NCCL has no way {name!r} for allreduce: choose one of {offered}")
    return AlgorithmChoice(name)


def emit(table: TuningTable, fallback: AlgorithmChoice | None = None) -> str:
    """Return the file of a table for `nccl` or `rccl`.

    fallback    runs where the table leaves calls to NCCL and for calls without rules; collectives
                that lack it run ring_simple there. RCCL needs none.

    Raises InputError when a rule cannot be expressed, and for a default rule without a fallback.
    """
    if _family(table) != NCCL:
        return emit_sparse(table)
    rows = [
        row
        for key, rule_list in rules_by_key(table).items()
        for row in _rows(key, rule_list, partial(_require_fallback, fallback=fallback))
    ]
    rows += [
        CsvRule(collective, 0, MAX_SIZE_BYTES, *_fallback_algo_proto(collective, fallback))
        for collective in COLLECTIVES.values()
    ]
    text = "".join(f"{line}\n" for line in (HEADER, *rows))
    _require_equal(check(table, text, fallback))
    return text


def emit_sparse(table: TuningTable) -> str:
    """Return the file with rows only for rules that name an algorithm.

    RCCL and our own plugin read it. Raises InputError when a rule cannot be expressed.
    """
    rows = (
        replace(row, channels=ANY) if row.channels == DEFAULT_CHANNELS else row
        for key, rule_list in rules_by_key(table).items()
        for row in _rows(key, rule_list, lambda _rule: None)
    )
    text = "".join(f"{line}\n" for line in (SPARSE_HEADER, *rows))
    _require_equal(_differences(table, text, None, RCCL))
    return text


def _require_equal(differences: list[str]) -> None:
    if differences:
        raise InputError(f"the tuner file would not say what the table says: {differences[0]}")


def fallback_rule_count(table: TuningTable) -> int:
    """Return how many default rules the fallback algorithm replaces in the file."""
    if _family(table) != NCCL:
        return 0
    return sum(
        rule.choice.is_default for rule_list in rules_by_key(table).values() for rule in rule_list
    )


def _family(table: TuningTable) -> str:
    return table.library.partition(" ")[0]


def _fallback_algo_proto(
    collective: Collective, fallback: AlgorithmChoice | None
) -> tuple[AlgoProto, int]:
    offered = {name_of(way): way for way in algo_protos_of(collective)}
    return offered.get(fallback.algorithm if fallback else "", DEFAULT_FALLBACK), DEFAULT_CHANNELS


def _rows(
    key: RuleKey,
    rule_list: tuple[Rule, ...],
    default: Callable[[Rule], tuple[AlgoProto, int] | None],
) -> Iterator[CsvRule]:
    """Yield the rows of one rule list.

    default     returns what runs under a default rule, None for no row
    """
    for rule in rule_list:
        if key.memory == "host":
            raise InputError(f"{describe_rule(rule)}: NCCL's collectives are of GPU memory")
        last = MAX_SIZE_BYTES if rule.stop_bytes == math.inf else int(rule.stop_bytes) - 1
        found = default(rule) if rule.choice.is_default else _algo_proto_of_rule(rule)
        if found is not None:
            yield CsvRule(key.collective, rule.start_bytes, last, *found, key.nodes, key.p)


def _algo_proto_of_rule(rule: Rule) -> tuple[AlgoProto, int]:
    try:
        return algo_proto_and_channels(rule.key.collective, rule.choice)
    except InputError as reason:
        raise InputError(f"{describe_rule(rule)}: {reason}") from None


def _require_fallback(rule: Rule, fallback: AlgorithmChoice | None) -> tuple[AlgoProto, int]:
    if fallback is None:
        raise InputError(
            f"{describe_rule(rule)}: NVIDIA's example plugin cannot leave a call to NCCL, it"
            " would run on one channel: name a fallback (--fallback-algorithm ring_simple), or use"
            " the plugin of `tuner nccl install`"
        )
    return _fallback_algo_proto(rule.key.collective, fallback)


def check(table: TuningTable, text: str, fallback: AlgorithmChoice | None = None) -> list[str]:
    """Return one sentence for every call that the file decides differently from the table.

    fallback    as for `emit`; without it no row may decide what a rule leaves to NCCL

    Each bound of each rule and row and one byte beside it are checked, on the communicators of the
    table, those of the file and others. Raises InputError when the plugin would misread the file.
    """
    return _differences(table, text, fallback, _family(table))


def _differences(
    table: TuningTable, text: str, fallback: AlgorithmChoice | None, family: str
) -> list[str]:
    rows = parse(text, family)
    rule_lists = {
        (k.collective, k.nodes, k.p): rule_list for k, rule_list in rules_by_key(table).items()
    }
    differences = []
    for collective in COLLECTIVES.values():
        mine = [row for row in rows if row.collective is collective]
        known = [(nodes, p) for name, nodes, p in rule_lists if name is collective]
        for nodes, p in _communicators(mine, known):
            there = [r for r in mine if r.nodes in (ANY, nodes) and r.ranks in (ANY, p)]
            rule_list = rule_lists.get((collective, nodes, p), ())
            for nbytes in _boundary_sizes(rule_list, there):
                wanted, said = _expected_choice(collective, rule_list, nbytes, fallback, family)
                for call in _calls(there, PluginCall(collective, nodes, p, nbytes)):
                    found = decide(there, call)
                    if found != wanted:
                        differences.append(_difference(call, said, found))
    return list(dict.fromkeys(differences))


def _communicators(rows: list[CsvRule], known: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the (nodes, ranks) of the table and of rows, and one that neither has."""
    told = [*known, *((row.nodes, row.ranks) for row in rows)]
    other = max(1, *(n for pair in told for n in pair)) + 1 if told else 1
    found = {tuple(other if n == ANY else n for n in pair) for pair in told}
    return sorted({(nodes, p) for nodes, p in found} | {(other, other)})


def _boundary_sizes(rule_list: tuple[Rule, ...], rows: list[CsvRule]) -> list[int]:
    edges = {n for row in rows for n in (row.min_bytes, row.max_bytes + 1)}
    return [
        n for n in boundary_sizes(rule_list, edges - {MAX_SIZE_BYTES + 1}) if n <= MAX_SIZE_BYTES
    ]


def _calls(rows: list[CsvRule], call: PluginCall) -> list[PluginCall]:
    """Return the call with every number of operations and kind of buffer that rows tell apart."""
    pipe_ops = {n for row in rows for n in (row.pipe_ops, row.pipe_ops + 1)} - {ANY} | {1}
    return [
        replace(call, pipe_ops=ops, registered=registered)
        for ops, registered in itertools.product(sorted(pipe_ops), (0, 1))
    ]


def _expected_choice(
    collective: Collective,
    rule_list: tuple[Rule, ...],
    nbytes: int,
    fallback: AlgorithmChoice | None,
    family: str,
) -> tuple[AlgorithmChoice | None, str]:
    """Return the choice that a file must name, None for NCCL itself, and a phrase for it."""
    rule = next((r for r in rule_list if r.start_bytes <= nbytes < r.stop_bytes), None)
    if rule is not None and not rule.choice.is_default:
        choice = choice_of(*algo_proto_and_channels(collective, rule.choice))
        return choice, f"says {choice}"
    if family != NCCL:
        return None, describe_default()
    if rule is not None and fallback is None:
        return None, describe_default(is_fallback_missing=True)
    stand_in = choice_of(*_fallback_algo_proto(collective, fallback))
    return stand_in, describe_default(stand_in)


def _difference(call: PluginCall, said: str, found: AlgorithmChoice | None) -> str:
    return (
        f"{call.collective} of {call.nbytes} bytes on {plural(call.nodes, 'node')},"
        f" {plural(call.p, 'rank')}: the table {said}; the file says {found or 'that NCCL decides'}"
    )
