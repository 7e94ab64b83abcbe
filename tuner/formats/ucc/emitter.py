"""Write `ucc.conf`, and compare a file with its table.

Each team shape has a section. Calls that the table leaves to UCC, and other teams, have no token.
The score makes the named algorithm win over other transport layers, as it did when it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, RuleKey, TuningTable
from tuner.formats.rules_by_ranks import boundary_sizes, describe_rule, neighbours, rules_by_key
from tuner.formats.ucc.file import MAX_LINE_BYTES, TUNE_VARIABLE, Team, UccConfig, decide, parse
from tuner.formats.ucc.tune_strings import (
    INFINITE_BYTES,
    INFINITE_SCORE,
    MEMORIES,
    TuneToken,
    join_tokens,
)
from tuner.mpi_libraries.ucc import UNSPLITTABLE_COLLECTIVES, require_expressible

_RulesByKey = Mapping[RuleKey, tuple[Rule, ...]]


def emit(table: TuningTable) -> str:
    """Return the file of a table; raises InputError when a rule cannot be expressed."""
    rule_lists = rules_by_key(table)
    lines = list[str]()
    for team in _teams(rule_lists):
        tokens = [
            token
            for key, rule_list in rule_lists.items()
            if Team(key.nodes, key.ppn) == team
            for token in _tokens(table.library, rule_list)
        ]
        line = f"{TUNE_VARIABLE}={join_tokens(tokens)}"
        if len(line) > MAX_LINE_BYTES:
            raise InputError(
                f"{team.nodes} x {team.ppn} ranks: {len(tokens)} rules do not fit into the"
                f" {MAX_LINE_BYTES} bytes of a line of ucc.conf: let the table have fewer rules"
            )
        if tokens:
            shape = f"team_size={team.p} ppn={team.ppn} nnodes={team.nodes}"
            lines += [f"[{shape}]", line, ""]
    text = "\n".join(["# Tuning sections of tl/ucp: UCC_CONFIG_FILE names this file.", "", *lines])
    differences = check(table, text)
    if differences:
        raise InputError(f"ucc.conf would not say what the table says: {differences[0]}")
    return text


def _teams(rule_lists: _RulesByKey) -> list[Team]:
    return [Team(*shape) for shape in sorted({(key.nodes, key.ppn) for key in rule_lists})]


def _tokens(library: str, rule_list: tuple[Rule, ...]) -> Iterator[TuneToken]:
    for rule in rule_list:
        _require_expressible(library, rule)
        if not rule.choice.is_default:
            hi = INFINITE_BYTES if rule.stop_bytes == math.inf else int(rule.stop_bytes)
            key = rule.key
            yield TuneToken(
                key.collective,
                rule.choice.algorithm,
                ((rule.start_bytes, hi),),
                (key.memory,),
                score=INFINITE_SCORE,
            )


def _require_expressible(library: str, rule: Rule) -> None:
    collective = rule.key.collective
    if rule.key.memory not in MEMORIES:
        raise InputError(
            f"{describe_rule(rule)}: the memory of UCC is one of {', '.join(MEMORIES)}, not"
            f" {shortened_repr(rule.key.memory)}"
        )
    if rule.choice.is_default:
        return
    try:
        require_expressible(library, collective, rule.choice)
    except InputError as reason:
        raise InputError(f"{describe_rule(rule)}: {reason}") from None
    if collective in UNSPLITTABLE_COLLECTIVES and (rule.start_bytes, rule.stop_bytes) != (
        0,
        math.inf,
    ):
        raise InputError(
            f"{describe_rule(rule)}: UCC counts the bytes of a {collective} in place"
            " otherwise than of others; use one rule for all sizes"
        )


def check(table: TuningTable, text: str) -> list[str]:
    """Return one sentence for every call that the file decides differently from the table.

    Each bound of each rule and token and one byte beside it are checked, on the teams of the table,
    those of the file and others. Raises InputError when UCC would misread the file.
    """
    conf, rule_lists = parse(text), rules_by_key(table)
    differences = [
        f"{name} decides beside {TUNE_VARIABLE}, and the table knows nothing of it"
        for section in (conf.default_section, *conf.sections)
        for name in section.variables
        if name.endswith("_TUNE") and name != TUNE_VARIABLE
    ]
    differences += [
        f"the section of {dict(section.cpus)} is for some processors only"
        for section in conf.sections
        if section.cpus or "sock" in section.ranges
    ]
    places = {(key.collective, key.nodes, key.ppn, key.memory): x for key, x in rule_lists.items()}
    told = {t.collective for s in (conf.default_section, *conf.sections) for t in s.tune_tokens}
    for team in _probed_teams(conf, _teams(rule_lists)):
        for collective in sorted(told | {key.collective for key in rule_lists}):
            for memory in MEMORIES:
                rule_list = places.get((collective, team.nodes, team.ppn, memory), ())
                differences += _differences(conf, collective, team, memory, rule_list)
    return differences


def _probed_teams(conf: UccConfig, known: list[Team]) -> list[Team]:
    """Return the known teams, the corners of every section, and the teams next to them."""
    shapes = {(team.nodes, team.ppn) for team in known}
    for limits in (section.ranges for section in conf.sections):
        p, ppn, nodes = (limits.get(name, (1, 1)) for name in ("team_size", "ppn", "nnodes"))
        shapes |= {(n, m) for n in nodes for m in ppn} | {(1, size) for size in p}
    every = {
        (n + i, m + j) for n, m in shapes for i, j in ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1))
    }
    return [Team(nodes, ppn) for nodes, ppn in sorted(every | {(1, 1)}) if nodes > 0 and ppn > 0]


def _differences(
    conf: UccConfig, collective: Collective, team: Team, memory: str, rule_list: tuple[Rule, ...]
) -> Iterator[str]:
    held = [s for s in conf.sections if TUNE_VARIABLE in s.variables and s.matches(team)] or [
        conf.default_section
    ]
    sizes = {
        n
        for s in held
        for t in s.tune_tokens
        if t.collective is collective
        for r in t.size_ranges
        for n in r
    }
    sizes -= {INFINITE_BYTES}
    if (
        not rule_list
        and not sizes
        and not any(t.collective is collective for s in held for t in s.tune_tokens)
    ):
        return
    for nbytes in (*boundary_sizes(rule_list, sizes), *neighbours({INFINITE_BYTES - 2})):
        rule = next((r for r in rule_list if r.start_bytes <= nbytes < r.stop_bytes), None)
        wanted = rule.choice if rule else AlgorithmChoice()
        found = decide(conf, collective, team, memory, nbytes)
        if found != wanted:
            yield (
                f"{collective} of {nbytes} bytes in {memory} memory on {team.nodes} x {team.ppn}"
                f" ranks: the table says {wanted}, the file {found}"
            )
