"""The rules file of `han`, which comes before `tuned` on several nodes in Open MPI 5.x.

`han` takes a call on several nodes before `tuned`, whose rules then never see it. Without `han`
(`--mca coll ^han`) they do, but then a call that a table leaves to the library would not get the
library default either. So a second file tells `han` which calls to hand on to `tuned`; it keeps the
rest. The file lists collectives; for each the levels of the topology (here only the whole
communicator), ascending numbers of ranks, and ascending bytes with the component. All of them are
lower bounds, and the first of each is the minimum (coll_han_dynamic_file.h). A file with an error
is dropped without a message.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, NoReturn

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import Rule, RuleKey, TuningTable
from tuner.formats.file_rules import Report
from tuner.formats.openmpi.rules import min_decided_bytes
from tuner.formats.rules_by_ranks import boundary_sizes, neighbours, rules_by_rank_count
from tuner.mpi_libraries.openmpi_collectives import COLLECTIVE_OF, COLLECTIVES, OTHER_COLLECTIVES

HAN, TUNED = COMPONENTS = ("han", "tuned")
OTHER_COMPONENTS = ("self", "basic", "libnbc", "sm", "adapt")  # that a user's file may name
INTRA_NODE, INTER_NODE, TOPOLOGY_LEVEL = LEVELS = (
    "intra_node",
    "inter_node",
    "global_communicator",
)
# Major versions in which `han` comes first and knows components by name.
SUPPORTED_MAJOR_VERSIONS = ("5",)
ComponentsBySize = tuple[tuple[int, str], ...]
HanRules = Mapping[Collective, tuple[tuple[int, ComponentsBySize], ...]]
_NAMES = {str(number): str(name) for number, name in {**COLLECTIVE_OF, **OTHER_COLLECTIVES}.items()}
_NAMES |= {name: name for name in _NAMES.values()}


class Row(NamedTuple):
    """The component for calls from a number of bytes on, and its line."""

    first: int
    component: str
    line: int


class Level(NamedTuple):
    """The rules of one collective at one level of the topology, by numbers of ranks.

    line    the line that names the level
    """

    collective: str
    name: str
    line: int
    entries: tuple[tuple[int, tuple[Row, ...]], ...]


def is_needed(table: TuningTable) -> bool:
    """Return whether rules of this table take effect only with this file.

    They do where some are for several nodes, in a version in which `han` comes first.
    """
    version = table.library.partition(" ")[2].partition(".")[0]
    return version in SUPPORTED_MAJOR_VERSIONS and any(map(_is_taken, table.keys))


def _is_taken(key: RuleKey) -> bool:
    """Return whether `han` takes such calls before `tuned`."""
    known = COLLECTIVES.get(key.collective)
    return key.nodes > 1 and known is not None and known.is_in_han


def emit(table: TuningTable, *, commutative_only: bool = False) -> str:
    """Return the file of a table.

    Raises InputError for another version of Open MPI, and where there are no rules for several
    nodes.
    """
    version = table.library.partition(" ")[2]
    if version.partition(".")[0] not in SUPPORTED_MAJOR_VERSIONS:
        raise InputError(
            f"{table.library}: this file is for Open MPI {', '.join(SUPPORTED_MAJOR_VERSIONS)}"
        )
    found = {
        collective: tuple(_with_default_lines(collective, sizes))
        for collective, sizes in _multi_node_rules(table, commutative_only).items()
    }
    if not found:
        raise InputError("the table has no rules for several nodes: han leaves one node to tuned")
    text = render(found)
    differences = check(table, text, commutative_only=commutative_only)
    if differences:
        raise InputError(f"han's file would not say what the table says: {differences[0]}")
    return text


def _multi_node_rules(
    table: TuningTable, commutative_only: bool
) -> dict[Collective, dict[int, tuple[Rule, ...]]]:
    """Return the rules for the numbers of ranks that the table has on several nodes."""
    spread = {(key.collective, key.p) for key in table.keys if _is_taken(key)}
    found = rules_by_rank_count(table, "commutative" if commutative_only else "any")
    kept = {
        name: {p: rule_list for p, rule_list in sizes.items() if (name, p) in spread}
        for name, sizes in found.items()
    }
    return {name: sizes for name, sizes in kept.items() if sizes}


def _with_default_lines(
    collective: Collective, rule_lists: Mapping[int, tuple[Rule, ...]]
) -> Iterator[tuple[int, ComponentsBySize]]:
    yield 1, ((0, HAN),)
    for p, rule_list in rule_lists.items():
        rows: list[tuple[int, str]] = [(0, HAN)]
        for rule in rule_list:
            first = -(-min_decided_bytes(rule) // _compared_bytes_factor(collective, p))
            rows = [*(row for row in rows if row[0] < first), (first, _component(rule))]
        told = [one for before, one in pairwise([(0, ""), *rows]) if before[1] != one[1]]
        yield p, tuple(told)
        if p + 1 not in rule_lists:
            yield p + 1, ((0, HAN),)


def _component(rule: Rule | None) -> str:
    return HAN if rule is None or rule.choice.is_default else TUNED


def _compared_bytes_factor(collective: Collective, p: int) -> int:
    """Return how often the bytes that `han` counts are in the whole buffer, as `tuned` counts."""
    return p if collective.moves_blocks else 1


def render(rules: HanRules) -> str:
    """Return the text of the file, one entry per line."""
    lines = [f"{len(rules)} # collectives"]
    for collective, entries in rules.items():
        lines += [f"{COLLECTIVES[collective].number} # {collective}", "1 # level", TOPOLOGY_LEVEL]
        lines.append(f"{len(entries)} # communicator sizes")
        for ranks, rows in entries:
            lines += [f"{ranks} # ranks", f"{len(rows)} # message sizes"]
            lines += [f"{size} {component}" for size, component in rows]
    return "\n".join(lines) + "\n"


def parse(text: str) -> HanRules:
    """Return the rules in a file for tables; raises InputError naming the line that has others."""
    found: dict[Collective, tuple[tuple[int, ComponentsBySize], ...]] = {}
    for level in parse_levels(text):
        if level.name != TOPOLOGY_LEVEL or level.collective not in COLLECTIVES:
            _refuse(level.line, f"only the level {TOPOLOGY_LEVEL} is known here")
        found[Collective(level.collective)] = tuple(
            (ranks, tuple((row.first, row.component) for row in rows))
            for ranks, rows in level.entries
        )
    return found


def _refuse(line: int, text: str) -> NoReturn:
    raise InputError(f"han's file, line {line}: {text}")


def parse_levels(text: str, report: Report = _refuse) -> list[Level]:
    """Return all rules in a file; raises InputError naming the line that the library refuses.

    report      takes sizes that do not ascend, and components that no file of a table has
    """
    lines = ((n, line.partition("#")[0].split()) for n, line in enumerate(text.split("\n"), 1))
    reader, found = _Reader(((n, words) for n, words in lines if words), report), list[Level]()
    for _ in range(reader.parse_number(1, len(_NAMES))):
        collective = _NAMES.get(reader.words(1)[0], "")
        if not collective or collective in (level.collective for level in found):
            raise reader.error(f"collective {reader.told} is listed twice or unknown")
        for _ in range(reader.parse_number(1, len(LEVELS))):
            name = reader.words(1)[0]
            name = LEVELS[int(name)] if name in ("0", "1", "2") else name
            if name not in LEVELS:
                raise reader.error(f"{shortened_repr(name)} is none of {', '.join(LEVELS)}")
            found.append(Level(collective, name, reader.line, tuple(reader.entries())))
    reader.require_end()
    return found


class _Reader:
    """A line reader that raises InputError where lines and the counts before them disagree."""

    def __init__(self, lines: Iterator[tuple[int, list[str]]], report: Report) -> None:
        self._lines = list(lines)
        self.line, self.told, self._report = 0, "", report

    def error(self, what: str) -> InputError:
        return InputError(f"han's file, line {self.line}: {what}")

    def words(self, count: int) -> list[str]:
        if not self._lines:
            raise self.error("it is truncated")
        self.line, words = self._lines.pop(0)
        self.told = " ".join(words)
        if len(words) != count:
            raise self.error(f"{shortened_repr(self.told)} are not {count} words")
        return words

    def parse_number(self, least: int, most: int = 2**31 - 1, word: str = "") -> int:
        text = word or self.words(1)[0]
        if not text.isascii() or not text.isdigit() or len(text) > 19 or str(int(text)) != text:
            raise self.error(f"{shortened_repr(text)} is not a plain decimal number")
        if not least <= int(text) <= most:
            raise self.error(f"{text} should be from {least} to {most}")
        return int(text)

    def entries(self) -> Iterator[tuple[int, tuple[Row, ...]]]:
        before = 0
        for _ in range(self.parse_number(1)):
            ranks = self._ascending(before + 1, 2**31 - 1 if before else 1)
            yield ranks, tuple(self._rows())
            before = ranks

    def _ascending(self, least: int, most: int, word: str = "") -> int:
        number = self.parse_number(min(least, 1), most, word)
        if number < least:
            self._report(self.line, f"{number} should be from {least} to {most}")
        return number

    def _rows(self) -> Iterator[Row]:
        before = -1
        for _ in range(self.parse_number(1)):
            size, component = self.words(2)
            number = self._ascending(before + 1, 2**63 - 1 if before >= 0 else 0, size)
            if component not in (*COMPONENTS, *OTHER_COMPONENTS):
                raise self.error(f"{shortened_repr(component)} is none of {', '.join(COMPONENTS)}")
            yield Row(number, component, self.line)
            before = number

    def require_end(self) -> None:
        if self._lines:
            self.line = self._lines[0][0]
            raise self.error("this is beyond the counted rules")


def decide(rules: HanRules, collective: Collective, p: int, nbytes: int) -> str:
    """Return the component that serves a call of `nbytes` of the whole buffer on several nodes."""
    entries = rules.get(collective)
    if not entries:
        return HAN
    rows = entries[bisect.bisect_right([ranks for ranks, _ in entries], p) - 1][1]
    size = nbytes // _compared_bytes_factor(collective, p)
    return rows[bisect.bisect_right([first for first, _ in rows], size) - 1][1]


def check(table: TuningTable, text: str, *, commutative_only: bool = False) -> list[str]:
    """Return one sentence for every call on several nodes that the wrong component would serve.

    Each bound and one byte beside it are checked, rounded to multiples of the ranks where `han`
    counts bytes per rank. Raises InputError when the library would not accept the file.
    """
    rules, rule_lists_of = parse(text), _multi_node_rules(table, commutative_only)
    differences = list[str]()
    for collective in sorted({*rules, *rule_lists_of}):
        rule_lists, entries = rule_lists_of.get(collective, {}), rules.get(collective, ())
        for p in neighbours({*rule_lists, *(ranks for ranks, _ in entries)}, minimum=1):
            differences += _differences(rules, collective, p, rule_lists.get(p, ()))
    return differences


def _differences(
    rules: HanRules, collective: Collective, p: int, rule_list: Sequence[Rule]
) -> Iterator[str]:
    scale = _compared_bytes_factor(collective, p)
    edges = {first * scale for _, rows in rules.get(collective, ()) for first, _ in rows}
    near = {
        m
        for n in boundary_sizes(rule_list, edges)
        for m in (n // scale * scale, -(-n // scale) * scale)
    }
    for nbytes in sorted(near):
        wanted = _component(
            next((r for r in rule_list if min_decided_bytes(r) <= nbytes < r.stop_bytes), None)
        )
        found = decide(rules, collective, p, nbytes)
        if found != wanted:
            yield f"{collective} of {nbytes} bytes on {p} ranks: {found} answers, not {wanted}"
