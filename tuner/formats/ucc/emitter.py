"""Writing `ucc.conf`, and comparing a file with its table.

One section per shape of team; what the table leaves to UCC, and other teams, have no token. The
score makes the named algorithm win over other transport layers, as it did when it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tuner.base.errors import InputError, quoted
from tuner.core.collective import Collective
from tuner.core.table import Choice, Key, Rule, TuningTable
from tuner.formats.rules_by_ranks import beside, by_place, describe, probe_sizes
from tuner.formats.ucc.file import LONGEST, TUNE, Conf, Team, decide, parse
from tuner.formats.ucc.tune import FORCED, INFINITE, MEMORIES, Token, joined
from tuner.mpi_libraries.ucc import UNSPLIT, require

_Ladders = Mapping[Key, tuple[Rule, ...]]


def emit(table: TuningTable) -> str:
    """The file of a table. Raises InputError when a rule cannot be expressed."""
    ladders = by_place(table)
    lines = list[str]()
    for team in _teams(ladders):
        tokens = [
            token
            for key, ladder in ladders.items()
            if Team(key.nodes, key.ppn) == team
            for token in _tokens(table.library, ladder)
        ]
        line = f"{TUNE}={joined(tokens)}"
        if len(line) > LONGEST:
            raise InputError(
                f"{team.nodes} x {team.ppn} ranks: {len(tokens)} rules do not fit into the"
                f" {LONGEST} bytes of a line of ucc.conf: let the table have fewer rules"
            )
        if tokens:
            shape = f"team_size={team.p} ppn={team.ppn} nnodes={team.nodes}"
            lines += [f"[{shape}]", line, ""]
    text = "\n".join(["# Tuning sections of tl/ucp: UCC_CONFIG_FILE names this file.", "", *lines])
    differences = check(table, text)
    if differences:
        raise InputError(f"ucc.conf would not say what the table says: {differences[0]}")
    return text


def _teams(ladders: _Ladders) -> list[Team]:
    return [Team(*shape) for shape in sorted({(key.nodes, key.ppn) for key in ladders})]


def _tokens(library: str, ladder: tuple[Rule, ...]) -> Iterator[Token]:
    for rule in ladder:
        _require_expressible(library, rule)
        if not rule.choice.is_default:
            hi = INFINITE if rule.hi == math.inf else int(rule.hi)
            key = rule.key
            yield Token(
                key.collective, rule.choice.algorithm, ((rule.lo, hi),), (key.memory,), score=FORCED
            )


def _require_expressible(library: str, rule: Rule) -> None:
    collective = rule.key.collective
    if rule.key.memory not in MEMORIES:
        raise InputError(f"{describe(rule)}: UCC knows no {quoted(rule.key.memory)} memory")
    if rule.choice.is_default:
        return
    try:
        require(library, collective, rule.choice)
    except InputError as reason:
        raise InputError(f"{describe(rule)}: {reason}") from None
    if collective in UNSPLIT and (rule.lo, rule.hi) != (0, math.inf):
        raise InputError(
            f"{describe(rule)}: UCC counts the bytes of a {collective} in place otherwise than of"
            " others; use one rule for all sizes"
        )


def check(table: TuningTable, text: str) -> list[str]:
    """Every call for which the file decides otherwise than the table, one sentence each.

    Looks at each bound of each rule and token and one byte beside it, on the table's teams, those
    of the file and others. Raises InputError when UCC would not read the file as it stands.
    """
    conf, ladders = parse(text), by_place(table)
    differences = [
        f"{name} decides beside {TUNE}, and the table knows nothing of it"
        for section in (conf.everywhere, *conf.sections)
        for name in section.variables
        if name.endswith("_TUNE") and name != TUNE
    ]
    differences += [
        f"the section of {dict(section.cpus)} is for some processors only"
        for section in conf.sections
        if section.cpus or "sock" in section.limits
    ]
    places = {(key.collective, key.nodes, key.ppn, key.memory): x for key, x in ladders.items()}
    told = {t.collective for s in (conf.everywhere, *conf.sections) for t in s.tune}
    for team in _probed_teams(conf, _teams(ladders)):
        for collective in sorted(told | {key.collective for key in ladders}):
            for memory in MEMORIES:
                ladder = places.get((collective, team.nodes, team.ppn, memory), ())
                differences += _differences(conf, collective, team, memory, ladder)
    return differences


def _probed_teams(conf: Conf, known: list[Team]) -> list[Team]:
    """The known teams, the corners of every section, and teams beside them."""
    shapes = {(team.nodes, team.ppn) for team in known}
    for limits in (section.limits for section in conf.sections):
        p, ppn, nodes = (limits.get(name, (1, 1)) for name in ("team_size", "ppn", "nnodes"))
        shapes |= {(n, m) for n in nodes for m in ppn} | {(1, size) for size in p}
    every = {
        (n + i, m + j) for n, m in shapes for i, j in ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1))
    }
    return [Team(nodes, ppn) for nodes, ppn in sorted(every | {(1, 1)}) if nodes > 0 and ppn > 0]


def _differences(
    conf: Conf, collective: Collective, team: Team, memory: str, ladder: tuple[Rule, ...]
) -> Iterator[str]:
    held = [s for s in conf.sections if TUNE in s.variables and s.holds(team)] or [conf.everywhere]
    sizes = {
        n for s in held for t in s.tune if t.collective is collective for r in t.ranges for n in r
    }
    sizes -= {INFINITE}
    if (
        not ladder
        and not sizes
        and not any(t.collective is collective for s in held for t in s.tune)
    ):
        return
    for nbytes in (*probe_sizes(ladder, sizes), *beside({INFINITE - 2})):
        rule = next((r for r in ladder if r.lo <= nbytes < r.hi), None)
        wanted = rule.choice if rule else Choice()
        found = decide(conf, collective, team, memory, nbytes)
        if found != wanted:
            yield (
                f"{collective} of {nbytes} bytes in {memory} memory on {team.nodes} x {team.ppn}"
                f" ranks: the table says {wanted}, the file {found}"
            )
