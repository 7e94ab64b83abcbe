"""`ucc.conf`: sections of variables for teams of a shape, read as UCC reads them.

A section such as `[team_size=16 ppn=8 nnodes=2]` holds for teams that meet all of it; where several
do, which of them wins is left to chance. Its TUNE string replaces the one outside all sections, and
an environment variable replaces either (ucc_parser.c, ini.c and ini.h of UCC 1.8). A line that is
in error makes UCC drop the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tuner.base.errors import InputError, quoted
from tuner.core.collective import Collective
from tuner.core.table import Choice
from tuner.formats import strict_parsing
from tuner.formats.ucc.tune import Span, Token, parse_tune

TUNE = "UCC_TL_UCP_TUNE"
RANGES = ("team_size", "ppn", "sock", "nnodes")  # inclusive
CPUS = ("vendor", "model")
LONGEST = 8189  # bytes of a line; longer ones are broken in two
LONGEST_SECTION = 127
MOST_SECTIONS = 1000
LARGEST = 10**9 - 1  # of a number of ranks or nodes
_RANGE = re.compile(rf"({strict_parsing.NUMBER})(?:-({strict_parsing.NUMBER}))?")
_NAME = re.compile(r"(\w+_)?UCC_\w+", re.ASCII)


@dataclass(frozen=True)
class Team:
    """The ranks of a call: so many on each of `nodes` nodes."""

    nodes: int
    ppn: int

    @property
    def p(self) -> int:
        """All of them."""
        return self.nodes * self.ppn


@dataclass(frozen=True)
class Section:
    """What holds for some teams.

    limits      inclusive ranges by name, of RANGES
    cpus        conditions on the processor, of CPUS: whether they hold the file does not tell
    """

    limits: Mapping[str, Span]
    cpus: Mapping[str, str]
    variables: Mapping[str, str]
    tune: tuple[Token, ...]

    def holds(self, team: Team) -> bool:
        """Whether it is for such a team on the right processor."""
        told = {"team_size": team.p, "ppn": team.ppn, "nnodes": team.nodes}
        return all(
            first <= told[name] <= last
            for name, (first, last) in self.limits.items()
            if name in told
        )

    def meets(self, other: Section) -> bool:
        """Whether both may be for one team."""
        for name in self.limits.keys() & other.limits.keys():
            (a, b), (c, d) = self.limits[name], other.limits[name]
            if a > d or c > b:
                return False
        return all(self.cpus[n] == other.cpus[n] for n in self.cpus.keys() & other.cpus.keys())


@dataclass(frozen=True)
class Conf:
    """A file: what holds for every team that no section is for, and the sections."""

    everywhere: Section
    sections: tuple[Section, ...]


def decide(conf: Conf, collective: Collective, team: Team, memory: str, nbytes: int) -> Choice:
    """What `tl/ucp` is told for a call of `nbytes` of the whole buffer."""
    found = (s for s in conf.sections if TUNE in s.variables and s.holds(team))
    section = next(found, conf.everywhere)
    for token in section.tune:
        if token.collective is collective and token.fits(team.p, memory, nbytes):
            return Choice(token.algorithm)
    return Choice()


def parse(text: str) -> Conf:
    """The content of a file; raises InputError naming the line."""
    found: dict[str, dict[str, str]] = {"": {}}
    named = ""
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            head = _section_name(line)
            if head is not None:
                named = head
                found.setdefault(named, {})
            elif line.strip() and line.strip()[0] not in "#;":
                name, value = _variable(line)
                if name in found[named]:
                    raise InputError(f"{name} is listed twice in its section")
                found[named][name] = value
        except InputError as reason:
            raise InputError(f"ucc.conf, line {number}: {reason}") from None
        if len(found) > MOST_SECTIONS:
            raise InputError(f"ucc.conf: more than {MOST_SECTIONS} sections")
    sections = [_section(name, variables) for name, variables in found.items()]
    _require_distinct(sections[1:])
    return Conf(sections[0], tuple(sections[1:]))


def _section_name(line: str) -> str | None:
    if strict_parsing.length(line) > LONGEST:
        raise InputError(f"longer than {LONGEST} bytes: UCC would break it in two")
    if not line.startswith("["):
        return None
    name, bracket, rest = line[1:].partition("]")
    if not bracket or rest.strip() or not name.strip() or len(name) > LONGEST_SECTION:
        raise InputError(f"{quoted(line)} is no section of at most {LONGEST_SECTION} letters")
    return name


def _variable(line: str) -> tuple[str, str]:
    name, sign, value = line.partition("=")
    if line[0].isspace() or not sign or not _NAME.fullmatch(name.rstrip()):
        raise InputError(f"{quoted(line)} is no UCC_NAME=VALUE from the first column on")
    if re.search(r"\s;", value) or not value.strip():
        raise InputError(f"{quoted(line)}: UCC takes what follows ; for a comment, and no value")
    return name.rstrip(), value.strip()


def _section(name: str, variables: Mapping[str, str]) -> Section:
    limits, cpus = dict[str, Span](), dict[str, str]()
    try:
        for word in name.split(" "):
            if word:
                _condition(word, limits, cpus)
        tune = parse_tune(variables[TUNE]) if TUNE in variables else ()
    except InputError as reason:
        raise InputError(f"ucc.conf, section [{name}]: {reason}") from None
    return Section(limits, cpus, dict(variables), tune)


def _condition(word: str, limits: dict[str, Span], cpus: dict[str, str]) -> None:
    key, _, value = word.partition("=")
    span = _RANGE.fullmatch(value)
    if key in limits or key in cpus:
        raise InputError(f"{key} is listed twice")
    if key in CPUS and value:
        cpus[key] = value
    elif key in RANGES and span and int(span[2] or span[1]) <= LARGEST:
        limits[key] = (int(span[1]), int(span[2] or span[1]))
    else:
        raise InputError(
            f"{quoted(word)} is no condition: {', '.join(RANGES)} take A or A-B,"
            f" {' and '.join(CPUS)} a name"
        )


def _require_distinct(sections: Sequence[Section]) -> None:
    for one, other in _pairs(sections):
        if one.meets(other):
            raise InputError(
                f"ucc.conf: sections {dict(one.limits)} and {dict(other.limits)} are for the same"
                " teams: which of them UCC takes is left to chance"
            )


def _pairs(sections: Sequence[Section]) -> Iterator[tuple[Section, Section]]:
    return combinations([section for section in sections if TUNE in section.variables], 2)
