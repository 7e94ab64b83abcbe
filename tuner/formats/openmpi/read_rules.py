"""Reading of a user's rules files for Open MPI: the classic one, JSON, and that of `han`.

Unlike the parsers, which refuse what no file of a table has, this follows the library, and reports
which lines are without effect or harm programs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from tuner.base.units import humanize
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.formats.file_rules import (
    BLOCK_BYTES,
    BYTES,
    INF,
    NO,
    NODES,
    ONE_NODE,
    PPN,
    RANKS,
    AskedCall,
    Box,
    FileRule,
    FileRules,
    Ranges,
    both,
    describe,
    narrowed,
    walked,
)
from tuner.formats.openmpi import han, json_rules
from tuner.formats.openmpi.rules import LIMITED_HEADER, RuleLine
from tuner.formats.openmpi.rules_parser import parse
from tuner.mpi_libraries.openmpi import preserves_operand_order, unsupported_reason
from tuner.mpi_libraries.openmpi_collectives import (
    COLLECTIVE_OF,
    COLLECTIVES,
    FIRST_WITH_HAN,
    OTHER_COLLECTIVES,
    max_algorithm_numbers,
)
from tuner.mpi_libraries.openmpi_rule_numbers import reads_requests
from tuner.mpi_libraries.products import OPENMPI, release_of, title_of
from tuner.mpi_libraries.profiles import PROFILES

DISTRIBUTION_BOXES: dict[str, Box] = {
    json_rules.ANY_DISTRIBUTION: {},
    json_rules.SINGLE_NODE: {NODES: ((1, 1),)},
    json_rules.ONE_PER_NODE: {PPN: ((1, 1),)},
}


def read_classic(text: str, library: str) -> FileRules:
    """Return the rules of a classic file."""
    found = FileRules(otherwise="Open MPI decides", before=partial(_before, library))
    if text.startswith(LIMITED_HEADER) and not reads_requests(library):
        found.report(1, f"{title_of(library)} reads no files of version 2 and drops this one")
        return found
    is_shifted = release_of(library) >= (json_rules.FIRST_MAJOR_VERSION,)
    if is_shifted:
        found.report(
            1, f"{title_of(library)} takes each size of communicators for the next one: write JSON"
        )
    largest = max_algorithm_numbers(library)
    for number, entries in parse(text, found.report, library).collectives.items():
        name = str(COLLECTIVE_OF.get(number, OTHER_COLLECTIVES.get(number, f"collective {number}")))
        bounds = [ranks for ranks, _ in entries]
        bounds = [0, *bounds[:-1]] if is_shifted else bounds
        for (_, rows), ranks in zip(entries, walked(bounds), strict=True):
            _warn_of_split(found, name, ((row.number, row.algorithm) for row in rows))
            for row, sizes in zip(rows, walked([row.min_bytes for row in rows]), strict=True):
                box = {**narrowed({}, RANKS, ranks), **_sizes(name, sizes)}
                is_known = row.algorithm <= largest.get(number, 0)
                choice = _choice(COLLECTIVE_OF.get(number) if is_known else None, row)
                _add(found, name, box, choice, (row.number, row.algorithm, ""))
    return found


def read_json(text: str, library: str) -> FileRules:
    """Return the rules of a JSON file."""
    release = release_of(library)
    found = FileRules(otherwise="Open MPI decides", before=partial(_before, library))
    if release and release < (json_rules.FIRST_MAJOR_VERSION,):
        found.report(1, f"{title_of(library)} silently ignores JSON rules")
        return found
    newest = library if release else f"{OPENMPI} {json_rules.FIRST_MAJOR_VERSION}.0"
    for name, entries in json_rules.parse(text, found.report, newest).items():
        for entry in entries:
            spread = DISTRIBUTION_BOXES[entry.distribution]
            box = narrowed(spread, RANKS, ((entry.min_ranks, entry.max_ranks),))
            _warn_of_split(found, name, ((one.line, one.number) for one in entry.messages))
            for one in entry.messages:
                own = {**box, **_sizes(name, ((one.min_bytes, one.max_bytes),))}
                place = f"{one.place}: {describe(own) or 'all calls'}"
                _add(found, name, own, one.choice, (one.line, one.number, place))
            found.rules.append(FileRule(entry.line, name, box, "", is_written=not entry.messages))
    return found


def _before(library: str, call: AskedCall) -> str:
    known, release = COLLECTIVES.get(call.collective), release_of(library) or FIRST_WITH_HAN
    is_on_one_node = call.nodes == 1 or call.ranks == 1
    if is_on_one_node or not known or not known.is_in_han or release < FIRST_WITH_HAN:
        return ""
    return (
        "on several nodes han takes this call before these rules, which then hold only for the"
        " communicators inside it (from Open MPI 5 on; --library openmpi@4.1.4 for an older one):"
        " leave han out (--mca coll ^han), or give it a file that hands calls on"
    )


def read_han(text: str, library: str) -> FileRules:
    """Return the components to which `han` hands calls; the last bound it reaches counts."""
    found = FileRules(otherwise="han serves calls on several nodes, and tuned those on one")
    if release_of(library)[:1] not in ((), *((int(one),) for one in han.SUPPORTED_MAJOR_VERSIONS)):
        found.report(1, f"{title_of(library)} has another form of this file, or asks tuned first")
        return found
    for level in han.parse_levels(text, found.report):
        if level.name != han.TOPOLOGY_LEVEL:
            found.report(level.line, f"not explained: {level.name} is for communicators inside han")
            continue
        if level.collective not in [str(one) for one, own in COLLECTIVES.items() if own.is_in_han]:
            found.report(level.line, f"han has no {level.collective}: these rules have no effect")
        for ranks, rows in reversed(level.entries):
            several = {ONE_NODE: NO, RANKS: ((ranks, INF),)}
            for row in reversed(rows):
                box = {**several, BLOCK_BYTES: ((row.first, INF),)}
                runs = f"component {row.component}"
                found.rules.append(FileRule(row.line, level.collective, box, runs))
    return found


def _sizes(name: str, sizes: Ranges) -> Box:
    """Return the sizes of messages as Open MPI counts them (coll_tuned_decision_dynamic.c)."""
    known = Collective(name) if name in list(Collective) else None
    if known is None or (known.has_data and not known.is_ragged):
        return {BYTES: sizes}
    if known.states_all_lengths:
        return {BLOCK_BYTES: sizes}
    return {BYTES: ((0, INF),) if both(sizes, ((0, 0),)) else ()}  # it counts 0 in every call


def _choice(collective: Collective | None, row: RuleLine) -> AlgorithmChoice:
    if collective and row.algorithm < len(COLLECTIVES[collective].algorithms):
        return row.to_choice(collective)
    return AlgorithmChoice(f"algorithm {row.algorithm}") if row.algorithm else AlgorithmChoice()


def _add(
    found: FileRules,
    name: str,
    box: Box,
    choice: AlgorithmChoice,
    place: tuple[int, int | str, str],
) -> None:
    """Add a rule, and report what is dangerous about it.

    place   its line, the library's number of the algorithm, and where it is besides its line
    """
    line, number, path = place
    known = Collective(name) if name in COLLECTIVES else None
    told = humanize(str(choice))
    runs = told if str(choice).startswith("algorithm ") else f"{told}, algorithm {number}"
    runs = "" if choice.is_default else runs
    found.rules.append(FileRule(line, name, box, runs, choice if known else None, path))
    if known is None or not all(box.values()):
        return
    if not preserves_operand_order(known, choice):
        found.report(
            line,
            f"{choice.algorithm} is for commutative operators: with another one Open MPI gives"
            " wrong results or runs a slower algorithm",
        )
    if choice.algorithm in COLLECTIVES[known].wrong_in_place:
        found.report(line, f"{choice.algorithm} gives wrong results for calls in place")
    several = both(box[RANKS], ((2, INF),))
    bounds = sorted({n for low, high in several for n in (low, min(low + 1, high))})
    reasons = (unsupported_reason(known, choice, int(n)) for n in bounds)
    if reason := next(filter(None, reasons), ""):
        found.report(line, f"{reason}: such calls fail")


def _warn_of_split(found: FileRules, name: str, rows: Iterable[tuple[int, int | str]]) -> None:
    """Report rules by size of a collective whose ranks may see different sizes."""
    told = list(rows)
    if name in PROFILES[OPENMPI].unsplittable and len({number for _, number in told}) > 1:
        found.report(
            told[0][0],
            f"rules for {name} that depend on the size make programs hang, whose ranks may see"
            " different sizes: use one algorithm for all sizes",
        )
