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

from tuner.base.errors import InputError, quoted
from tuner.core.collective import Collective
from tuner.core.table import Choice, Rule, TuningTable
from tuner.formats import shell_exports
from tuner.formats.rules_by_ranks import by_ranks, describe, left, probe_sizes

LARGEST = 2**31 - 1  # bytes of a bound; the libraries keep them in an int


@dataclass(frozen=True)
class Entry:
    """Calls of up to `last` bytes, None without bound, that no earlier entry took."""

    number: int
    last: int | None = None


Ladders = Mapping[Collective, tuple[Entry, ...]]


@dataclass(frozen=True)
class Dialect:
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
    names: Mapping[Collective, str]
    per_rank: tuple[Collective, ...]
    number_of: Callable[[Collective, Choice], int]
    choice_of: Callable[[Collective, int], Choice]
    write: Callable[[Sequence[Entry]], str]
    read: Callable[[Collective, str], tuple[Entry, ...]]

    def decide(self, ladders: Ladders, collective: Collective, p: int, nbytes: int) -> Choice:
        """What the library is told for a call of `nbytes` of the whole buffer; the default where
        no variable speaks of the collective."""
        size = nbytes // self.scale(collective, p)
        for entry in ladders.get(collective, ()):
            if entry.last is None or size <= entry.last:
                return self.choice_of(collective, entry.number)
        return Choice()

    def scale(self, collective: Collective, p: int) -> int:
        """Bytes of the whole buffer for one byte that the library compares."""
        return p if collective in self.per_rank else 1

    def parse(self, text: str) -> Ladders:
        """What a file of variables says; raises InputError naming what would be misread."""
        try:
            variables = shell_exports.parse(text)
            found = dict(self._ladder(name, value) for name, value in variables.items())
        except InputError as reason:
            raise InputError(f"{self.library} variables: {reason}") from None
        return {collective: entries for collective, entries in found.items() if entries}

    def _ladder(self, name: str, value: str | None) -> tuple[Collective, tuple[Entry, ...]]:
        """What a variable says, nothing where it is unset."""
        collective = next((c for c, known in self.names.items() if known == name), None)
        if collective is None:
            raise InputError(f"{name} is none of {', '.join(self.names.values())}")
        try:
            return collective, () if value is None else self.read(collective, value)
        except InputError as reason:
            raise InputError(f"{name}: {reason}") from None

    def emit(
        self,
        table: TuningTable,
        ranks: int | None = None,
        *,
        otherwise: Choice | None = None,
        commutative_only: bool = False,
    ) -> str:
        """The variables for communicators of `ranks` ranks; None: the only ones in the table.

        otherwise   what runs where a ladder with other rules leaves the choice to the library

        Raises InputError when a rule cannot be expressed, and for a number of ranks that the table
        does not know.
        """
        ladders = _ladders(table, ranks, commutative_only)
        variables = dict[str, str | None]()
        for collective, ladder in ladders.items():
            if not all(rule.choice.is_default for rule in ladder):
                entries = tuple(self._entries(ladder, otherwise))
                variables[self.names[collective]] = self.write(entries)
        variables |= {name: None for name in self.names.values() if name not in variables}
        p = next(iter(ladders.values()))[0].key.p
        held = f"rules for communicators of {p} ranks, in force for those of any size"
        text = shell_exports.render(variables, f"{table.library}: {held}")
        differences = self.check(
            table, text, ranks, otherwise=otherwise, commutative_only=commutative_only
        )
        if differences:
            raise InputError(f"the variables would not say what the table says: {differences[0]}")
        return text

    def replaced(
        self, table: TuningTable, ranks: int | None = None, *, commutative_only: bool = False
    ) -> int:
        """How many rules for `ranks` ranks leave to the library what a stand-in decides in the
        variables. Raises InputError as `emit` does."""
        ladders = _ladders(table, ranks, commutative_only).values()
        mixed = (own for own in ladders if not all(rule.choice.is_default for rule in own))
        return sum(rule.choice.is_default for ladder in mixed for rule in ladder)

    def _entries(self, ladder: tuple[Rule, ...], otherwise: Choice | None) -> Iterator[Entry]:
        """One per rule that some call falls under, the last without bound."""
        done = -1
        for rule in ladder:
            number = self._number(rule, otherwise)
            if rule.hi == math.inf:
                yield Entry(number)
                return
            # The last size below `hi` that is a whole number of compared bytes.
            last = -(-int(rule.hi) // self.scale(rule.key.collective, rule.key.p)) - 1
            if last > LARGEST:
                raise InputError(
                    f"{describe(rule)}: {self.library} takes bounds up to {LARGEST} bytes"
                )
            if last > done:
                yield Entry(number, last)
                done = last

    def _number(self, rule: Rule, otherwise: Choice | None) -> int:
        key, choice = rule.key, rule.choice
        if key.memory != "host":
            raise InputError(
                f"{describe(rule)}: {self.library}'s variables cannot be limited to"
                f" {quoted(key.memory)} memory"
            )
        if choice.is_default and otherwise is None:
            raise InputError(
                f"{describe(rule)}: beside other rules {self.library}'s own decision has no number:"
                " name a stand-in (--otherwise NAME)"
            )
        try:
            stand_in = otherwise if choice.is_default and otherwise else choice
            return self.number_of(key.collective, stand_in)
        except InputError as reason:
            raise InputError(f"{describe(rule)}: {reason}") from None

    def check(
        self,
        table: TuningTable,
        text: str,
        ranks: int | None = None,
        *,
        otherwise: Choice | None = None,
        commutative_only: bool = False,
    ) -> list[str]:
        """Every call on `ranks` ranks for which the file decides otherwise than the table, one
        sentence each. Raises InputError when the library would not read the file as it stands."""
        found, differences = self.parse(text), list[str]()
        ladders = _ladders(table, ranks, commutative_only)
        p = next(iter(ladders.values()))[0].key.p
        for collective in self.names:
            ladder = ladders.get(collective, ())
            silent = all(rule.choice.is_default for rule in ladder)
            stand_in = None if silent else otherwise
            for nbytes in self._sizes(collective, p, ladder, found.get(collective, ())):
                rule = next((r for r in ladder if r.lo <= nbytes < r.hi), None)
                wanted, said = (stand_in or Choice(), left(stand_in, unnamed=not silent))
                if rule is not None and not rule.choice.is_default:
                    wanted, said = rule.choice, f"says {rule.choice}"
                decided = self.decide(found, collective, p, nbytes)
                if decided != wanted:
                    differences.append(
                        f"{collective} of {nbytes} bytes on {p} ranks: the table {said}; the"
                        f" variables say {decided}"
                    )
        return differences

    def _sizes(
        self, collective: Collective, p: int, ladder: tuple[Rule, ...], entries: Sequence[Entry]
    ) -> list[int]:
        """Whole buffers beside every bound; only those that can be divided where they are."""
        scale = self.scale(collective, p)
        edges = {(entry.last + 1) * scale for entry in entries if entry.last is not None}
        near = probe_sizes(ladder, edges)
        return sorted({m for n in near for m in (n // scale * scale, -(-n // scale) * scale)})


def ranks_of(table: TuningTable) -> tuple[int, ...]:
    """The numbers of ranks that the table knows, ascending."""
    return tuple(sorted({key.p for key in table.keys}))


def _ladders(
    table: TuningTable, ranks: int | None, commutative_only: bool
) -> dict[Collective, tuple[Rule, ...]]:
    known = ranks_of(table)
    if ranks is None and len(known) != 1:
        raise InputError(
            f"the variables are for one number of ranks, and the table has {list(known)}: choose"
            " one (--ranks)"
        )
    p = known[0] if ranks is None else ranks
    found = by_ranks(table, "commutative" if commutative_only else "any")
    ladders = {name: sizes[p] for name, sizes in found.items() if p in sizes}
    if not ladders:
        raise InputError(f"the table has no rules for {p} ranks, but for {list(known)}")
    return ladders
