"""Rules as environment variables, one per collective: what Intel MPI and MVAPICH2 have in common.

A value is a list of entries, each an algorithm number with the sizes that it is for. Both libraries
look at the upper bounds alone: the first entry whose bound is not below the message size applies,
and the last entry takes all larger sizes. They know neither the number of ranks nor the operator,
so a file is for one number of ranks. No number stands for the library default either. Where a
table leaves all sizes of a collective to the library, the file unsets the variable, which another
file may have set; a default rule beside other rules needs a fallback algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, TuningTable
from tuner.formats import shell_exports
from tuner.formats.file_rules import BLOCK_BYTES, BYTES, INF, FileRule, FileRules
from tuner.formats.rules_by_ranks import (
    boundary_sizes,
    describe_default,
    describe_rule,
    rules_by_rank_count,
)

MAX_BOUND_BYTES = 2**31 - 1  # largest bound in bytes; the libraries keep it in an int


@dataclass(frozen=True)
class EnvEntry:
    """The algorithm number for calls of up to `max_bytes` that no earlier entry took.

    max_bytes    None for no upper bound
    """

    number: int
    max_bytes: int | None = None


EnvRules = Mapping[Collective, tuple[EnvEntry, ...]]


@dataclass(frozen=True)
class EnvDialect:
    """The variables of one library and the syntax of their values.

    library                 its name in messages
    variable_names          the variable of each collective
    per_rank_collectives    collectives whose sizes are those that one rank sends or receives
    number_of               returns the number of an algorithm choice; raises InputError
    choice_of               returns the algorithm choice of a number
    format_value            returns the value for a list of entries
    parse_value             returns the entries of a value as the library takes them, given its
                            collective and what takes sentences on bounds that do not count; raises
                            InputError for what the library misreads
    """

    library: str
    variable_names: Mapping[Collective, str]
    per_rank_collectives: tuple[Collective, ...]
    number_of: Callable[[Collective, AlgorithmChoice], int]
    choice_of: Callable[[Collective, int], AlgorithmChoice]
    format_value: Callable[[Sequence[EnvEntry]], str]
    parse_value: Callable[[Collective, str, Callable[[str], None]], tuple[EnvEntry, ...]]

    def decide(
        self, rule_lists: EnvRules, collective: Collective, p: int, nbytes: int
    ) -> AlgorithmChoice:
        """Return the choice that the variables name for a call of `nbytes` of the whole buffer.

        The answer is the library default where no variable is set for the collective.
        """
        size = nbytes // self.compared_bytes_factor(collective, p)
        for entry in rule_lists.get(collective, ()):
            if entry.max_bytes is None or size <= entry.max_bytes:
                return self.choice_of(collective, entry.number)
        return AlgorithmChoice()

    def compared_bytes_factor(self, collective: Collective, p: int) -> int:
        """Return the bytes of the whole buffer per byte that the library compares."""
        return p if collective in self.per_rank_collectives else 1

    def parse(self, text: str) -> EnvRules:
        """Return the entries of each collective in a file of variables.

        Raises InputError naming what the library would misread.
        """
        try:
            variables = shell_exports.parse(text)
            found = dict(
                self._parse_variable(name, value, _refuse) for name, value in variables.items()
            )
        except InputError as reason:
            raise InputError(f"{self.library} variables: {reason}") from None
        return {collective: entries for collective, entries in found.items() if entries}

    def read(self, text: str, _library: str) -> FileRules:
        """Return the rules of variables that a user sets, each with its line.

        Raises InputError naming what the library would misread.
        """
        found = FileRules(otherwise=f"{self.library} decides")
        for line, name, value in shell_exports.last_assignments(text, found.report):
            if name in self.variable_names.values():
                self._add_rules(found, line, name, value)
            else:
                found.report(line, f"{name} is not explained: only variables of rules are")
        return found

    def _add_rules(self, found: FileRules, line: int, name: str, value: str | None) -> None:
        def report(text: str) -> None:
            found.report(line, f"{name}: {text}")

        try:
            collective, entries = self._parse_variable(name, value, report)
        except InputError as reason:
            raise InputError(f"line {line}: {reason}") from None
        unit = BLOCK_BYTES if collective in self.per_rank_collectives else BYTES
        first: float = 0
        for entry in entries:
            last = INF if entry.max_bytes is None else entry.max_bytes
            choice = self.choice_of(collective, entry.number)
            runs = f"{choice}, number {entry.number}"
            box = {unit: ((first, last),) * (first <= last)}
            found.rules.append(FileRule(line, collective, box, runs, choice))
            first = max(first, last + 1)

    def _parse_variable(
        self, name: str, value: str | None, report: Callable[[str], None]
    ) -> tuple[Collective, tuple[EnvEntry, ...]]:
        """Return the collective and the entries of a variable; no entries where it is unset."""
        collective = next((c for c, known in self.variable_names.items() if known == name), None)
        if collective is None:
            raise InputError(f"{name} is none of {', '.join(self.variable_names.values())}")
        try:
            return collective, () if value is None else self.parse_value(collective, value, report)
        except InputError as reason:
            raise InputError(f"{name}: {reason}") from None

    def emit(
        self,
        table: TuningTable,
        ranks: int | None = None,
        *,
        fallback: AlgorithmChoice | None = None,
        commutative_only: bool = False,
    ) -> str:
        """Return the variables for communicators of `ranks` ranks.

        ranks       None where the table has only one number of ranks
        fallback    runs where a rule list with other rules leaves calls to the library default

        Raises InputError when a rule cannot be expressed, and for a number of ranks that the table
        does not have.
        """
        rule_lists = _rule_lists(table, ranks, commutative_only)
        variables = dict[str, str | None]()
        for collective, rule_list in rule_lists.items():
            if not all(rule.choice.is_default for rule in rule_list):
                entries = tuple(self._entries(rule_list, fallback))
                variables[self.variable_names[collective]] = self.format_value(entries)
        variables |= {name: None for name in self.variable_names.values() if name not in variables}
        p = next(iter(rule_lists.values()))[0].key.p
        held = f"rules for communicators of {p} ranks, in force for those of any size"
        text = shell_exports.render(variables, f"{table.library}: {held}")
        differences = self.check(
            table, text, ranks, fallback=fallback, commutative_only=commutative_only
        )
        if differences:
            raise InputError(f"the variables would not say what the table says: {differences[0]}")
        return text

    def fallback_rule_count(
        self, table: TuningTable, ranks: int | None = None, *, commutative_only: bool = False
    ) -> int:
        """Return how many default rules for `ranks` ranks the fallback algorithm replaces.

        Raises InputError as `emit` does.
        """
        rule_lists = _rule_lists(table, ranks, commutative_only).values()
        mixed = (own for own in rule_lists if not all(rule.choice.is_default for rule in own))
        return sum(rule.choice.is_default for rule_list in mixed for rule in rule_list)

    def _entries(
        self, rule_list: tuple[Rule, ...], fallback: AlgorithmChoice | None
    ) -> Iterator[EnvEntry]:
        """Yield an entry for each rule that some call falls under; the last one has no bound."""
        done = -1
        for rule in rule_list:
            number = self._algorithm_number(rule, fallback)
            if rule.stop_bytes == math.inf:
                yield EnvEntry(number)
                return
            # The last compared size whose whole buffer is below `hi`.
            last = (
                -(
                    -int(rule.stop_bytes)
                    // self.compared_bytes_factor(rule.key.collective, rule.key.p)
                )
                - 1
            )
            if last > MAX_BOUND_BYTES:
                raise InputError(
                    f"{describe_rule(rule)}: {self.library} takes bounds up to {MAX_BOUND_BYTES}"
                    " bytes"
                )
            if last > done:
                yield EnvEntry(number, last)
                done = last

    def _algorithm_number(self, rule: Rule, fallback: AlgorithmChoice | None) -> int:
        key, choice = rule.key, rule.choice
        if key.memory != "host":
            raise InputError(
                f"{describe_rule(rule)}: {self.library}'s variables cannot be limited to"
                f" {shortened_repr(key.memory)} memory"
            )
        if choice.is_default and fallback is None:
            raise InputError(
                f"{describe_rule(rule)}: beside other rules {self.library}'s own decision has no"
                " number: name a fallback (--fallback-algorithm NAME)"
            )
        try:
            stand_in = fallback if choice.is_default and fallback else choice
            return self.number_of(key.collective, stand_in)
        except InputError as reason:
            raise InputError(f"{describe_rule(rule)}: {reason}") from None

    def check(
        self,
        table: TuningTable,
        text: str,
        ranks: int | None = None,
        *,
        fallback: AlgorithmChoice | None = None,
        commutative_only: bool = False,
    ) -> list[str]:
        """Return one sentence for every call on `ranks` ranks that the file decides differently.

        Raises InputError when the library would misread the file.
        """
        found, differences = self.parse(text), list[str]()
        rule_lists = _rule_lists(table, ranks, commutative_only)
        p = next(iter(rule_lists.values()))[0].key.p
        for collective in self.variable_names:
            rule_list = rule_lists.get(collective, ())
            silent = all(rule.choice.is_default for rule in rule_list)
            stand_in = None if silent else fallback
            for nbytes in self._boundary_sizes(collective, p, rule_list, found.get(collective, ())):
                rule = next((r for r in rule_list if r.start_bytes <= nbytes < r.stop_bytes), None)
                wanted = stand_in or AlgorithmChoice()
                said = describe_default(stand_in, is_fallback_missing=not silent)
                if rule is not None and not rule.choice.is_default:
                    wanted, said = rule.choice, f"says {rule.choice}"
                decided = self.decide(found, collective, p, nbytes)
                if decided != wanted:
                    differences.append(
                        f"{collective} of {nbytes} bytes on {p} ranks: the table {said}; the"
                        f" variables say {decided}"
                    )
        return differences

    def _boundary_sizes(
        self,
        collective: Collective,
        p: int,
        rule_list: tuple[Rule, ...],
        entries: Sequence[EnvEntry],
    ) -> list[int]:
        """Return buffer sizes next to every bound, rounded to multiples of the compared factor."""
        scale = self.compared_bytes_factor(collective, p)
        edges = {(entry.max_bytes + 1) * scale for entry in entries if entry.max_bytes is not None}
        near = boundary_sizes(rule_list, edges)
        return sorted({m for n in near for m in (n // scale * scale, -(-n // scale) * scale)})


def _refuse(text: str) -> None:
    raise InputError(text)


def rank_counts(table: TuningTable) -> tuple[int, ...]:
    """Return the numbers of ranks in the table, ascending."""
    return tuple(sorted({key.p for key in table.keys}))


def _rule_lists(
    table: TuningTable, ranks: int | None, commutative_only: bool
) -> dict[Collective, tuple[Rule, ...]]:
    known = rank_counts(table)
    if ranks is None and len(known) != 1:
        raise InputError(
            f"the variables are for one number of ranks, and the table has {list(known)}: choose"
            " one (--ranks)"
        )
    p = known[0] if ranks is None else ranks
    found = rules_by_rank_count(table, "commutative" if commutative_only else "any")
    rule_lists = {name: sizes[p] for name, sizes in found.items() if p in sizes}
    if not rule_lists:
        raise InputError(f"the table has no rules for {p} ranks, but for {list(known)}")
    return rule_lists
