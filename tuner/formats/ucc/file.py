"""`ucc.conf`: sections of variables for teams of a shape, read as UCC reads them.

A section such as `[team_size=16 ppn=8 nnodes=2]` applies to teams that meet all its conditions;
where several apply, which one wins is undefined. Its TUNE string replaces the one outside all
sections, and an environment variable replaces either (ucc_parser.c, ini.c and ini.h of UCC 1.8).
UCC drops a file with a malformed line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.formats import strict_parsing
from tuner.formats.file_rules import NODES, PPN, RANKS, FileRule, FileRules, Ranges, both
from tuner.formats.ucc.tune_strings import IntRange, TuneToken, parse_tune

TUNE_VARIABLE = "UCC_TL_UCP_TUNE"
RANGE_CONDITIONS = ("team_size", "ppn", "sock", "nnodes")  # inclusive
CONDITION_QUANTITIES = {"team_size": RANKS, "ppn": PPN, "nnodes": NODES}
CPU_CONDITIONS = ("vendor", "model")
MAX_LINE_BYTES = 8189  # UCC breaks longer lines in two
MAX_SECTION_NAME_LENGTH = 127
MAX_SECTIONS = 1000
MAX_COUNT = 10**9 - 1  # largest number of ranks or nodes
_RANGE = re.compile(rf"({strict_parsing.INTEGER_PATTERN})(?:-({strict_parsing.INTEGER_PATTERN}))?")
_EXPORTED = re.compile(
    r"""(?m)^[ \t]*(?:export[ \t]+(\w+)=|setenv[ \t]+(\w+)[ \t]+)(['"]?)(.*)\3[ \t]*$"""
)
_NAME = re.compile(r"(\w+_)?UCC_\w+", re.ASCII)


@dataclass(frozen=True)
class Team:
    """The shape of a team: `ppn` ranks on each of `nodes` nodes."""

    nodes: int
    ppn: int

    @property
    def p(self) -> int:
        return self.nodes * self.ppn


@dataclass(frozen=True)
class Section:
    """The variables that apply to some teams.

    ranges      inclusive ranges by condition, of RANGE_CONDITIONS
    cpus        conditions on the processor, of CPU_CONDITIONS; the file alone does not tell whether
                they are met
    variables   values by name
    tune_tokens parsed TUNE string
    lines       line of each variable
    """

    ranges: Mapping[str, IntRange]
    cpus: Mapping[str, str]
    variables: Mapping[str, str]
    tune_tokens: tuple[TuneToken, ...]
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)

    def matches(self, team: Team) -> bool:
        """Return whether it applies to this team, if the processor conditions are met."""
        told = {"team_size": team.p, "ppn": team.ppn, "nnodes": team.nodes}
        return all(
            first <= told[name] <= last
            for name, (first, last) in self.ranges.items()
            if name in told
        )

    def overlaps(self, other: Section) -> bool:
        """Return whether both sections may apply to one team."""
        for name in self.ranges.keys() & other.ranges.keys():
            (a, b), (c, d) = self.ranges[name], other.ranges[name]
            if a > d or c > b:
                return False
        return all(self.cpus[n] == other.cpus[n] for n in self.cpus.keys() & other.cpus.keys())


@dataclass(frozen=True)
class UccConfig:
    """The content of a file: the variables outside all sections, and the sections."""

    default_section: Section
    sections: tuple[Section, ...]


def decide(
    conf: UccConfig, collective: Collective, team: Team, memory: str, nbytes: int
) -> AlgorithmChoice:
    """Return the choice that `tl/ucp` is given for a call of `nbytes` of the whole buffer."""
    found = (s for s in conf.sections if TUNE_VARIABLE in s.variables and s.matches(team))
    section = next(found, conf.default_section)
    for token in section.tune_tokens:
        if token.collective is collective and token.matches(team.p, memory, nbytes):
            return AlgorithmChoice(token.algorithm)
    return AlgorithmChoice()


def parse(text: str) -> UccConfig:
    """Return the content of a file; raises InputError naming the line."""
    found: dict[str, dict[str, str]] = {"": {}}
    lines: dict[str, dict[str, int]] = {"": {}}
    named = ""
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            head = _parse_section_name(line)
            if head is not None:
                named = head
                found.setdefault(named, {})
                lines.setdefault(named, {})
            elif line.strip() and line.strip()[0] not in "#;":
                name, value = _parse_variable(line)
                if name in found[named]:
                    raise InputError(f"{name} is listed twice in its section")
                found[named][name], lines[named][name] = value, number
        except InputError as reason:
            raise InputError(f"ucc.conf, line {number}: {reason}") from None
        if len(found) > MAX_SECTIONS:
            raise InputError(f"ucc.conf: more than {MAX_SECTIONS} sections")
    sections = [_parse_section(name, found[name], lines[name]) for name in found]
    _require_distinct(sections[1:])
    return UccConfig(sections[0], tuple(sections[1:]))


def read(text: str, _library: str) -> FileRules:
    """Return the rules of a user's file; a section's TUNE string replaces that outside all."""
    conf, found = parse(_EXPORTED.sub(r"\1\2=\4", text)), FileRules(otherwise="UCC decides")
    for section in (*conf.sections, conf.default_section):
        box: dict[str, Ranges] = {
            quantity: (section.ranges[name],)
            for name, quantity in CONDITION_QUANTITIES.items()
            if name in section.ranges
        }
        for name, line in section.lines.items():
            if name != TUNE_VARIABLE:
                found.report(line, f"{name} is not explained: only {TUNE_VARIABLE} is")
            elif section.cpus or "sock" in section.ranges:
                found.report(
                    line, "the section is in force only on its processor, which is not asked about"
                )
        line = section.lines.get(TUNE_VARIABLE, 0)
        for token in section.tune_tokens:
            own = {**box, **token.box}
            own |= {RANKS: both(token.box[RANKS], box[RANKS])} if RANKS in box else {}
            choice = AlgorithmChoice(token.algorithm)
            runs = f"{choice}, of tl/ucp"
            found.rules.append(FileRule(line, token.collective, own, runs, choice))
        if line and section is not conf.default_section:
            names = {token.collective for token in conf.default_section.tune_tokens}
            found.rules += [FileRule(line, one, box, "", is_written=False) for one in names]
    return found


def _parse_section_name(line: str) -> str | None:
    if strict_parsing.encoded_length(line) > MAX_LINE_BYTES:
        raise InputError(f"longer than {MAX_LINE_BYTES} bytes: UCC would break it in two")
    if not line.startswith("["):
        return None
    name, bracket, rest = line[1:].partition("]")
    if not bracket or rest.strip() or not name.strip() or len(name) > MAX_SECTION_NAME_LENGTH:
        raise InputError(
            f"{shortened_repr(line)} is not a section of at most {MAX_SECTION_NAME_LENGTH} letters"
        )
    return name


def _parse_variable(line: str) -> tuple[str, str]:
    name, sign, value = line.partition("=")
    if line[0].isspace() or not sign or not _NAME.fullmatch(name.rstrip()):
        raise InputError(f"{shortened_repr(line)} is not a UCC_NAME=VALUE from the first column on")
    if re.search(r"\s;", value) or not value.strip():
        raise InputError(
            f"{shortened_repr(line)}: UCC takes what follows ; for a comment, and no value"
        )
    return name.rstrip(), value.strip()


def _parse_section(name: str, variables: Mapping[str, str], lines: Mapping[str, int]) -> Section:
    limits, cpus = dict[str, IntRange](), dict[str, str]()
    try:
        for word in name.split(" "):
            if word:
                _parse_condition(word, limits, cpus)
        tune = parse_tune(variables[TUNE_VARIABLE]) if TUNE_VARIABLE in variables else ()
    except InputError as reason:
        raise InputError(f"ucc.conf, section [{name}]: {reason}") from None
    return Section(limits, cpus, dict(variables), tune, lines)


def _parse_condition(word: str, limits: dict[str, IntRange], cpus: dict[str, str]) -> None:
    key, _, value = word.partition("=")
    span = _RANGE.fullmatch(value)
    if key in limits or key in cpus:
        raise InputError(f"{key} is listed twice")
    if key in CPU_CONDITIONS and value:
        cpus[key] = value
    elif key in RANGE_CONDITIONS and span and int(span[2] or span[1]) <= MAX_COUNT:
        limits[key] = (int(span[1]), int(span[2] or span[1]))
    else:
        raise InputError(
            f"{shortened_repr(word)} is not a condition: {', '.join(RANGE_CONDITIONS)} take A or"
            f" A-B, {' and '.join(CPU_CONDITIONS)} a name"
        )


def _require_distinct(sections: Sequence[Section]) -> None:
    for one, other in _tuned_pairs(sections):
        if one.overlaps(other):
            raise InputError(
                f"ucc.conf: sections {dict(one.ranges)} and {dict(other.ranges)} are for the same"
                " teams: which of them UCC takes is left to chance"
            )


def _tuned_pairs(sections: Sequence[Section]) -> Iterator[tuple[Section, Section]]:
    return combinations([section for section in sections if TUNE_VARIABLE in section.variables], 2)
