"""Write the CSV that tuner plugins of NCCL and RCCL read, and compare a file with its table.

The example plugin of NVIDIA cannot leave a call to NCCL: where no row fits it answers one channel.
So every size of every communicator gets a row, and what the table leaves to NCCL needs a stand-in.
RCCL itself, its example and our own plugin leave alone what no row is for.
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
from tuner.core.table import Choice, Key, Rule, TuningTable
from tuner.formats.nccl.csv_rules import (
    ANY,
    COLLECTIVES,
    LARGEST,
    NCCL,
    RCCL,
    Call,
    Row,
    decide,
    parse,
)
from tuner.formats.rules_by_ranks import by_place, describe, left, probe_sizes
from tuner.mpi_libraries.nccl.constants import RING, SIMPLE, Way
from tuner.mpi_libraries.nccl.names import OWN_CHANNELS, choice_of, name_of, way_of, ways_of

HEADER = "# collective,first,last,algorithm,protocol,channels,nodes,ranks (0 channels: NCCL's own)"
SPARSE_HEADER = HEADER.replace("(0 channels: NCCL's own)", "(-1 channels: the library's own)")
ELSEWHERE = Way(RING, SIMPLE)  # which every collective has


def otherwise_of(name: str) -> Choice | None:
    """A stand-in for NCCL's own choice by name, such as `ring_simple`; None of "".

    Raises InputError for another name.
    """
    if not name:
        return None
    offered = [name_of(way) for way in ways_of(Collective.ALLREDUCE)]
    if name not in offered:
        raise InputError(f"NCCL has no way {name!r} for allreduce: choose one of {offered}")
    return Choice(name)


def emit(table: TuningTable, otherwise: Choice | None = None) -> str:
    """The file of a table for `nccl` or `rccl`.

    otherwise   what runs where the table leaves the choice to NCCL and for calls it says nothing
                about; collectives that do not have it run ring_simple there. RCCL needs none.

    Raises InputError when a rule cannot be expressed, and for a default rule without a stand-in.
    """
    if _family(table) != NCCL:
        return emit_sparse(table)
    rows = [
        row
        for key, ladder in by_place(table).items()
        for row in _rows(key, ladder, partial(_replaced, otherwise=otherwise))
    ]
    rows += [
        Row(collective, 0, LARGEST, *_stand_in(collective, otherwise))
        for collective in COLLECTIVES.values()
    ]
    text = "".join(f"{line}\n" for line in (HEADER, *rows))
    _require_equal(check(table, text, otherwise))
    return text


def emit_sparse(table: TuningTable) -> str:
    """Return the file with rows for the rules alone, none where the library decides.

    RCCL reads it, and our own plugin. Raises InputError when a rule cannot be expressed.
    """
    rows = (
        replace(row, channels=ANY) if row.channels == OWN_CHANNELS else row
        for key, ladder in by_place(table).items()
        for row in _rows(key, ladder, lambda _rule: None)
    )
    text = "".join(f"{line}\n" for line in (SPARSE_HEADER, *rows))
    _require_equal(_differences(table, text, None, RCCL))
    return text


def _require_equal(differences: list[str]) -> None:
    if differences:
        raise InputError(f"the tuner file would not say what the table says: {differences[0]}")


def replaced(table: TuningTable) -> int:
    """How many rules leave to the library what a stand-in decides in the file."""
    if _family(table) != NCCL:
        return 0
    return sum(rule.choice.is_default for ladder in by_place(table).values() for rule in ladder)


def _family(table: TuningTable) -> str:
    return table.library.partition(" ")[0]


def _stand_in(collective: Collective, otherwise: Choice | None) -> tuple[Way, int]:
    offered = {name_of(way): way for way in ways_of(collective)}
    return offered.get(otherwise.algorithm if otherwise else "", ELSEWHERE), OWN_CHANNELS


def _rows(
    key: Key, ladder: tuple[Rule, ...], default: Callable[[Rule], tuple[Way, int] | None]
) -> Iterator[Row]:
    """Yield the rows of one ladder; `default`: what runs under a default rule, None for no row."""
    for rule in ladder:
        if key.memory == "host":
            raise InputError(f"{describe(rule)}: NCCL has no collectives of host memory")
        last = LARGEST if rule.hi == math.inf else int(rule.hi) - 1
        found = default(rule) if rule.choice.is_default else _way_of(rule)
        if found is not None:
            yield Row(key.collective, rule.lo, last, *found, key.nodes, key.p)


def _way_of(rule: Rule) -> tuple[Way, int]:
    try:
        return way_of(rule.key.collective, rule.choice)
    except InputError as reason:
        raise InputError(f"{describe(rule)}: {reason}") from None


def _replaced(rule: Rule, otherwise: Choice | None) -> tuple[Way, int]:
    if otherwise is None:
        raise InputError(
            f"{describe(rule)}: NVIDIA's example plugin cannot leave a call to NCCL, it would run"
            " on one channel: name a stand-in (--otherwise ring_simple), or use the plugin of"
            " `tuner nccl install`"
        )
    return _stand_in(rule.key.collective, otherwise)


def check(table: TuningTable, text: str, otherwise: Choice | None = None) -> list[str]:
    """Every call for which the file decides otherwise than the table, one sentence each.

    otherwise   as for `emit`; without it no row may decide what a rule leaves to NCCL

    Looks at each bound of each rule and row and one byte beside it, on the table's communicators,
    those of the file and others. Raises InputError when the plugin would not read the file as it
    stands.
    """
    return _differences(table, text, otherwise, _family(table))


def _differences(table: TuningTable, text: str, otherwise: Choice | None, family: str) -> list[str]:
    rows = parse(text, family)
    ladders = {(k.collective, k.nodes, k.p): ladder for k, ladder in by_place(table).items()}
    differences = []
    for collective in COLLECTIVES.values():
        mine = [row for row in rows if row.collective is collective]
        known = [(nodes, p) for name, nodes, p in ladders if name is collective]
        for nodes, p in _places(mine, known):
            there = [r for r in mine if r.nodes in (ANY, nodes) and r.ranks in (ANY, p)]
            ladder = ladders.get((collective, nodes, p), ())
            for nbytes in _sizes(ladder, there):
                wanted, said = _wanted(collective, ladder, nbytes, otherwise, family)
                for call in _calls(there, Call(collective, nodes, p, nbytes)):
                    found = decide(there, call)
                    if found != wanted:
                        differences.append(_difference(call, said, found))
    return list(dict.fromkeys(differences))


def _places(rows: list[Row], known: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Communicators (nodes, ranks): the known ones, those that rows are for, and another one."""
    told = [*known, *((row.nodes, row.ranks) for row in rows)]
    other = max(1, *(n for pair in told for n in pair)) + 1 if told else 1
    found = {tuple(other if n == ANY else n for n in pair) for pair in told}
    return sorted({(nodes, p) for nodes, p in found} | {(other, other)})


def _sizes(ladder: tuple[Rule, ...], rows: list[Row]) -> list[int]:
    edges = {n for row in rows for n in (row.first, row.last + 1)}
    return [n for n in probe_sizes(ladder, edges - {LARGEST + 1}) if n <= LARGEST]


def _calls(rows: list[Row], call: Call) -> list[Call]:
    """The call with every number of operations and kind of buffer that the file tells apart."""
    pipe_ops = {n for row in rows for n in (row.pipe_ops, row.pipe_ops + 1)} - {ANY} | {1}
    return [
        replace(call, pipe_ops=ops, registered=registered)
        for ops, registered in itertools.product(sorted(pipe_ops), (0, 1))
    ]


def _wanted(
    collective: Collective,
    ladder: tuple[Rule, ...],
    nbytes: int,
    otherwise: Choice | None,
    family: str,
) -> tuple[Choice | None, str]:
    """What a file has to decide, None for NCCL itself, and how the table says it."""
    rule = next((r for r in ladder if r.lo <= nbytes < r.hi), None)
    if rule is not None and not rule.choice.is_default:
        choice = choice_of(*way_of(collective, rule.choice))
        return choice, f"says {choice}"
    if family != NCCL:
        return None, left()
    if rule is not None and otherwise is None:
        return None, left(unnamed=True)
    stand_in = choice_of(*_stand_in(collective, otherwise))
    return stand_in, left(stand_in)


def _difference(call: Call, said: str, found: Choice | None) -> str:
    return (
        f"{call.collective} of {call.nbytes} bytes on {plural(call.nodes, 'node')},"
        f" {plural(call.p, 'rank')}: the table {said}; the file says {found or 'that NCCL decides'}"
    )
