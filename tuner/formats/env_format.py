"""Ladders as environment variables, one per collective: what Intel MPI and MVAPICH2 have in common.

The value is a list of entries, a number with the sizes that it is for. Both libraries look at the
upper bounds alone: the first entry whose bound is not below the call counts, and the last one takes
all that is left. They know neither the number of ranks nor the operator, so a file is for one
number of ranks. Nor can they name the library's own decision: of a collective that the table leaves
to it altogether the file unsets the variable, which another file may have set; beside other rules
it needs a stand-in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmConfig, Rule, TuningTable
from tuner.formats import shell_exports
from tuner.formats.rules_by_ranks import (
    boundary_sizes,
    describe_default,
    describe_rule,
    rules_by_rank_count,
)

MAX_BOUND_BYTES = 2**31 - 1  # bytes of a bound; the libraries keep them in an int


@dataclass(frozen=True)
class EnvEntry:
    """Calls of up to `last` bytes, None without bound, that no earlier entry took."""

    number: int
    max_bytes: int | None = None


EnvRules = Mapping[Collective, tuple[EnvEntry, ...]]


@dataclass(frozen=True)
class EnvDialect:
    """How one library has it.

    library     as people call it
    names       the variable of each collective
    per_rank    collectives whose sizes are what one rank gives or gets
    number_of   the number of a choice; raises InputError
    choice_of   the choice of a number
    write       the value that says some entries
    read        the entries of a value, given its collective; raises InputError
    """

    library: str
    variable_names: Mapping[Collective, str]
    per_rank_collectives: tuple[Collective, ...]
    number_of: Callable[[Collective, AlgorithmConfig], int]
    config_of: Callable[[Collective, int], AlgorithmConfig]
    format_value: Callable[[Sequence[EnvEntry]], str]
    parse_value: Callable[[Collective, str], tuple[EnvEntry, ...]]

    def decide(
        self, rule_lists: EnvRules, collective: Collective, p: int, nbytes: int
    ) -> AlgorithmConfig:
        """What the library is told for a call of `nbytes` of the whole buffer; the default where
        no variable speaks of the collective."""
        size = nbytes // self.compared_bytes_factor(collective, p)
        for entry in rule_lists.get(collective, ()):
            if entry.max_bytes is None or size <= entry.max_bytes:
                return self.config_of(collective, entry.number)
        return AlgorithmConfig()

    def compared_bytes_factor(self, collective: Collective, p: int) -> int:
        """Bytes of the whole buffer for one byte that the library compares."""
        return p if collective in self.per_rank_collectives else 1

    def parse(self, text: str) -> EnvRules:
        """What a file of variables says; raises InputError naming what would be misread."""
        try:
            variables = shell_exports.parse(text)
            found = dict(self._parse_variable(name, value) for name, value in variables.items())
        except InputError as reason:
            raise InputError(f"{self.library} variables: {reason}") from None
        return {collective: entries for collective, entries in found.items() if entries}

    def _parse_variable(
        self, name: str, value: str | None
    ) -> tuple[Collective, tuple[EnvEntry, ...]]:
        """What a variable says, nothing where it is unset."""
        collective = next((c for c, known in self.variable_names.items() if known == name), None)
        if collective is None:
            raise InputError(f"{name} is none of {', '.join(self.variable_names.values())}")
        try:
            return collective, () if value is None else self.parse_value(collective, value)
        except InputError as reason:
            raise InputError(f"{name}: {reason}") from None

    def emit(
        self,
        table: TuningTable,
        ranks: int | None = None,
        *,
        fallback: AlgorithmConfig | None = None,
        commutative_only: bool = False,
    ) -> str:
        """The variables for communicators of `ranks` ranks; None: the only ones in the table.

        otherwise   what runs where a ladder with other rules leaves the choice to the library

        Raises InputError when a rule cannot be expressed, and for a number of ranks that the table
        does not know.
        """
        ladders = _rule_lists(table, ranks, commutative_only)
        variables = dict[str, str | None]()
        for collective, ladder in ladders.items():
            if not all(rule.choice.is_default for rule in ladder):
                entries = tuple(self._entries(ladder, fallback))
                variables[self.variable_names[collective]] = self.format_value(entries)
        variables |= {name: None for name in self.variable_names.values() if name not in variables}
        p = next(iter(ladders.values()))[0].key.p
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
        """How many rules for `ranks` ranks leave to the library what a stand-in decides in the
        variables. Raises InputError as `emit` does."""
        ladders = _rule_lists(table, ranks, commutative_only).values()
        mixed = (own for own in ladders if not all(rule.choice.is_default for rule in own))
        return sum(rule.choice.is_default for ladder in mixed for rule in ladder)

    def _entries(
        self, rule_list: tuple[Rule, ...], fallback: AlgorithmConfig | None
    ) -> Iterator[EnvEntry]:
        """One per rule that some call falls under, the last without bound."""
        done = -1
        for rule in rule_list:
            number = self._algorithm_number(rule, fallback)
            if rule.hi == math.inf:
                yield EnvEntry(number)
                return
            # The last size below `hi` that is a whole number of compared bytes.
            last = (
                -(-int(rule.hi) // self.compared_bytes_factor(rule.key.collective, rule.key.p)) - 1
            )
            if last > MAX_BOUND_BYTES:
                raise InputError(
                    f"{describe_rule(rule)}: {self.library} takes bounds up to {MAX_BOUND_BYTES}"
                    " bytes"
                )
            if last > done:
                yield EnvEntry(number, last)
                done = last

    def _algorithm_number(self, rule: Rule, fallback: AlgorithmConfig | None) -> int:
        key, choice = rule.key, rule.choice
        if key.memory != "host":
            raise InputError(
                f"{describe_rule(rule)}: {self.library}'s variables cannot be limited to"
                f" {shortened_repr(key.memory)} memory"
            )
        if choice.is_default and fallback is None:
            raise InputError(
                f"{describe_rule(rule)}: beside other rules {self.library}'s own decision has no"
                " number:"
                " name a stand-in (--otherwise NAME)"
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
        fallback: AlgorithmConfig | None = None,
        commutative_only: bool = False,
    ) -> list[str]:
        """Every call on `ranks` ranks for which the file decides otherwise than the table, one
        sentence each. Raises InputError when the library would not read the file as it stands."""
        found, differences = self.parse(text), list[str]()
        ladders = _rule_lists(table, ranks, commutative_only)
        p = next(iter(ladders.values()))[0].key.p
        for collective in self.variable_names:
            ladder = ladders.get(collective, ())
            silent = all(rule.choice.is_default for rule in ladder)
            stand_in = None if silent else fallback
            for nbytes in self._boundary_sizes(collective, p, ladder, found.get(collective, ())):
                rule = next((r for r in ladder if r.lo <= nbytes < r.hi), None)
                wanted, said = (
                    stand_in or AlgorithmConfig(),
                    describe_default(stand_in, is_fallback_missing=not silent),
                )
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
        """Whole buffers beside every bound; only those that can be divided where they are."""
        scale = self.compared_bytes_factor(collective, p)
        edges = {(entry.max_bytes + 1) * scale for entry in entries if entry.max_bytes is not None}
        near = boundary_sizes(rule_list, edges)
        return sorted({m for n in near for m in (n // scale * scale, -(-n // scale) * scale)})


def rank_counts(table: TuningTable) -> tuple[int, ...]:
    """The numbers of ranks that the table knows, ascending."""
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
    ladders = {name: sizes[p] for name, sizes in found.items() if p in sizes}
    if not ladders:
        raise InputError(f"the table has no rules for {p} ranks, but for {list(known)}")
    return ladders
